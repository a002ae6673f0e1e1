"""Profiles, by name: of parts with chosen seeds, and of studies that measure a pretrained model."""

from dataclasses import dataclass, replace

import pytest

from anchorlab import studies
from anchorlab.engine import Status
from anchorlab.errors import SpecError
from anchorlab.findings import Control, at_least, ledger
from anchorlab.findings.claims import base_profile
from anchorlab.language.endpoint import Access
from anchorlab.papers.verifying import candidates
from anchorlab.runs import Store
from anchorlab.studies import findings_directory, run_study, study
from anchorlab.studies.profile_names import part_name, part_of, with_number_of_seeds
from anchorlab.studies.seeds import fresh
from anchorlab.training import Members
from tests.studies.made_up_claims import made_up


def seeds_of(name: str, profile: str) -> set[tuple[int, ...]]:
    return {one.members.seeds for one in study(name).experiments_of(profile)}


@pytest.mark.parametrize(
    "name", ["anchor/identity", "anchor/every-token", "retrieval/circuits", "truncation/noise-first"]
)
@pytest.mark.parametrize(("part", "seeds"), [("paper:1000:1002", (1000, 1001)), ("paper:1002,1777", (1002, 1777))])
def test_a_part_has_the_chosen_seeds_and_nothing_else_changed(name, part, seeds):
    whole, chosen = (study(name).experiments_of(profile) for profile in ("paper", part))
    assert seeds_of(name, part) == {seeds}
    for one, other in zip(whole, chosen, strict=True):
        assert (one.task, one.model, one.recipe) == (other.task, other.model, other.recipe)


def test_a_part_of_members_and_of_runs_that_start_from_others_has_the_same_seeds():
    whole, part = (
        study("anchor/phase-diagram").experiments_of(profile)[0].members for profile in ("paper", "paper:1002")
    )
    assert set(whole.gamma.given["all"]) == set(part.gamma.given["all"]) and set(part.seeds) == {1002}
    assert len(whole) == 3 * len(part)
    found = [one for one in study("truncation/feedforward-choices").experiments_of("paper:1004") if one.start]
    assert all(one.start.members.seeds == one.members.seeds == (1004,) for one in found)


@dataclass(frozen=True)
class Inner:
    seeds: int


@dataclass(frozen=True)
class Outer:
    seeds: int
    few: Inner
    given: tuple[Members, ...] = ()


def test_the_number_of_seeds_of_a_setting_and_no_own_profile_named_like_a_part():
    setting = Outer(5, Inner(2), (Members(seeds=(7, 8)), Members(seeds=(5, 6, 7), learning_rate=(0.1, 0.2, 0.3))))
    one, nine = with_number_of_seeds(setting, 1), with_number_of_seeds(setting, 9)
    assert (one.seeds, one.few.seeds, nine.seeds, nine.few.seeds) == (1, 1, 9, 2)
    assert [members.seeds for members in one.given] == [(7,), (5,)]
    assert [members.seeds for members in nine.given] == [tuple(range(7, 16)), (5, 6, 7)]
    own = study("anchor/identity")
    problem = r"^study\.profiles: 'mine:2' would be read as a part of the profile 'mine'; name it without a colon"
    with pytest.raises(SpecError, match=problem):
        replace(own, profiles={**own.profiles, "mine:2": own.profiles["quick"]})


def test_names_of_parts_which_are_in_the_papers_setting():
    identity = study("anchor/identity")
    whole, part, two = (identity.profile(name) for name in ("paper", "paper:1002", "paper:1000:1002"))
    assert part.paper == whole.paper is not False
    assert part.note == f"{whole.note} Here seed 1002 alone."
    assert two.note == f"{whole.note} Here seeds 1000..1001."
    assert part_of("paper:1002") == ("paper", (1002,)) and part_of("quick") == ("quick", None)
    assert part_of("paper:1000:1002,1007") == ("paper", (1000, 1001, 1007))
    assert base_profile("quick:1002") == base_profile("quick@gpt2") == "quick"
    names = {(1002,): "paper:1002", (1000, 1001): "paper:1000:1002", (1000, 1004): "paper:1000,1004"}
    assert {seeds: part_name("paper", seeds) for seeds in names} == names
    assert all(part_of(name) == ("paper", seeds) for seeds, name in names.items())


@pytest.mark.parametrize(
    ("name", "profile", "message"),
    [
        ("anchor/mechanism", "paper:", "profile: "),
        ("anchor/mechanism", "paper:x", "profile: "),
        ("anchor/mechanism", "paper:3", "seeds: 3 is among the seeds on which the setting was chosen"),
        ("anchor/mechanism", "paper:1002:1001", "seeds: "),
        ("anchor/mechanism", "paper:1002,1002", "seeds: name a seed twice"),
        ("truncation/associative-memory", "paper:1000", "seeds: are 1; this profile trains 20"),
        ("language/heads", "quick:1000", "seeds: language/heads trains nothing"),
    ],
)
def test_no_such_part(name, profile, message):
    with pytest.raises(SpecError) as caught:
        study(name).experiments_of(profile)
    assert str(caught.value).startswith(message)


def test_what_is_verified_may_have_chosen_seeds():
    (whole, *_), (part, *_) = (
        [one for one in candidates(["retrieval/circuits"], seeds) if one.profile.startswith("paper")]
        for seeds in (None, (1001,))
    )
    assert (whole.profile, part.profile) == ("paper", "paper:1001")
    assert {one.members.seeds for one in part.experiments} == {(1001,)}
    assert part.claims == whole.claims
    (alone,) = [one for one in candidates(["truncation/associative-memory"], (1000,)) if one.profile == "paper"]
    assert len(alone.experiments[0].members) == 20  # their number is part of this setting


@pytest.mark.slow
def test_a_part_is_kept_beside_the_whole(tmp_path):
    findings = run_study(study("anchor/identity"), "smoke:1001", tmp_path, workers=1)
    assert (findings.profile, findings.provenance.seeds) == ("smoke:1001", "1001")
    assert (findings_directory(Store(tmp_path), "anchor/identity", "smoke:1001") / "findings.json").exists()


def test_seeds_of_the_search_are_refused_and_fresh_ones_begin_at_a_thousand():
    assert fresh(3) == (1000, 1001, 1002)
    found = replace(study("anchor/identity"), chosen_on=(1004,))
    with pytest.raises(SpecError, match=r"^seeds: 1004 is among the seeds on which .* chosen; give .* 1005"):
        found.experiments_of("quick")
    found = study("anchor/identity")
    with pytest.raises(SpecError, match=r"^seeds: 0 is among"):
        found.vary(seeds=range(3)).experiments_of("quick")
    assert {one.members.seeds for one in found.vary(seeds=(2000,)).experiments_of("quick")} == {(2000,)}
    assert found.vary({"model.heads": 2}, seeds=range(2)).experiments_of("quick")[0].members.seeds == (0, 1)


PYTHIA, STEP = "EleutherAI/pythia-160m", "step1000"


@dataclass(frozen=True)
class Setting:
    model: str = "small"
    revision: str | None = None
    words: int = 3


letters = made_up("letters", at_least(6), len, at="some paper, Fig 1")
exactly = made_up("exactly", at_least(0), len, at="some paper, Fig 2", exact=True)


def observe(setting: Setting, context: studies.ObservationContext) -> studies.Observed[str]:
    context.report(Status(2, 1, "observing"))
    return studies.Observed(setting.model, "x" * setting.words, f"{setting.model}, 7 parameters", "0")


PROFILES = {
    "quick": studies.Profile(Setting(), "Own."),
    "paper": studies.Profile(Setting("llama"), "Theirs.", paper=True),
}
MEASURING = studies.Study("own/names", "Names.", (letters, exactly), PROFILES, observe=observe)


def test_what_is_observed_is_analysed_and_judged_beside_an_untrained_model(tmp_path):
    told: list[Status] = []
    found = studies.run_study(MEASURING, "quick", Store(tmp_path), report=told.append)
    assert [one.value for one in found.claims] == [5, 5]
    assert [one.verdict for one in found.claims] == ["undecided", "reproduced"]  # one value, and one exact value
    assert [one.untrained for one in found.claims] == [Control(3.0), None]
    assert found.claims[0].claim.source == "some paper, Fig 1"
    assert found.provenance.line.startswith("profile quick · small, 7 parameters · seeds 0 · ")
    assert told == [Status(2, 1, "observing")]


def test_the_workplace_is_that_of_the_study_the_profile_and_the_model(tmp_path):
    seen: list[studies.ObservationContext] = []

    def watching(setting: Setting, context: studies.ObservationContext) -> studies.Observed[str]:
        seen.append(context)
        return observe(setting, context)

    study = studies.Study("own/names", "Names.", (letters,), PROFILES, observe=watching)
    studies.run_study(study, "quick", Store(tmp_path))
    studies.run_study(study, f"quick@{PYTHIA}@{STEP}", Store(tmp_path), download=True)
    own, other = seen
    folder, answers = tmp_path / "studies" / "own-names" / "quick" / "partial", tmp_path / "answers"
    assert own == studies.ObservationContext(folder, own.report, answers=answers)
    assert other.folder == tmp_path / "studies" / "own-names" / f"quick@EleutherAI%2Fpythia-160m@{STEP}" / "partial"
    assert (other.device, other.download) == ("cpu", True)


def test_findings_of_several_models_are_kept_side_by_side(tmp_path):
    store = Store(tmp_path)
    for profile in ("quick", f"quick@{PYTHIA}", f"quick@{PYTHIA}@{STEP}", "quick@../names"):
        studies.run_study(MEASURING, profile, store)
    assert studies.findings_directory(store, "own/names", "quick@../names").parent == tmp_path / "studies" / "own-names"
    kept = studies.kept_findings(store)
    assert {one.profile for one in kept} == {"quick", f"quick@{PYTHIA}", f"quick@{PYTHIA}@{STEP}", "quick@../names"}
    assert ledger(kept)[0].strongest.profile == "quick"
    assert [MEASURING.judge_again(one) for one in kept] == kept


def test_another_model_is_not_the_papers_setting_and_a_smoke_run_decides_nothing(tmp_path):
    smoke = studies.Study("own/names", "Names.", (letters, exactly), {}, smoke=Setting(), observe=observe, paper="")
    assert [one.scope for one in studies.run_study(smoke, "smoke@gpt2", Store(tmp_path)).claims] == ["other", "other"]
    studies.run_study(MEASURING, "quick@llama", Store(tmp_path))
    strongest = [one.strongest.profile for one in ledger(studies.kept_findings(Store(tmp_path)))]
    assert strongest == ["quick@llama", "quick@llama"]
    assert MEASURING.profile("paper").is_papers_setting("letters")
    other = MEASURING.profile(f"paper@gpt2@{STEP}")
    assert not other.is_papers_setting("letters")
    assert other.setting == Setting("gpt2", STEP)
    assert other.note == f"Profile paper, of the model gpt2 at {STEP} in place of its own."


@pytest.mark.parametrize(
    ("profile", "model", "revision", "name"),
    [
        ("quick", None, None, "quick"),
        ("quick", "small", None, "quick"),  # the profile's own
        ("quick", PYTHIA, None, f"quick@{PYTHIA}"),
        ("quick", PYTHIA, STEP, f"quick@{PYTHIA}@{STEP}"),
        ("quick", None, STEP, f"quick@small@{STEP}"),
        (f"quick@{PYTHIA}", None, STEP, f"quick@{PYTHIA}@{STEP}"),
    ],
)
def test_names_of_profiles(profile, model, revision, name):
    assert MEASURING.profile_of(profile, model, revision) == name
    setting = MEASURING.profile(name).setting
    assert (setting.model, setting.revision) == (model or MEASURING.profile(profile).setting.model, revision)


@pytest.mark.parametrize(
    ("model", "revision", "message"),
    [
        ("a@b", None, r"^model: 'a@b' cannot be part of a profile's name; give a name without @"),
        ("", None, r"^model: '' cannot"),
        (None, "a@b", r"^revision: 'a@b' cannot"),
    ],
)
def test_names_that_are_refused(model, revision, message):
    with pytest.raises(SpecError, match=message):
        MEASURING.profile_of("quick", model, revision)


def test_a_study_without_a_model_refuses_one(tmp_path):
    profiles = {"quick": studies.Profile(3, "")}
    training = studies.Study("own/names", "Names.", (letters,), profiles, reads=studies.Reading)
    with pytest.raises(SpecError, match=r"^model: the study opens no pretrained model; leave out"):
        training.profile_of("quick", "gpt2")
    with pytest.raises(SpecError, match=r"^model: the study opens no pretrained model"):
        studies.run_study(training, "quick@gpt2", Store(tmp_path))
    with pytest.raises(SpecError, match=r"^download: own/names opens no pretrained model"):
        studies.run_study(training, "quick", Store(tmp_path), download=True)
    with pytest.raises(SpecError, match=r"^access: own/names opens no pretrained model; leave it out$"):
        studies.run_study(training, "quick", Store(tmp_path), access=Access())
    assert training.profile_of("quick") == "quick"
