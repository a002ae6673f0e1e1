"""Detectors, one by one, on patterns written by hand and of hand-built models."""

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import best_source, chance_of_uniform, detectors, look, per_sequence
from tests.lens import hand_built
from tests.lens.hand_built import ANCHORS, LENGTH, PATTERN_0, PATTERN_1, PATTERNS


@pytest.fixture(scope="module")
def patterns(solvers):
    return look(solvers, hand_built.INPUTS, record=[PATTERNS])


@pytest.fixture(scope="module")
def first(patterns):
    return patterns[PATTERN_0]


@pytest.fixture(scope="module")
def second(patterns):
    return patterns[PATTERN_1]


def is_near(value, expected):
    return value.flatten().tolist() == pytest.approx(list(expected), abs=1e-3)


def causal_uniform(length=LENGTH):
    return torch.ones(length, length).tril() / torch.arange(1.0, length + 1).unsqueeze(-1)


class TestShift:
    def test_right_heads_of_right_members(self, first):
        one, two = detectors.shift(first, 1), detectors.shift(first, 2)
        assert one[0, 0] == pytest.approx(1, abs=1e-3)
        assert two[1, 0] == pytest.approx(1, abs=1e-3)
        assert two[0, 1] == pytest.approx(1, abs=1e-3)
        # the head that shifts by 1 never looks back by 2, nor the other way round but for query 1, which sees two keys
        assert two[0, 0] == pytest.approx(0, abs=1e-3)
        assert one[1, 0] == pytest.approx(1 / 2 / 8, abs=1e-3)

    def test_uniform_head_scores_the_closed_form(self, first):
        expected = sum(1 / (q + 1) for q in range(1, LENGTH)) / (LENGTH - 1)
        assert is_near(detectors.shift(first, 1)[:, 2], [expected, expected])

    def test_previous_token_is_shift_by_one_and_members_are_read_alone(self, first):
        assert torch.equal(detectors.previous_token(first), detectors.shift(first, 1))
        assert torch.equal(detectors.shift(first[1], 2), detectors.shift(first, 2)[1])

    def test_profile_names_the_offset(self, first, second):
        profile = detectors.shift_profile(first)
        assert profile.best[:, :2].tolist() == [[1, 2], [2, 3]]
        assert is_near(profile.value[:, :2], [1, 1, 1, 1])
        assert profile.offsets.tolist() == [0, 1, 2, 3, 4]
        assert detectors.shift_profile(second).best[:, 2].tolist() == [0, 0]


class TestNeighbours:
    def test_self_attending_is_shift_by_none(self, first, second):
        assert detectors.self_attending(second)[0, 2] == pytest.approx(1, abs=1e-3)
        # the head that shifts by one: only query 0, which sees itself alone, attends to itself
        assert detectors.self_attending(first)[0, 0] == pytest.approx(1 / LENGTH, abs=1e-3)

    def test_next_token_by_hand_and_of_causal_heads_which_see_none(self, first):
        pattern = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.5, 0.5], [0.2, 0.3, 0.5]]).expand(2, 1, 3, 3)
        assert is_near(detectors.next_token(pattern), [0.75])  # queries 0 and 1 have a next token: 1 and 0.5
        assert not detectors.next_token(first).any()


class TestFixedPosition:
    PATTERN = torch.tensor([[[[1.0, 0, 0, 0], [0.4, 0.6, 0, 0], [0.1, 0.7, 0.2, 0], [0.2, 0.5, 0.2, 0.1]]]])

    @pytest.mark.parametrize(
        ("queries", "expected"),
        [("from", (0.6 + 0.7 + 0.5) / 3), ("after", (0.7 + 0.5) / 2), ("last", 0.5), ("all", (0.6 + 0.7 + 0.5) / 4)],
    )
    def test_by_hand(self, queries, expected):
        assert is_near(detectors.fixed_position(self.PATTERN, 1, queries), [expected])

    def test_profile_names_the_position(self):
        profile = detectors.fixed_position_profile(self.PATTERN)
        assert (profile.offsets.tolist(), profile.best.tolist()) == ([0, 1, 2], [1])
        assert is_near(profile.mass, [(1 + 0.4 + 0.1 + 0.2) / 4, 0.6, 0.2])
        whole = detectors.fixed_position_profile(self.PATTERN, largest=3, queries="all")
        assert is_near(whole.mass, [1.7 / 4, 1.8 / 4, 0.4 / 4, 0.1 / 4])


class TestBroadcast:
    def test_profile_finds_from_where_and_agrees_with_the_detector_at_each_offset(self, second):
        profile = detectors.broadcast_profile(second, ANCHORS)
        assert profile.best[:, 0].tolist() == [1, 2]
        assert profile.best[:, 1].tolist() == [0, 0]
        assert is_near(profile.value[:, :2], [1, 1, 1, 1])
        near = detectors.broadcast_profile(second, ANCHORS, largest=1)
        for at, offset in enumerate((-1, 0, 1)):
            assert torch.allclose(near.mass[..., at], detectors.broadcast(second, ANCHORS + offset))

    def test_profile_leaves_out_offsets_that_few_sequences_have(self):
        # three sequences of four positions; only the one with its anchor at 0 has a position 3 after it
        pattern = torch.eye(4).expand(3, 1, 4, 4)
        profile = detectors.broadcast_profile(pattern, torch.tensor([0, 2, 2]))
        assert profile.mass[0, profile.offsets.tolist().index(3)] == 0

    def test_against_enumeration(self):
        generator = torch.Generator().manual_seed(0)
        pattern = torch.softmax(torch.randn(2, 5, 3, 6, 6, generator=generator), dim=-1)
        sources = torch.tensor([0, 3, 5, 5, 1])
        asks = {"from": lambda s: range(s, 6), "after": lambda s: range(s + 1, 6), "last": lambda s: [5]}
        for queries, ask in (asks | {"all": lambda s: range(6)}).items():
            for member in range(2):
                for head in range(3):
                    means = []
                    for b, s in enumerate(sources.tolist()):
                        asked = ask(s)
                        if asked:
                            means.append(sum(float(pattern[member, b, head, q, s]) for q in asked) / len(asked))
                    value = detectors.broadcast(pattern, sources, queries)
                    assert value[member, head] == pytest.approx(sum(means) / len(means), abs=1e-6)


class TestAnchorAttending:
    def test_one_anchor_is_a_broadcast_from_it_and_several_add_up(self, first):
        for queries in ("from", "after", "last", "all"):
            expected = detectors.broadcast(first, ANCHORS, queries)
            assert torch.allclose(detectors.anchor_attending(first, ANCHORS, queries), expected, atol=1e-6)
        pattern = causal_uniform(4).expand(2, 1, 4, 4)
        # anchors at 1 and 2, queries 1..3: 1/2, 2/3, 2/4; anchor at 2 alone, queries 2, 3: 1/3, 1/4
        expected = ((1 / 2 + 2 / 3 + 2 / 4) / 3 + (1 / 3 + 1 / 4) / 2) / 2
        value = detectors.anchor_attending(pattern, torch.tensor([[1, 2], [2, -1]]))
        assert is_near(value, [expected])


class TestUniform:
    def test_right_head(self, first):
        value = detectors.uniform(first)
        assert is_near(value[:, 2], [1, 1])
        # a head that attends to single positions keeps 1 / (q + 1) of query q, for shift 2 query 1 is uniform still
        harmonic = [1 / (q + 1) for q in range(1, LENGTH)]
        assert value[0, 0] == pytest.approx(sum(harmonic) / 8, abs=1e-3)
        assert value[1, 0] == pytest.approx((1 + sum(harmonic[1:])) / 8, abs=1e-3)

    def test_without_mask(self):
        pattern = torch.full((2, 1, 4, 4), 0.25)
        assert is_near(detectors.uniform(pattern, causal=False), [1])
        assert is_near(detectors.uniform(torch.eye(4).expand(2, 1, 4, 4), causal=False), [0.25])


RECURRING = torch.tensor([[0, 5, 7, 9, 5, 7, 2, 5, 4], [0, 8, 8, 3, 1, 3, 1, 6, 8]])


@pytest.mark.parametrize(("detector", "further"), [(detectors.induction, 1), (detectors.matching, 0)])
def test_attention_to_earlier_copies_and_what_follows_them_against_enumeration(detector, further):
    generator = torch.Generator().manual_seed(0)
    pattern = torch.softmax(torch.randn(2, 2, 9, 9, generator=generator), dim=-1)
    values = []
    for b, row in enumerate(RECURRING.tolist()):
        for q, token in enumerate(row):
            keys = [j + further for j in range(q) if row[j] == token]
            if keys:
                values.append(sum(pattern[b, :, q, k] for k in keys))
    assert torch.allclose(detector(pattern, RECURRING), torch.stack(values).mean(0), atol=1e-6)


# Broadcasting from the best source, on patterns written by hand.
SHORT = 6


def attending(**shares: list[float]) -> torch.Tensor:
    """A pattern whose queries give these shares to the keys 0, 1, and so on, and the rest to themselves."""
    pattern = torch.zeros(SHORT, SHORT)
    for query in range(SHORT):
        for key, share in enumerate(shares["keys"]):
            if key < query:
                pattern[query, key] = share
        pattern[query, query] = 1 - pattern[query].sum()
    return pattern[None, None]


def test_best_source_of_later_queries_besides_the_first_token():
    value, source = best_source(attending(keys=[0.0, 0.1, 0.6]), besides_first=False)
    assert value.item() == pytest.approx(0.6) and source.item() == 2
    # Queries after 1 give 0.8 to the first token and 0.15 of the remaining 0.2 to position 1.
    pattern = attending(keys=[0.8, 0.15])
    value, source = best_source(pattern, besides_first=True)
    assert value.item() == pytest.approx(0.75) and source.item() == 1
    value, source = best_source(pattern, besides_first=False)
    assert value.item() == pytest.approx(0.8) and source.item() == 0


def test_sources_lie_in_the_first_half_and_the_first_token_alone_is_none():
    """The last query alone attends to position 4, which would be a perfect broadcast to one query."""
    pattern = torch.eye(SHORT)
    pattern[5] = torch.eye(SHORT)[4]
    for alone in (pattern[None, None], attending(keys=[1.0])):
        assert best_source(alone, besides_first=True)[0].item() == 0


def test_leading_axes_are_kept():
    pattern = torch.cat([attending(keys=[0.0, 0.5]), attending(keys=[0.0, 0.0, 0.7])])
    values, sources = best_source(torch.stack([pattern, pattern.flip(0)]), besides_first=True)
    assert values.flatten().tolist() == pytest.approx([0.5, 0.7, 0.7, 0.5])
    assert sources.flatten().tolist() == [1, 2, 2, 1]


SINGLE, ALL_NEW = torch.ones(1, 1, 1, 1), torch.arange(9).unsqueeze(0)
REFUSED = [
    (lambda _: detectors.shift(causal_uniform()[None, None], LENGTH),
     r"k: 9 is not a shift within 9 positions; give one of 0\.\.8"),
    (lambda _: detectors.shift(torch.ones(2, 1, 1, LENGTH) / LENGTH, 1), "1 queries for 9 keys"),
    (lambda _: detectors.next_token(SINGLE), "a single position has no next one"),
    (lambda _: detectors.first_token(SINGLE), "a single position"),
    (lambda _: chance_of_uniform(1), "a single position leaves a causal head no choice"),
    (lambda _: detectors.fixed_position(TestFixedPosition.PATTERN, 4),
     r"position: 4 is outside 4 positions; give one of 0\.\.3"),
    (lambda _: detectors.fixed_position_profile(TestFixedPosition.PATTERN, 4),
     r"largest: 4 is outside 4 positions; give one of 0\.\.3"),
    (lambda second: detectors.broadcast(second, ANCHORS + 6), r"sources: a position lies outside 0\.\.8"),
    (lambda second: detectors.broadcast(second, torch.full_like(ANCHORS, 8), "after"), "all are the last position 8"),
    (lambda _: detectors.anchor_attending(causal_uniform(4).expand(2, 1, 4, 4), torch.tensor([[1, 2], [-1, -1]])),
     "a sequence has none"),
    (lambda _: detectors.induction(causal_uniform().expand(1, 1, 9, 9), ALL_NEW), "no token occurs twice"),
    (lambda _: detectors.matching(causal_uniform().expand(1, 1, 9, 9), ALL_NEW), "no token occurs twice"),
    *((lambda _, far=far: per_sequence.shift_profile(torch.eye(4).expand(1, 2, 1, 4, 4), largest=far),
       "largest|k: 4 is not a shift")
      for far in (-1, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "message"), REFUSED)
def test_patterns_and_places_that_do_not_fit_are_named(second, ask, message):
    with pytest.raises(SpecError, match=message):
        ask(second)
