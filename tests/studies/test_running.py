"""The runs that findings are recorded to be made from."""

from dataclasses import replace

import pytest

from anchorlab.runs import Store
from anchorlab.runs.references import FILE, read_use
from anchorlab.studies import findings_directory, run_study
from anchorlab.studies.running import _behind, kept_findings
from tests.faults.study import PROFILE, STUDY
from tests.small_experiments import experiment


def test_the_runs_behind_findings_are_the_trained_ones_and_their_controls():
    first = experiment()
    later = replace(first, start=first, recipe=first.recipe.replace(batch=first.recipe.batch * 2))
    expected = {one.cell.address for one in (first, later, first.untrained(), later.untrained())}
    assert len(expected) == 4
    assert _behind([first.cell, later.cell]) == expected


@pytest.mark.slow
def test_what_a_killed_writer_left_beside_findings_is_removed_and_a_damaged_record_written_anew(tmp_path):
    store = Store(tmp_path)
    folder = findings_directory(store, STUDY.name, PROFILE)
    folder.mkdir(parents=True)
    (folder / ".0123456789abcdef.tmp").write_bytes(b"half of")
    (folder / FILE).write_bytes(b"{}")
    found = run_study(STUDY, PROFILE, store, workers=1)
    assert {path.name for path in folder.iterdir()} == {FILE, "findings.json"}
    assert kept_findings(store) == [found]
    assert read_use(folder).runs == {run.address for run in store.runs()}
