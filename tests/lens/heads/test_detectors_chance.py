import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import chance_of_uniform, detect, detectors, threshold, uniform_attention
from tests.lens.hand_built import pattern_record

HARMONIC = (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4  # a causal uniform head of four positions attends to the first, or to itself
TOKENS = torch.tensor([[7, 8, 7, 7], [1, 2, 3, 4]])
ANCHORS, SOURCES = torch.tensor([0, 2]), torch.tensor([1, 3])

CAUSAL = {
    "shift": HARMONIC,  # shift by none is the most likely: by one 13/36, by two 7/24
    "previous_token": (1 / 2 + 1 / 3 + 1 / 4) / 3,
    "self_attending": HARMONIC,
    "uniform": 1 - ((1 / 2) ** 2 + (2 / 3) ** 3 + (3 / 4) ** 4) / 3,
    "first_token": (1 / 2 + 1 / 3 + 1 / 4) / 3,
    "fixed_position": HARMONIC,  # position 0
    "induction": (1 / 3 + 2 / 4) / 2,  # query 2 has one earlier place, query 3 has two
    "matching": (1 / 3 + 2 / 4) / 2,
    "anchor_attending": (HARMONIC + (1 / 3 + 1 / 4) / 2) / 2,
    "broadcast_profile": HARMONIC,  # two before the anchor: position 0 of the second sequence
    "broadcast": ((1 / 2 + 1 / 3 + 1 / 4) / 3 + 1 / 4) / 2,
}
FREE = dict.fromkeys(CAUSAL, 1 / 4) | {
    "next_token": 1 / 4,
    "uniform": 1 - (3 / 4) ** 4,
    "induction": (1 / 4 + 2 / 4) / 2,
    "matching": (1 / 4 + 2 / 4) / 2,
}


def flat_rows(sequences, length, causal, seed=0):
    """Rows for which all ways to spread attention are equally likely: exponential draws over their sum."""
    draws = -torch.rand(sequences, 1, length, length, generator=torch.Generator().manual_seed(seed)).log()
    draws = draws.tril() if causal else draws
    return draws / draws.sum(dim=-1, keepdim=True)


def chances(pattern, tokens, anchors, sources):
    found = detect(pattern_record(pattern.unsqueeze(0), tokens), anchors=anchors, keys=sources)
    return {row["detector"]: row for row in found.iter_rows(named=True)}


@pytest.mark.parametrize(("causal", "expected"), [(True, CAUSAL), (False, FREE)])
def test_chance_by_hand(causal, expected):
    found = chances(flat_rows(2, 4, causal), TOKENS, ANCHORS, SOURCES)
    assert {name: row["chance"] for name, row in found.items()} == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("causal", [True, False])
def test_chance_is_the_mean_score_of_random_rows(causal):
    sequences = 20_000
    sample = torch.arange(sequences) % 2
    found = chances(flat_rows(sequences, 4, causal), TOKENS[sample], ANCHORS[sample], SOURCES[sample])
    for row in found.values():
        assert row["value"] == pytest.approx(row["chance"], abs=0.01)


def test_uniform_attention_by_hand():
    assert torch.allclose(uniform_attention(3), torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]]))
    assert torch.allclose(uniform_attention(2, causal=False), torch.full((2, 2), 1 / 2))
    pattern = uniform_attention(4).expand(2, 1, 4, 4)
    assert float(detectors.broadcast(pattern, SOURCES)) == pytest.approx(CAUSAL["broadcast"])


def test_chance_of_uniform():
    # two keys: x and 1 - x with x uniform over [0, 1]; |x - 1/2| is 1/4 on average
    assert chance_of_uniform(2) == pytest.approx(3 / 4)
    assert chance_of_uniform(2, causal=False) == pytest.approx(3 / 4)
    with pytest.raises(SpecError, match="a single position leaves a causal head no choice"):
        chance_of_uniform(1)


def test_threshold_is_halfway():
    assert [threshold(chance) for chance in (0.0, 0.5, 1.0)] == [0.5, 0.75, 1.0]


def test_fires_above_the_threshold():
    # attention a to the previous token, the rest to all alike: a (1 - 13/36) above chance, halfway for a = 1/2
    previous = torch.zeros(4, 4)
    previous[range(4), [0, 0, 1, 2]] = 1
    for a, fires in ((0.49, False), (0.51, True)):
        pattern = a * previous + (1 - a) * uniform_attention(4)
        found = chances(pattern.expand(2, 1, 4, 4), TOKENS, ANCHORS, SOURCES)
        assert found["previous_token"]["fires"] is fires
