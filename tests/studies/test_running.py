"""The runs that findings are recorded to be made from."""

from dataclasses import replace

from anchorlab.studies.running import _behind
from tests.small_experiments import experiment


def test_the_runs_behind_findings_are_the_trained_ones_and_their_controls():
    first = experiment()
    later = replace(first, start=first, recipe=first.recipe.replace(batch=first.recipe.batch * 2))
    expected = {one.cell.address for one in (first, later, first.untrained(), later.untrained())}
    assert len(expected) == 4
    assert _behind([first.cell, later.cell]) == expected
