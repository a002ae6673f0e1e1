"""Studies that measure a pretrained model: what they observe, under which profiles, and where it is kept."""

from dataclasses import dataclass
from typing import Any

import pytest

from anchorlab import studies
from anchorlab.engine import Status
from anchorlab.errors import SpecError
from anchorlab.findings import Control, at_least, ledger
from anchorlab.runs import Store

PYTHIA, STEP = "EleutherAI/pythia-160m", "step1000"


@dataclass(frozen=True)
class Setting:
    model: str = "small"
    revision: str | None = None
    words: int = 3


@studies.claim("some paper, Fig 1", "long", at_least(6))
def letters(name: str) -> float:
    """A name is long.

    Letters of the name.
    """
    return len(name)


@studies.claim("some paper, Fig 2", "3", at_least(0), exact=True)
def exactly(name: str) -> float:
    """Counting is exact.

    Letters again.
    """
    return len(name)


def observe(setting: Setting, context: studies.ObservationContext) -> dict[str, Any]:
    context.report(Status(2, 1, "observing"))
    return {"setting": setting, "context": context}


def analyse(observed: dict[str, Any], setting: Setting) -> studies.Analysis:
    assert observed["setting"] == setting
    return studies.Analysis(
        setting.model, model=f"{setting.model}, 7 parameters", untrained="x" * setting.words, seeds="0"
    )


PROFILES = {
    "quick": studies.Profile(Setting(), "Own."),
    "paper": studies.Profile(Setting("llama"), "Theirs.", paper=True),
}
MEASURING = studies.Study("own/names", "Names.", (letters, exactly), PROFILES, analyse=analyse, observe=observe)


def test_what_is_observed_is_analysed_and_judged_beside_an_untrained_model(tmp_path):
    told: list[Status] = []
    found = studies.run_study(MEASURING, "quick", Store(tmp_path), report=told.append)
    assert [one.value for one in found.claims] == [5, 5]
    assert [one.verdict for one in found.claims] == ["differs at small scale", "reproduced"]
    assert [one.untrained for one in found.claims] == [Control(3.0), None]
    assert found.claims[0].claim.source == "some paper, Fig 1"
    assert found.provenance.line.startswith("profile quick · small, 7 parameters · seeds 0 · ")
    assert told == [Status(2, 1, "observing")]


def test_the_workplace_is_that_of_the_study_the_profile_and_the_model(tmp_path):
    seen: list[studies.ObservationContext] = []

    def watching(setting: Setting, context: studies.ObservationContext) -> dict[str, Any]:
        seen.append(context)
        return observe(setting, context)

    study = studies.Study("own/names", "Names.", (letters,), PROFILES, analyse=analyse, observe=watching)
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
    smoke = studies.Study(
        "own/names", "Names.", (letters, exactly), {}, smoke=Setting(), analyse=analyse, observe=observe, paper=""
    )
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
    training = studies.Study("own/names", "Names.", (letters,), {"quick": studies.Profile(3, "")}, analyse=analyse)
    with pytest.raises(SpecError, match=r"^model: the study opens no pretrained model; leave out"):
        training.profile_of("quick", "gpt2")
    with pytest.raises(SpecError, match=r"^model: the study opens no pretrained model"):
        studies.run_study(training, "quick@gpt2", Store(tmp_path))
    with pytest.raises(SpecError, match=r"^download: own/names opens no pretrained model"):
        studies.run_study(training, "quick", Store(tmp_path), download=True)
    assert training.profile_of("quick") == "quick"
