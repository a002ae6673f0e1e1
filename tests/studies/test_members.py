"""Which members are trained where others are held elsewhere."""

from dataclasses import replace

import pytest

from anchorlab.engine import run
from anchorlab.runs import Store
from anchorlab.studies.members import asked, one_by_one, run_with_parts
from anchorlab.training import Members
from tests.engine.killed import results
from tests.engine.test_joint import SWEEP


@pytest.mark.slow
def test_what_is_finished_changes_no_byte_of_the_others_where_members_may_be_held_apart(tmp_path):
    """As a study asks: a run that was lost is trained again at its place."""
    whole, store = Store(tmp_path / "whole"), Store(tmp_path / "again")
    run(SWEEP, whole, workers=1)
    run_with_parts(SWEEP, store, (), workers=1)
    assert results(store.root) == results(whole.root)
    store.remove(SWEEP[1].cell.address)
    run_with_parts(SWEEP, store, (), workers=1)
    assert results(store.root) == results(whole.root)


def test_finished_members_stay_in_the_plan_where_others_are_held_elsewhere(tmp_path):
    """Of three members one is held in another store: the other two are asked for, whether finished or not."""
    whole = replace(SWEEP[0], members=Members(seeds=3))
    first, second, third = one_by_one(whole)
    here, elsewhere = Store(tmp_path / "here"), Store(tmp_path / "elsewhere")
    run([first], elsewhere, workers=1)
    assert asked([whole], [here, elsewhere]) == [second, third]
    run([second], here, workers=1)
    assert asked([whole], [here, elsewhere]) == [second, third]
