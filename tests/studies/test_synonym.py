import math

import torch

from anchorlab.studies.anchor.synonym import TWINS, UNSEEN, passed_at
from anchorlab.tasks import task


def test_passing_lies_between_two_measurements():
    values = torch.tensor(
        [
            [0.0, 0.5, 0.7, 1.0],  # two thirds of the way from 20 to 30
            [0.95, 1.0, 1.0, 1.0],  # above from the start
            [0.0, 0.9, 0.9, 0.9],  # reaches the level and never passes it
            [0.0, 1.0, 0.2, 1.0],  # the first time counts
        ]
    )
    found = passed_at([0, 10, 20, 30], values)
    assert found[2] == math.inf
    torch.testing.assert_close(found[[0, 1, 3]], torch.tensor([20 + 10 * 2 / 3, 0.0, 9.0]))


def test_the_compared_pairs_are_groups_of_their_splits():
    with_synonyms = task("anchor/synonym", total=1000)
    for split, pairs in (("test on task", UNSEEN), ("test on data", TWINS)):
        batch = with_synonyms.sample(split, 500, seed=0)
        drawn = {batch.groups[int(group)] for group in batch.group.unique()}
        assert set(pairs) <= drawn
    plain = task("anchor/synonym", total=1000, synonyms=False)
    drawn = plain.sample("train", 500, seed=0)
    assert not {drawn.groups[int(group)] for group in drawn.group.unique()} & {*UNSEEN, *TWINS}
