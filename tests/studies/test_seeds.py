"""A seed on which a setting was chosen is refused; tests/papers/test_ledger.py reads the seeds of all studies."""

from dataclasses import replace

import pytest

from anchorlab.errors import SpecError
from anchorlab.studies import study
from anchorlab.studies.seeds import fresh


def test_fresh_seeds_begin_at_a_thousand():
    assert fresh(3) == (1000, 1001, 1002)


def test_a_seed_of_the_search_is_refused():
    found = replace(study("anchor/identity"), chosen_on=(1004,))
    with pytest.raises(SpecError, match=r"^seeds: 1004 is among the seeds on which .* chosen; give .* 1005"):
        found.experiments_of("quick")


def test_varied_seeds_are_held_against_the_search_but_other_values_make_another_setting():
    found = study("anchor/identity")
    with pytest.raises(SpecError, match=r"^seeds: 0 is among"):
        found.vary(seeds=range(3)).experiments_of("quick")
    assert {one.members.seeds for one in found.vary(seeds=(2000,)).experiments_of("quick")} == {(2000,)}
    assert found.vary({"model.heads": 2}, seeds=range(2)).experiments_of("quick")[0].members.seeds == (0, 1)
