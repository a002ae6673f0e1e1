"""Seeds of profiles: those of the search are refused, and parts are the same experiments with chosen ones."""

from dataclasses import dataclass, replace

import pytest

from anchorlab.errors import SpecError
from anchorlab.findings.claims import base_profile
from anchorlab.papers.verifying import candidates
from anchorlab.runs import Store
from anchorlab.studies import findings_directory, run_study, study
from anchorlab.studies.profile_names import part_name, part_of, with_number_of_seeds
from anchorlab.studies.seeds import fresh
from anchorlab.training import Members


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
