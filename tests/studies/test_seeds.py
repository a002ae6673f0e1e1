"""No setting is published on the seeds on which it was chosen."""

from dataclasses import replace

import pytest

from anchorlab.errors import SpecError
from anchorlab.studies import STUDIES, study
from anchorlab.studies.seeds import SEARCHED, fresh


def test_fresh_seeds_begin_at_a_thousand():
    assert fresh(3) == (1000, 1001, 1002)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_that_trains_says_what_it_was_chosen_on_and_trains_none_of_it(name):
    found = study(name)
    if not found.trains:
        return
    assert set(found.chosen_on) == set(SEARCHED)
    for profile in found.profiles:
        seeds = {seed for one in found.experiments_of(profile) for seed in one.members.seeds}
        assert seeds
        assert not seeds & set(found.chosen_on), profile


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
