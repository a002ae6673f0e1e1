"""Noise on a chain: counted on drawn sequences, against the chain's own definition."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks import AnchorFunction, MarkovNoise, Vocabulary, task

ITEMS = (20, 100)


def drawn(noise: MarkovNoise, rows: int = 20_000, length: int = 5) -> np.ndarray:
    return noise.draw(generator(0), rows, length, ITEMS)


def followers(tokens: np.ndarray) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for before, after in zip(tokens[:, :-1].ravel().tolist(), tokens[:, 1:].ravel().tolist(), strict=True):
        found.setdefault(before, set()).add(after)
    return found


@pytest.mark.parametrize("successors", [1, 3, 81])
def test_every_item_has_so_many_successors_and_predecessors(successors):
    after = followers(drawn(MarkovNoise(successors=successors)))
    assert set(after) == set(range(20, 101))
    assert {len(one) for one in after.values()} == {successors}
    before = [token for one in after.values() for token in one]
    assert {before.count(token) for token in range(20, 101)} == {successors}


def test_items_are_equally_frequent_at_every_position_and_successors_equally_likely():
    rows = 81_000
    tokens = drawn(MarkovNoise(successors=2), rows)
    for position in range(5):
        counts = np.unique(tokens[:, position], return_counts=True)[1]
        assert len(counts) == 81 and abs(counts - rows / 81).max() < 5 * math.sqrt(rows / 81)
    first = tokens[:, 0] == 20
    counts = np.unique(tokens[first, 1], return_counts=True)[1]
    assert len(counts) == 2 and abs(counts[0] - first.sum() / 2) < 5 * math.sqrt(first.sum() / 4)


def test_a_chain_is_fixed_and_another_differs():
    one = followers(drawn(MarkovNoise(successors=2)))
    again = followers(MarkovNoise(successors=2).draw(generator(9), 20_000, 5, ITEMS))
    assert one == again != followers(drawn(MarkovNoise(successors=2, chain=1)))


def test_sequences_of_a_task_keep_their_keys_and_answers():
    """With one successor noise is certain. It goes on beneath anchor and key by two steps, and not from the key."""
    of = task("anchor/identity", successors=1)
    batch = of.sample("train", 3000, seed=0)
    key_at, keys = batch.latents["key_positions"][:, 0], batch.latents["keys"][:, 0]
    answer = of.oracle(batch.inputs)
    assert torch.equal(answer.answers, batch.answers) and bool(answer.known.all())
    assert bool((of.split_of(batch.inputs) == 0).all())
    assert torch.equal(batch.inputs.gather(1, key_at[:, None])[:, 0], keys)
    after = {token: next(iter(one)) for token, one in followers(drawn(MarkovNoise(successors=1))).items()}
    follows = 0
    for row, place in zip(batch.inputs.tolist(), key_at.tolist(), strict=True):
        noise = [(at, token) for at, token in enumerate(row) if at not in (place - 1, place)]
        for (at, token), (following_at, following) in pairwise(noise):
            for _ in range(following_at - at):
                token = after[token]
            assert token == following
        follows += place < 8 and row[place + 1] == after[row[place]]
    assert follows < 3000 * 4 / 81  # after the key, noise goes on from the noise before: by chance one in 81


def test_it_is_written_only_where_it_is_chosen():
    """Runs with independent noise keep their addresses."""
    assert "noise" not in AnchorFunction().model_dump(mode="json")
    chosen = AnchorFunction(noise=MarkovNoise(successors=2))
    assert chosen.model_dump(mode="json")["noise"] == {"successors": 2, "chain": 0}
    assert AnchorFunction.parse(chosen.model_dump(mode="json")) == chosen != AnchorFunction()


def test_more_successors_than_items_are_refused():
    with pytest.raises(SpecError, match=r"noise.successors: 82 are more than the 81 items"):
        AnchorFunction(noise=MarkovNoise(successors=82))
    AnchorFunction(vocabulary=Vocabulary(items=(20, 101)), noise=MarkovNoise(successors=82))
