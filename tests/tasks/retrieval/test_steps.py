"""Chains of pairs in random order, with splits by the difference within a pair."""

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.tasks import task

SMALL = task("retrieval/steps", chains=2, symbols=30)  # remainders 0, 1, 4 modulo 5 in training


def test_follows_hand_made_chains():
    """Chains 2 6 11 and 20 21 15: 6 - 2 = 4, 11 - 6 = 0, 21 - 20 = 1, 15 - 21 = 4 modulo 5; then 7 10 12 and 0 3 5."""
    inputs = torch.tensor(
        [[6, 11, 20, 21, 2, 6, 21, 15, 2], [6, 11, 20, 21, 2, 6, 21, 15, 20], [3, 5, 7, 10, 10, 12, 0, 3, 7]]
    )
    found = SMALL.oracle(inputs)
    assert found.answers[:, 0].tolist() == [11, 15, 12] and found.known.all()
    assert SMALL.split_of(inputs).tolist() == [0, 0, 1]
    assert [(step.position[0].item(), step.value[0].item()) for step in found.trace] == [(5, 6), (1, 11)]


@pytest.mark.parametrize(
    ("inputs", "known"),
    [
        ([6, 11, 20, 21, 2, 6, 21, 15, 6], False),  # the last token begins no chain
        ([6, 11, 20, 21, 2, 6, 25, 15, 2], False),  # three chains, two of one step
        ([2, 6, 6, 11, 11, 15, 20, 21, 2], False),  # a chain of three steps and one of one step
        ([2, 6, 6, 11, 20, 25, 25, 20, 2], False),  # a circle
        ([2, 6, 6, 11, 20, 6, 21, 15, 2], False),  # two pairs end with 6
        ([2, 6, 6, 11, 20, 21, 21, 30, 2], False),  # a token out of range
        ([2, 6, 6, 11, 20, 21, 21, 23, 2], True),  # well-formed, with a pair of the test, as 23 - 21 = 2
    ],
)
def test_other_sequences_belong_to_no_split(inputs, known):
    tokens = torch.tensor([inputs])
    assert SMALL.oracle(tokens).known.tolist() == [[known]]
    assert SMALL.split_of(tokens).tolist() == [-1]


@pytest.mark.parametrize(("split", "remainders"), [("train", {0, 1, 4}), ("test", {2, 3})])
def test_every_pair_of_a_split_has_its_remainders(split, remainders):
    batch = SMALL.sample(split, 2000, seed=0)
    pairs = batch.inputs[:, :-1].reshape(len(batch), -1, 2)
    assert set(((pairs[:, :, 1] - pairs[:, :, 0]) % 5).flatten().tolist()) == remainders
    assert batch.inputs.unique().tolist() == list(range(30))
    symbols = batch.latents["symbols"]
    assert all(len(set(row)) == 6 for row in symbols.flatten(1).tolist())
    row, asked = torch.arange(len(batch)), batch.latents["queries"][:, 0]
    assert (batch.inputs[:, -1] == symbols[row, 0, asked]).all() and (
        batch.answers[:, 0] == symbols[row, 2, asked]
    ).all()


def test_pairs_come_in_every_order():
    batch = SMALL.sample("train", 8000, seed=0)
    symbols, pairs = batch.latents["symbols"], batch.inputs[:, :-1].reshape(len(batch), 4, 2)
    place = (pairs[:, :, 0] == symbols[:, 1, :1]).long().argmax(dim=1)  # of the second step of the first chain
    shares = place.bincount(minlength=4) / len(batch)
    torch.testing.assert_close(shares, torch.full((4,), 0.25), rtol=0, atol=0.02)  # four standard errors


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"training": (0, 5)}, "training"),
        ({"training": (1, 1)}, "training"),
        ({"training": ()}, "training"),
        ({"training": (0, 1, 2, 3, 4)}, "training"),
        ({"chains": 3, "symbols": 24}, "symbols"),  # 2 * (24 // 5) = 8 fit a pair of the test, nine symbols are needed
    ],
)
def test_impossible_values_name_their_field(values, field):
    with pytest.raises(SpecError, match=field):
        task("retrieval/steps", **values)
    task("retrieval/steps", chains=3, symbols=25)
