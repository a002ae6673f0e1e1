"""Sequences padded on the right score what each scores by itself, at its own length."""

from functools import partial

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import chance_of_uniform, detect, detectors, per_sequence
from anchorlab.tasks import Batch
from tests.lens.hand_built import pattern_record

LENGTHS = torch.tensor([9, 5, 9, 2, 7, 6])
TOKENS = torch.randint(4, (6, 9), generator=torch.Generator().manual_seed(0))
ANCHORS = torch.tensor([3, 1, 0, 1, 6, 2])
SEVERAL = torch.tensor([[3, 8], [1, -1], [0, 2], [1, 0], [6, -1], [2, 4]])


def padded(causal=True, seed=0):
    """Patterns `[member batch head query key]` whose rows sum to 1 within the length, with anything in the padding."""
    generator = torch.Generator().manual_seed(seed)
    pattern = 7 * torch.randn(2, 6, 3, 9, 9, generator=generator, dtype=torch.float64)
    for b, length in enumerate(LENGTHS.tolist()):
        rows = torch.rand(2, 3, length, length, generator=generator, dtype=torch.float64).square()
        rows = rows.tril() if causal else rows
        pattern[:, b, :, :length, :length] = rows / rows.sum(dim=-1, keepdim=True)
    pattern[:, 1, 0, 5:] = torch.nan  # as a query without any key has
    return pattern


def recurrence(pattern, of, wanted, **given):
    return per_sequence.recurrence(pattern, TOKENS[of, : pattern.shape[-1]], wanted, **given)


CASES = {
    "shift 0": lambda pattern, of, **given: per_sequence.shift(pattern, 0, **given),
    "shift 4": lambda pattern, of, **given: per_sequence.shift(pattern, 4, **given),
    "next": lambda pattern, of, **given: per_sequence.next_token(pattern, **given),
    "first": lambda pattern, of, **given: per_sequence.first_token(pattern, **given),
    "uniform": lambda pattern, of, **given: per_sequence.uniform(pattern, **given),
    "uniform without a mask": lambda pattern, of, **given: per_sequence.uniform(pattern, causal=False, **given),
    "induction": lambda pattern, of, **given: recurrence(pattern, of, "followers", **given),
    "matching": lambda pattern, of, **given: recurrence(pattern, of, "copies", **given),
}
BY_QUERIES = {
    "broadcast": lambda pattern, of, **given: per_sequence.broadcast(pattern, ANCHORS[of], **given),
    "anchors": lambda pattern, of, **given: per_sequence.anchor_attending(pattern, SEVERAL[of], **given),
    "position": lambda pattern, of, **given: per_sequence.fixed_position(pattern, 3, **given),
}
for queries in ("from", "after", "last", "all"):
    CASES |= {f"{name} {queries}": partial(measure, queries=queries) for name, measure in BY_QUERIES.items()}


def by_itself(measure, pattern, b):
    """The score `[member head]` and the weight of sequence b at its own length; weight 0 where it is too short."""
    length = int(LENGTHS[b])
    of = slice(b, b + 1)
    try:
        scores = measure(pattern[:, of, :, :length, :length], of)
    except SpecError:
        return torch.zeros(2, 3, dtype=torch.float64), 0.0
    return scores.values[:, 0], float(scores.weights)


@pytest.mark.parametrize("name", CASES)
def test_each_sequence_scores_what_it_scores_by_itself(name):
    measure, pattern = CASES[name], padded(causal="without" not in name)
    scores = measure(pattern, slice(None), lengths=LENGTHS)
    alone = [by_itself(measure, pattern, b) for b in range(6)]
    weights = torch.tensor([weight for _, weight in alone], dtype=torch.float64)
    assert torch.allclose(scores.weights, weights)
    counted = weights > 0
    assert counted.any()
    values = torch.stack([value for value, _ in alone], dim=1)
    assert torch.allclose(scores.values[:, counted], values[:, counted], atol=1e-12)
    mean = (values * weights.reshape(1, -1, 1)).sum(dim=1) / weights.sum()
    assert torch.allclose(scores.mean, mean, atol=1e-12)


PROFILES = {
    "shift": lambda pattern, of, **given: per_sequence.shift_profile(pattern, **given),
    "position": lambda pattern, of, **given: per_sequence.fixed_position_profile(pattern, **given),
    "broadcast": lambda pattern, of, **given: per_sequence.broadcast_profile(pattern, ANCHORS[of], **given),
}


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_average_over_the_sequences_that_hold_the_offset(name):
    measure, pattern = PROFILES[name], padded()
    profile = measure(pattern, slice(None), lengths=LENGTHS)
    seen = {offset: [] for offset in profile.offsets.tolist()}
    for b, length in enumerate(LENGTHS.tolist()):
        alone = measure(pattern[:, b : b + 1, :, :length, :length], slice(b, b + 1))
        for place, offset in enumerate(alone.offsets.tolist()):
            if alone.scores.weights[place] > 0:
                seen[offset].append(alone.scores.values[:, place, 0])
    for place, offset in enumerate(profile.offsets.tolist()):
        common = len(seen[offset]) >= 3  # half of the sequences
        expected = torch.stack(seen[offset]).mean(dim=0) if common else torch.zeros(2, 3, dtype=torch.float64)
        assert torch.allclose(profile.mass[..., place], expected, atol=1e-12)
    assert any(len(values) in (1, 2) for values in seen.values())  # the rule of the half is met


def chances(length, anchor, causal):
    """What a head that attends at random scores on one sequence: the means of 1 / (number of keys)."""
    each = [1 / (query + 1) if causal else 1 / length for query in range(length)]
    found = {
        "previous_token": each[1:], "self_attending": each, "first_token": each[1:], "anchor_attending": each[anchor:],
    }  # fmt: skip
    means = {name: sum(values) / len(values) for name, values in found.items()} | {"next_token": 1 / length}
    return means | {"uniform": chance_of_uniform(length, causal)}


@pytest.mark.parametrize("causal", [True, False])
def test_detect_on_a_padded_batch(causal):
    """The values against the means of every sequence's own table, the chance levels against closed forms."""
    pattern = padded(causal).nan_to_num()
    pattern = pattern.tril() if causal else pattern
    found = detect(pattern_record(pattern, TOKENS), anchors=ANCHORS, lengths=LENGTHS)
    rows = {(row["member"], row["head"], row["detector"]): row for row in found.iter_rows(named=True)}
    levels = [chances(*given, causal) for given in zip(LENGTHS.tolist(), ANCHORS.tolist(), strict=True)]
    values = {}
    for b, length in enumerate(LENGTHS.tolist()):
        own = pattern_record(pattern[:, b : b + 1, :, :length, :length], TOKENS[[b], :length])
        for row in detect(own, anchors=ANCHORS[[b]]).iter_rows(named=True):
            values.setdefault((row["member"], row["head"], row["detector"]), []).append(row["value"])
    for key in rows.keys() & values.keys():
        if key[-1] in levels[0]:
            assert rows[key]["value"] == pytest.approx(sum(values[key]) / 6, abs=1e-9)
            assert rows[key]["chance"] == pytest.approx(sum(level[key[-1]] for level in levels) / 6, abs=1e-6)
    assert len(rows) == 2 * 3 * (10 if causal else 11)


@pytest.mark.untyped
def test_lengths_that_do_not_fit_are_named():
    pattern = padded()
    with pytest.raises(SpecError, match=r"lengths: have shape \(5,\); the pattern has 6 sequences"):
        per_sequence.shift(pattern, 1, LENGTHS[:5])
    for wrong in (0, 10):
        with pytest.raises(SpecError, match=r"lengths: one lies outside 1\.\.9"):
            per_sequence.shift(pattern, 1, LENGTHS.index_fill(0, torch.tensor([2]), wrong))
    with pytest.raises(SpecError, match=r"sources: a position lies outside 0\.\.its length - 1"):
        detectors.broadcast(pattern, torch.tensor([3, 5, 0, 1, 6, 2]), lengths=LENGTHS)
    record = pattern_record(pattern, TOKENS)
    with pytest.raises(SpecError, match="lengths: has 7 sequences, and the record 6; give one for each"):
        detect(record, lengths=torch.cat([LENGTHS, LENGTHS[:1]]))
    batch = Batch(torch.cat([TOKENS, TOKENS]), TOKENS[:, :1], TOKENS[:, :1], torch.tensor([8]), "test")
    with pytest.raises(SpecError, match="batch: has 12 sequences, and the record 6"):
        detect(record, batch)
