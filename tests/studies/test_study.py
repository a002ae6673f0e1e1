import time
from dataclasses import replace

import pytest

from anchorlab.engine import Status, run
from anchorlab.errors import SpecError, StoreError
from anchorlab.findings import Claim, Findings
from anchorlab.models import DecoderSpec
from anchorlab.report import write_report
from anchorlab.runs import Store
from anchorlab.studies import STUDIES, Profile, Study, findings_directory, kept_findings, run_study, study
from anchorlab.studies.kit import member_values
from anchorlab.tasks import task
from anchorlab.training import Evaluation, Experiment, FixedSample, Members, Recipe, work_per_step

CLAIM = Claim("a/b/loss", "The loss is positive", "Fig 1", "above 0", "loss at the end", (0.0, None))


def experiments() -> list[Experiment]:
    recipe = Recipe(data=FixedSample(size=10), batch=5, duration=2, evaluation=Evaluation(size=5))
    model = DecoderSpec(layers=1, heads=1, width=4, head_width=4)
    return [
        Experiment(task("anchor/identity"), model, recipe, Members(seeds=(seed,)), f"seed {seed}") for seed in (3, 1)
    ]


def analyse(runs, source, note) -> Findings:
    losses = [float(member_values(run, "test", "loss")) for run in runs]
    assert [run.experiment.members.seeds for run in runs] == [(3,), (1,)]  # the order of the experiments
    return Findings("a/b", "A study", note, source.profile, source, (CLAIM.judge(min(losses), source.profile),))


TINY = Study("a/b", "A study", (CLAIM,), {"quick": Profile(experiments, "A note.")}, analyse)


def test_a_study_trains_analyses_and_keeps(tmp_path):
    store = Store(tmp_path)
    told = []
    whole = sum(one.member_steps * work_per_step(one) for one in experiments())
    findings = run_study(TINY, "quick", store, workers=1, report=told.append)
    assert (findings.profile, findings.summary) == ("quick", "A note.")
    assert (findings.provenance.profile, findings.provenance.seeds) == ("quick", "1, 3")
    assert findings.claims[0].verdict == "reproduced"
    assert len(store.runs()) == 2
    assert told[-2].done == whole
    assert told[-1] == Status(1, label="reading the runs")
    assert kept_findings(store) == [findings]
    assert findings_directory(store, "a/b", "quick") == tmp_path / "studies" / "a-b" / "quick"

    again = run_study(TINY, "quick", store, workers=1, report=lambda status: pytest.fail("nothing is left to train"))
    assert again.claims == findings.claims


def test_what_findings_took_and_what_of_it_was_there_before(tmp_path):
    """Reading runs again costs next to nothing and changes nothing; the time of analysis counts."""

    def slowly(*given) -> Findings:
        time.sleep(0.3)
        return analyse(*given)

    store = Store(tmp_path)
    slow = replace(TINY, analyse=slowly)
    run(experiments()[:1], store, workers=1)
    first = run_study(slow, "quick", store, workers=1).provenance
    assert first.reused == 1 and first.seconds >= 0.3
    assert run_study(TINY, "quick", store, workers=1).provenance == first
    (findings_directory(store, "a/b", "quick") / "findings.json").unlink()
    assert run_study(TINY, "quick", store, workers=1).provenance.reused == 2
    assert run_study(TINY, "quick", Store(tmp_path / "other"), workers=1).provenance.reused == 0


def test_an_unknown_profile_writes_nothing(tmp_path):
    with pytest.raises(SpecError, match=r"^profile: unknown profile 'quik'; did you mean 'quick'"):
        run_study(TINY, "quik", Store(tmp_path / "store"))
    assert not (tmp_path / "store").exists()


def test_no_findings_in_an_empty_store(tmp_path):
    assert kept_findings(Store(tmp_path / "nowhere")) == []


def test_damaged_findings_are_named(tmp_path):
    folder = findings_directory(Store(tmp_path), "a/b", "quick")
    folder.mkdir(parents=True)
    (folder / "findings.json").write_bytes(b"\xff{")
    with pytest.raises(StoreError, match=r"findings\.json: damaged .*run its study again"):
        kept_findings(Store(tmp_path))


@pytest.mark.parametrize("name", STUDIES)
def test_registered_studies_keep_their_contract(name):
    found = study(name)
    assert found.name == name
    assert {"quick", "paper", "smoke"} <= set(found.profiles)
    ids = [claim.id for claim in found.claims]
    assert len(set(ids)) == len(ids) and all(one.startswith(f"{name}/") for one in ids)
    for profile in found.profiles.values():
        assert profile.note
        addresses = [experiment.cell.address for experiment in profile.experiments()]
        assert len(set(addresses)) == len(addresses)
    numbers = [{one.cell.address for one in profile.experiments()} for profile in found.profiles.values()]
    assert not set.intersection(*numbers)


@pytest.mark.parametrize("name", STUDIES)
def test_smoke_profiles_run_from_task_to_page(tmp_path, name):
    store, found = Store(tmp_path), study(name)
    findings = run_study(found, "smoke", store, workers=1)
    assert (findings.study, findings.profile, findings.provenance.profile) == (name, "smoke", "smoke")
    assert [result.claim for result in findings.claims] == list(found.claims)
    assert {result.profile for result in findings.claims} == {"smoke"}
    assert Findings.from_json(findings.to_json()) == findings
    page = write_report(findings, tmp_path / "page.html").read_text()
    assert all(result.claim.statement.split("'")[0] in page for result in findings.claims)


@pytest.mark.parametrize("name", ["anchor/identiti", "", "anchor", "identity/anchor", "../x"])
def test_unknown_studies(name):
    with pytest.raises(SpecError, match=r"^study: unknown study"):
        study(name)
