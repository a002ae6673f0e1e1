"""The runs that findings are recorded to be made from."""

from dataclasses import replace

import pytest

from anchorlab.findings import at_most
from anchorlab.runs import Store
from anchorlab.runs.references import FILE, read_use
from anchorlab.studies import Analysis, Profile, Study, at_end, claim, findings_directory, run_study
from anchorlab.studies.running import _behind, kept_findings
from tests.small_experiments import experiment

PROFILE = "quick"


@claim("The loss ends low", at="", paper="low", band=at_most(10.0))
def loss(seen):
    """Training loss."""
    return at_end(seen[0], "train", "loss")


STUDY = Study(
    "own/short",
    "Short.\n\nTwo runs.",
    (loss,),
    lambda runs, steps: Analysis(runs),
    {PROFILE: Profile(4, "A moment of training.")},
    experiments=lambda steps: [experiment(duration=steps), experiment("recall", duration=steps)],
)


def test_the_runs_behind_findings_are_the_trained_ones_and_their_controls():
    first = experiment()
    later = replace(first, start=first, recipe=first.recipe.replace(batch=first.recipe.batch * 2))
    expected = {one.cell.address for one in (first, later, first.untrained(), later.untrained())}
    assert len(expected) == 4
    assert _behind([first.cell, later.cell]) == expected


@pytest.mark.slow
def test_a_damaged_record_is_written_anew(tmp_path):
    store = Store(tmp_path)
    folder = findings_directory(store, STUDY.name, PROFILE)
    folder.mkdir(parents=True)
    (folder / FILE).write_bytes(b"{}")
    found = run_study(STUDY, PROFILE, store, workers=1)
    assert {path.name for path in folder.iterdir()} == {FILE, "findings.json"}
    assert kept_findings(store) == [found]
    assert read_use(folder).runs == {run.address for run in store.runs()}
