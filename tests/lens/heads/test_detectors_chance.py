"""What detectors say of random and ideal heads: chance levels, intervals, false alarms."""

import importlib.util
import statistics
import sys
from pathlib import Path

import pytest
import torch

from anchorlab import lens
from anchorlab.lens import HeadScores, chance_of_uniform, describe, detect, detectors, per_sequence, uniform_attention
from anchorlab.lens.heads.scores import student
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
    "next_token": 1 / 4, "uniform": 1 - (3 / 4) ** 4, "induction": (1 / 4 + 2 / 4) / 2, "matching": (1 / 4 + 2 / 4) / 2,
}  # fmt: skip


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


def test_uniform_attention_and_its_chance_by_hand():
    assert torch.allclose(uniform_attention(3), torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]]))
    assert torch.allclose(uniform_attention(2, causal=False), torch.full((2, 2), 1 / 2))
    pattern = uniform_attention(4).expand(2, 1, 4, 4)
    assert float(detectors.broadcast(pattern, SOURCES)) == pytest.approx(CAUSAL["broadcast"])
    # two keys: x and 1 - x with x uniform over [0, 1]; |x - 1/2| is 1/4 on average
    assert chance_of_uniform(2) == pytest.approx(3 / 4)
    assert chance_of_uniform(2, causal=False) == pytest.approx(3 / 4)


def test_heads_fire_above_the_threshold_which_is_halfway():
    assert [lens.threshold(chance) for chance in (0.0, 0.5, 1.0)] == [0.5, 0.75, 1.0]
    # attention a to the previous token, the rest to all alike: a (1 - 13/36) above chance, halfway for a = 1/2
    previous = torch.zeros(4, 4)
    previous[range(4), [0, 0, 1, 2]] = 1
    for a, fires in ((0.49, False), (0.51, True)):
        pattern = a * previous + (1 - a) * uniform_attention(4)
        found = chances(pattern.expand(2, 1, 4, 4), TOKENS, ANCHORS, SOURCES)
        assert found["previous_token"]["fires"] is fires


REPEATS = 4000  # the share of intervals that hold the truth is known within 0.004


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


class TestScores:
    VALUES = (0.1, 0.4, 0.7, 0.6)

    def test_mean_and_standard_error_by_hand_with_weights(self):
        scores = HeadScores(torch.tensor(self.VALUES).unsqueeze(-1), torch.ones(4))
        assert float(scores.mean) == pytest.approx(0.45)
        assert float(scores.standard_error) == pytest.approx(statistics.stdev(self.VALUES) / 2)
        low, high = scores.interval
        assert float(high - low) == pytest.approx(2 * 3.18245 * statistics.stdev(self.VALUES) / 2, rel=2e-3)
        assert float(high + low) / 2 == pytest.approx(0.45)
        values = torch.tensor([0.1, 0.9, 0.4, 0.7, 0.6]).unsqueeze(-1)
        scores = HeadScores(values, torch.tensor([1.0, 0, 1, 1, 1]))
        assert float(scores.mean) == pytest.approx(0.45)
        assert float(scores.standard_error) == pytest.approx(statistics.stdev(self.VALUES) / 2)
        # shares 1/4 and 3/4, mean 0.8; 2/1 * (1/16 * 0.36 + 9/16 * 0.04) = 0.09
        scores = HeadScores(torch.tensor([[0.2], [1.0]]), torch.tensor([1.0, 3.0]))
        assert float(scores.mean) == pytest.approx(0.8)
        assert float(scores.standard_error) == pytest.approx(0.3)

    def test_one_sequence_or_none_leaves_the_interval_open(self):
        scores = HeadScores(torch.tensor([[0.3]]), torch.ones(1))
        assert float(scores.standard_error) == float("inf")
        assert [end.tolist() for end in scores.interval] == [[0], [1]]
        scores = HeadScores(torch.tensor([[0.3], [0.4]]), torch.zeros(2))
        assert scores.mean.tolist() == [0]
        assert [end.tolist() for end in scores.interval] == [[0], [1]]

    def test_student_against_its_table(self):
        degrees = torch.tensor([1, 2, 5, 10, 30, 100])
        table = torch.tensor([12.7062, 4.3027, 2.5706, 2.2281, 2.0423, 1.9840])
        assert torch.allclose(student(degrees), table, rtol=8e-3)
        assert torch.allclose(student(degrees[2:]), table[2:], rtol=2e-4)


def holds(interval, truth):
    low, high = interval
    return float(((low <= truth) & (truth <= high)).double().mean())


class TestCoverage:
    """Each head is one repetition: 95 % of the heads' intervals must hold the score expected by construction."""

    @pytest.mark.parametrize("sequences", [5, 30, 100])
    def test_shift_of_known_mean(self, sequences):
        # every query after the first gives the previous key a share that is 0.2, 0.4 or 0.9, a third of the time each
        share = torch.tensor([0.2, 0.4, 0.9])[torch.randint(3, (sequences, REPEATS, 3), generator=generator())]
        pattern = torch.zeros(sequences, REPEATS, 4, 4)
        pattern[..., 0, 0] = 1
        for query in (1, 2, 3):
            pattern[..., query, query - 1] = share[..., query - 1]
            pattern[..., query, query] = 1 - share[..., query - 1]
        assert holds(per_sequence.shift(pattern, 1).interval, 0.5) == pytest.approx(0.95, abs=0.015)
        profile = per_sequence.shift_profile(pattern, largest=1)
        low, _ = profile.scores.interval
        # shift by none: query 0 always, the others 0.5 on average
        assert holds((low[0], profile.scores.interval[1][0]), (1 + 3 * 0.5) / 4) == pytest.approx(0.95, abs=0.015)

    def test_weights_that_go_with_the_values(self):
        # weight 1 with value 0.2, weight 3 with value 0.8, both +- 0.2: 0.65 on average of all that is weighed
        many = torch.randint(2, (REPEATS, 80), generator=generator(3)).double()
        values = 0.2 + 0.6 * many + 0.2 * (2 * torch.rand(REPEATS, 80, generator=generator(4)) - 1)
        scores = HeadScores(values.unsqueeze(-1), 1 + 2 * many)
        assert holds(scores.interval, (1 * 0.2 + 3 * 0.8) / 4) == pytest.approx(0.95, abs=0.015)


def test_profile_gives_the_interval_of_its_best_offset():
    pattern = torch.softmax(2 * torch.randn(3, 20, 4, 6, 6, generator=generator()), dim=-1)
    anchors = torch.randint(6, (20,), generator=generator())
    profile = per_sequence.broadcast_profile(pattern, anchors)
    low, high = profile.interval
    for member in range(3):
        for head in range(4):
            at = profile.offsets.tolist().index(int(profile.best[member, head]))
            sources = anchors + int(profile.best[member, head])
            inside = (sources >= 0) & (sources < 6)
            alone = per_sequence.broadcast(pattern[:, inside], sources[inside])
            assert profile.mass[member, head, at] == profile.value[member, head]
            assert float(low[member, head]) == pytest.approx(float(alone.interval[0][member, head]), abs=1e-6)
            assert float(high[member, head]) == pytest.approx(float(alone.interval[1][member, head]), abs=1e-6)


# Ideal heads with noise against random ones; the heads are built by hand in `benchmarks/detectors.py`.
SCRIPT = Path(__file__).parents[3] / "benchmarks" / "detectors.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("benchmark_of_detectors", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def told(script):
    return {one.detector: one for one in script.tell(sequences=100, heads=25)}


ALL = ["shift", "previous_token", "self_attending", "next_token", "uniform", "fixed_position", "induction", "matching"]
ALL += ["first_token", "anchor_attending", "broadcast_profile", "broadcast"]


def test_every_detector_is_tried_and_the_area_is_right_by_hand(told, script):
    assert sorted(told) == sorted(ALL)
    one = script.Told("any", 1, torch.tensor([[0.9, 0.4]]), torch.tensor([[0.4, 0.1]]), 1.0, None)
    assert one.area() == one.area(0) == (1 + 1 + 0.5 + 1) / 4


@pytest.mark.parametrize("detector", ALL)
def test_area_under_the_roc_curve(script, told, detector):
    one = told[detector]
    assert one.ideal.shape == one.random.shape == (len(script.SPREADS), 25)
    assert all(one.area(spread) >= 0.99 for spread in range(len(script.SPREADS)))
    # at half noise of single keys, uniform attention is as far from uniform as softly random attention is
    assert one.area() >= (0.98 if detector == "uniform" else 0.99)


@pytest.mark.parametrize("detector", ["shift", "fixed_position", "broadcast_profile"])
def test_the_offset_is_found_under_noise(told, detector):
    assert told[detector].right_offset == 1


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [9, 14, 20])
def test_random_heads_hardly_ever_set_one_off(script, length, causal):
    assert script.false_alarms(length, sequences=100, heads=25, causal=causal) <= 0.01


@pytest.mark.parametrize("causal", [True, False])
def test_ideal_heads_are_called_by_their_names(script, causal):
    inputs = script.draw_inputs(100, script.LENGTH, torch.Generator().manual_seed(0))
    ideal = script.ideal_heads(inputs, causal)
    labels = describe(script.table(torch.stack(list(ideal.values()), dim=1), inputs))["label"].to_list()
    expected = {
        "shift": "shift 2", "previous_token": "shift 1", "self_attending": "self", "uniform": "uniform",
        "induction": "induction", "matching": "matching", "first_token": "first token", "fixed_position": "position 3",
        "anchor_attending": "broadcast from anchor", "broadcast_profile": "broadcast from anchor+1",
        "broadcast": "broadcast from source", "next_token": "next",
    }  # fmt: skip
    assert dict(zip(ideal, labels, strict=True)) == {name: expected[name] for name in ideal}
