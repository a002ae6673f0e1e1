"""Vocabulary, operations, patterns, expressions, layouts, separations, labels: against values worked out by hand."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.tasks import (
    AnchorBased,
    Combined,
    CompositeAnchor,
    Labels,
    ModularResidue,
    Operation,
    Placement,
    Rule,
    Vocabulary,
)
from anchorlab.tasks.anchor import Latent, Layout
from anchorlab.tasks.anchor.expression import Expression, Reading
from anchorlab.tasks.anchor.pattern import Pattern
from anchorlab.tasks.anchor.separation import MovingKeys

VOCABULARY = Vocabulary()


class TestVocabulary:
    def test_items_and_anchors(self) -> None:
        vocabulary = Vocabulary()
        tokens = np.array([3, 19, 20, 100, 101])
        assert vocabulary.item_count == 81
        assert vocabulary.is_item(tokens).tolist() == [False, False, True, True, False]
        assert vocabulary.is_anchor(tokens).tolist() == [True, False, False, False, False]

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"anchors": (25,)}, "anchors: anchor 25 is among the items 20..100"),
            ({"anchors": (3, 3)}, "anchors: anchor 3 is listed twice"),
            ({"anchors": (201,)}, "anchors: anchor 201 is not a token"),
            ({"anchors": (-1,)}, "anchors: anchor -1 is not a token"),
            ({"anchors": ()}, "anchors"),
            ({"items": (100, 20)}, "items: 100..20 is not a range"),
            ({"items": (20, 201)}, "items: 20..201 is not a range"),
            ({"size": 1}, "size"),
            ({"sizes": 9}, "did you mean 'size'"),
        ],
    )
    def test_tokens_that_overlap_or_do_not_exist_are_named(self, fields: dict[str, object], message: str) -> None:
        with pytest.raises(SpecError, match=message.replace("..", r"\.\.")):
            Vocabulary.parse(fields)


class TestOperation:
    @pytest.mark.parametrize(
        ("text", "result", "canonical"),
        [
            ("x", 40, "x"),
            ("+5", 45, "+5"),
            (" x + 5 ", 45, "+5"),
            ("-2", 38, "-2"),
            ("*2", 80, "*2"),
            ("+5 then -2", 43, "+5 then -2"),
            ("*2 then +1 then x", 81, "*2 then +1"),
        ],
    )
    def test_text(self, text: str, result: int, canonical: str) -> None:
        operation = Operation.parse(text)
        assert operation(np.array([40])).tolist() == [result]
        assert str(operation) == canonical
        assert Operation.parse(canonical) == operation

    @pytest.mark.parametrize(
        "text", ["", "5", "+", "x*", "__import__('os')", "+5 then", "++5", "+9999999", "+1 then " * 20]
    )
    def test_other_text_is_refused(self, text: str) -> None:
        with pytest.raises(SpecError, match="operation"):
            Operation.parse(text)

    def test_domain_holds_every_step_inside(self) -> None:
        keys = np.array([0, 2, 7, 9, -1])
        assert Operation.parse("+1")(keys).tolist() == [1, 3, 8, 10, 0]
        assert Operation.parse("+1").defined(keys, 10).tolist() == [True, True, True, False, False]
        assert Operation.parse("-3 then +3").defined(keys, 10).tolist() == [False, False, True, True, False]
        assert not Operation.parse(" then ".join(["*65535"] * 16)).defined(np.array([3]), 65_536).any()

    def test_table(self) -> None:
        operation = Operation.parse("21 -> 40, 20->31")
        assert operation.text == "20 -> 31, 21 -> 40" and Operation.parse(operation.text) == operation
        assert operation.results(41)[[19, 20, 21, 22]].tolist() == [-1, 31, 40, -1]
        assert operation.results(40)[[20, 21]].tolist() == [31, -1]  # 40 is no token there
        for text in ("20 ->", "20 -> 31, 20 -> 32", "20 -> 70000", "20 -> 31;"):
            with pytest.raises(SpecError, match="cannot read the table"):
                Operation.parse(text)


class TestPattern:
    @pytest.mark.parametrize(
        ("text", "length", "positions"),
        [
            ("A x", 4, [[0, 1], [1, 2], [2, 3]]),
            ("A . x", 4, [[0, 2], [1, 3]]),
            ("x A B", 4, [[0, 1, 2], [1, 2, 3]]),
            ("x A ... B", 4, [[0, 1, 2], [0, 1, 3], [1, 2, 3]]),
            ("m 3 n ... m $", 5, [[0, 1, 2, 4], [1, 2, 3, 4]]),
            ("^ A x", 4, [[0, 1]]),
            ("^ . A ... x . $", 6, [[1, 4]]),
            ("A x $", 4, [[2, 3]]),
        ],
    )
    def test_positions_are_all_and_only_once(self, text: str, length: int, positions: list[list[int]]) -> None:
        assert Pattern.parse(text).positions(length).tolist() == positions

    def test_positions_by_brute_force(self) -> None:
        """x A . B ... y over 8 positions: every increasing choice of four that keeps the distances asked for."""
        expected = [
            list(one)
            for one in itertools.combinations(range(8), 4)
            if one[1] == one[0] + 1 and one[2] == one[1] + 2 and one[3] > one[2]
        ]
        assert Pattern.parse("x A . B ... y").positions(8).tolist() == expected

    def test_a_name_twice_is_one_slot(self) -> None:
        pattern = Pattern.parse("m A n ... m $")
        assert (pattern.anchors, pattern.keys, pattern.places) == (("A",), ("m", "n"), (1, 0, 2, 1))
        assert pattern.slots == ("A", "m", "n") and pattern.first == (1, 0, 2)

    @pytest.mark.parametrize("text", ["", "^ $", "A ?", "A x; y", "x^2", "$ A"])
    def test_other_text_is_refused(self, text: str) -> None:
        with pytest.raises(SpecError, match="pattern"):
            Pattern.parse(text)

    def test_too_short_or_too_many(self) -> None:
        with pytest.raises(SpecError, match=r"length: 3 is too short for `A . . x`; use at least 4"):
            Pattern.parse("A . . x").positions(3)
        with pytest.raises(SpecError, match="fits in too many ways"):
            Pattern.parse("A ... B ... C ... D").positions(300)


def test_an_answer_keeps_its_label_where_the_change_would_leave_the_vocabulary() -> None:
    labels = Labels(change=Operation.parse("+5"), probability=0.25, targets="distribution")
    found = labels.distribution(torch.tensor([[2], [6]]), size=10)
    assert found[0, 0].tolist() == pytest.approx([0, 0, 0.75, 0, 0, 0, 0, 0.25, 0, 0])
    assert found[1, 0].tolist() == pytest.approx([0, 0, 0, 0, 0, 0, 1, 0, 0, 0])


def reading(**tokens: list[int]) -> Reading:
    size = 50
    results = np.stack([Operation.parse(text).results(size) for text in ("+5", "*2")])
    index = np.zeros(size, dtype=np.int64)
    index[2] = 1  # anchor 1: +5, anchor 2: *2
    held = {slot: np.array(values) for slot, values in tokens.items()}
    exceptions = {(1, 2): Operation.parse("-1").results(size)}
    return Reading(None, held, {}, index, results, np.arange(size) >= 10, exceptions, frozenset({(1, 2)}))


class TestExpression:
    @pytest.mark.parametrize(
        ("text", "values"),
        [
            ("x", [10, 20, 30]),
            ("x + y", [21, 32, 43]),
            ("(x + y) // 2 - 1", [9, 15, 20]),
            ("y % 4 * 3", [9, 0, 3]),
            ("-x + 40", [30, 20, 10]),
            ("min(x, y) + max(x, y, 25)", [35, 37, 43]),
            ("A(x)", [15, 40, 35]),
            ("B(A(x))", [30, 45, 40]),
            ("pair(A, B, x)", [9, 45, 40]),
            ("A + 30", [31, 32, 31]),
            ("nearest(12, x, y)", [11, 12, 13]),
            ("nearest(x, {y: A, 60: B})", [1, 2, 1]),
            ("min(A(x), y)", [11, 12, 13]),
            ("nearest(12, A(x), y, 60)", [11, 12, 13]),
            ("x * 3 + -7", [23, 53, 83]),
            ("pair(A, B, x - 5) + 0", [4, 35, 35]),
        ],
    )
    def test_values(self, text: str, values: list[int]) -> None:
        found = reading(x=[10, 20, 30], y=[11, 12, 13], A=[1, 2, 1], B=[2, 1, 1])
        value, known, _ = Expression(text).evaluate(found)
        assert value.tolist() == values and known.all()

    def test_nothing_where_there_is_no_answer(self) -> None:
        found = reading(x=[10, 45, 30], y=[10, 12, 30], v=[12, 12, 30], A=[1, 2, 2], B=[1, 2, 1])
        assert Expression("A(x)").evaluate(found)[1].tolist() == [True, False, False]  # 90 and 60 are no tokens
        assert Expression("nearest(v, x, y)").evaluate(found)[1].tolist() == [False, True, False]  # equally near
        assert Expression("x // (y - 12)").evaluate(found)[1].tolist() == [True, False, True]
        assert Expression("trained(A, B, x)").evaluate(found)[1].tolist() == [False, False, False]
        assert Expression("pair(A, B, x - 20)").evaluate(reading(x=[10, 21], A=[1, 1], B=[2, 2]))[1].tolist() == [
            False,
            True,
        ]
        assert not Expression("pair(A, B, x + 30)").evaluate(reading(x=[30], A=[1], B=[2]))[1].any()

    def test_steps_are_told(self) -> None:
        steps = Expression("B(A(x)) + 0").evaluate(reading(x=[10], A=[1], B=[2]))[2]
        assert [(step.text, step.slot, step.value.tolist()) for step in steps] == [
            ("A(x)", "A", [15]),
            ("B(A(x))", "B", [30]),
        ]

    def test_first_after_reads_the_sequence(self) -> None:
        one = reading(A=[1, 1])
        sequences = np.array([[1, 5, 33, 20], [40, 41, 1, 6]])
        found = replace(one, sequences=sequences, positions={"A": np.array([0, 2])})
        value, known, _ = Expression("first_after(A)").evaluate(found)
        assert value[0] == 33 and known.tolist() == [True, False]

    @pytest.mark.parametrize(
        "text",
        ["", "x +", "__import__('os')", "x.y", "x[0]", "open(x)", "A(x, y)", "lambda: x", "x ** 9", "x if y else A",
         "nearest(x)", "nearest(x, {y: A}, y)", "first_after(3)", "pair(A, x)", "1.5", "'x'", "True", "A(*x)",
         "min(x)", "f(x=1)", "x := 3", "(" * 300 + "x" + ")" * 300, "x" * 500, "{x: y}"],
    )  # fmt: skip
    def test_other_text_is_refused(self, text: str) -> None:
        with pytest.raises(SpecError, match="answer"):
            Expression(text)


class TestRule:
    def test_text_goes_round(self) -> None:
        rule = Rule.parse("  x A  B ->  B(A(x)) ")
        assert rule.text == "x A B -> B(A(x))" and Rule.parse(rule.text) == rule

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("A x", "has no `->`"),
            ("A x -> y", "mentions 'y', which `A x` does not hold; use A, x"),
            ("A x -> B(x)", "mentions 'B'"),
            ("A x -> os.system(x)", "cannot read"),
        ],
    )
    def test_unknown_slots_and_a_missing_arrow_are_named(self, text: str, message: str) -> None:
        with pytest.raises(SpecError, match=message):
            Rule.parse(text)


def layout(*patterns: str, vocabulary: Vocabulary = VOCABULARY, **fields: object) -> Layout:
    return Layout.build([Pattern.parse(text) for text in patterns], Placement(**fields), vocabulary)


class TestLayout:
    def test_frames_are_all_and_only_once(self) -> None:
        vocabulary = Vocabulary(size=12, items=(8, 9), anchors=(1, 2))
        frames = layout("1 x", "2 . x", length=4, vocabulary=vocabulary).frames
        listed = list(
            zip(
                frames.rule.tolist(), frames.anchors[:, 0].tolist(), frames.anchor_positions[:, 0].tolist(),
                frames.key_positions[:, 0].tolist(), strict=True,
            )
        )  # fmt: skip
        assert sorted(listed) == [(0, 1, p, p + 1) for p in range(3)] + [(1, 2, p, p + 2) for p in range(2)]

    def test_distinct_and_chosen_anchors(self) -> None:
        vocabulary = Vocabulary(anchors=(1, 2, 3))
        frames = layout("A B x", length=3, choices={"A": (1, 2)}, distinct=True, vocabulary=vocabulary).frames
        assert sorted(frames.anchors.tolist()) == [[1, 2], [1, 3], [2, 1], [2, 3]]

    def test_finds_what_stands_there(self) -> None:
        sequences = np.array(
            [
                [43, 33, 13, 3, 20, 89, 44, 24, 56],  # the paper's example
                [43, 33, 13, 3, 20, 89, 44, 3, 56],  # two anchors
                [43, 33, 13, 23, 20, 89, 44, 24, 56],  # none
                [43, 33, 13, 23, 20, 89, 44, 24, 3],  # no room for the key
                [3, 33, 3, 23, 20, 89, 44, 24, 56],
                [43, 33, 13, 3, 120, 89, 44, 24, 56],  # the key is no item
            ]
        )
        found = layout("A x").find(sequences)
        assert found.keys[:, 0].tolist() == [20, -1, -1, -1, -1, -1]
        assert found.anchor_positions[:, 0].tolist() == [3, -1, -1, -1, -1, -1]
        assert found.key_positions[:, 0].tolist() == [4, -1, -1, -1, -1, -1]
        assert found.anchors[:, 0].tolist() == [3, -1, -1, -1, -1, -1]
        assert layout("A x", length=8).find(sequences).rule.tolist() == [-1] * 6

    def test_finds_two_anchors_only_side_by_side(self) -> None:
        sequences = np.array([[30, 40, 1, 2, 50], [30, 1, 40, 2, 50], [30, 40, 50, 60, 1], [1, 2, 30, 40, 50]])
        found = layout("x A B", length=5, vocabulary=Vocabulary(anchors=(1, 2))).find(sequences)
        assert found.keys[:, 0].tolist() == [40, -1, -1, -1]
        assert found.anchors.tolist() == [[1, 2], [-1, -1], [-1, -1], [-1, -1]]

    def test_copies_must_be_equal_and_clashes_are_nothing(self) -> None:
        both = layout("m 3 n ... m $", "m 3 n ... n $", length=6)
        sequences = np.array([[30, 3, 40, 50, 60, 30], [30, 3, 40, 50, 60, 40], [30, 3, 40, 50, 60, 50],
                              [30, 3, 30, 50, 60, 30]])  # fmt: skip
        assert both.find(sequences).rule.tolist() == [0, 1, -1, -1]
        assert not both.alone and layout("A x").alone

    def test_writes_what_it_finds(self) -> None:
        """Every frame of a pattern with copies, written into noise and read back."""
        one = layout("A x . B y ... A x $", vocabulary=Vocabulary(anchors=(1, 2)), length=9)
        frames = one.frames
        keys = np.random.default_rng(0).integers(20, 101, size=(len(frames), 2))
        latent = frames.with_keys(keys)
        sequences = np.random.default_rng(1).integers(20, 101, size=(len(frames), 9))
        one.write(sequences, np.arange(len(frames)), latent)
        assert np.array_equal(one.find(sequences).columns(), latent.columns())
        assert np.array_equal(sequences[:, 7:], np.column_stack([frames.anchors[:, 0], keys[:, 0]]))

    @pytest.mark.parametrize(
        ("patterns", "fields", "message"),
        [
            (["A ... x"], {}, "leaves the position of a key open"),
            (["x ... A"], {}, "leaves the position of a key open"),
            (["A B C D E F G H x"], {}, "frames|combinations"),
        ],
    )
    def test_impossible_patterns_are_named(self, patterns: list[str], fields: dict[str, object], message: str) -> None:
        with pytest.raises(SpecError, match=message):
            layout(*patterns, vocabulary=Vocabulary(anchors=tuple(range(1, 9))), **fields)


def latent(anchor: int, position: int, key: int, key_position: int) -> Latent:
    columns = (np.array([[value]]) for value in (anchor, position, key, key_position))
    return Latent(np.array([0]), *columns)


class TestSeparation:
    def test_default_is_the_reference_rule(self) -> None:
        for position in range(8):
            for key in range(20, 101):
                side = ModularResidue().side(latent(3, position, key, position + 1), 9)
                assert side.tolist() == [1 if (key - position) % 8 == 0 else 0]

    def test_default_is_the_papers_example_set(self) -> None:
        """Section 3.2.1: the key at 1-based position i is held out when mod(x, n-1) is in {i - 2}."""
        sets = ModularResidue(position="key", by_position={i - 1: (i - 2,) for i in range(2, 10)})
        for i in range(2, 10):
            for key in range(20, 101):
                one = latent(3, i - 2, key, i - 1)
                assert sets.side(one, 9).tolist() == ModularResidue().side(one, 9).tolist()

    def test_parameters(self) -> None:
        rule = ModularResidue(modulus=9, position="key", residues=(1, -1))
        assert rule.side(latent(3, 2, 31, 3), 9).tolist() == [1]  # 28 mod 9 = 1
        assert rule.side(latent(3, 2, 29, 3), 9).tolist() == [1]  # 26 mod 9 = 8 = -1
        assert rule.side(latent(3, 2, 30, 3), 9).tolist() == [0]

    def test_two_keys_are_both_held_out_or_neither(self) -> None:
        keys = np.array([[24, 24], [24, 25], [25, 25]])
        places = np.tile([0, 8], (3, 1))
        two = Latent(np.zeros(3, dtype=int), np.full((3, 1), 3), np.full((3, 1), 4), keys, places)
        assert ModularResidue(position="key").side(two, 9).tolist() == [1, -1, 0]

    def test_keys_that_move_with_the_position(self) -> None:
        rule = MovingKeys()
        assert [rule.side(latent(3, 4, key, 5), 9).item() for key in (23, 24, 28, 103, 104)] == [-1, 0, 1, 0, -1]
        both = Combined(parts=(rule, AnchorBased(held_out={3: ((50, 50),)})))
        assert [both.side(latent(3, 4, key, 5), 9).item() for key in (23, 49, 50, 104)] == [-1, 0, 1, -1]

    def test_anchor_based(self) -> None:
        rule = AnchorBased(held_out={1: ((20, 27),), 2: ((28, 35), (90, 90))})
        sides = [rule.side(latent(a, 0, key, 1), 9).item() for a, key in ((1, 27), (1, 28), (2, 28), (2, 90))]
        assert sides == [1, 0, 1, 1]
        assert rule.side(latent(3, 0, 20, 1), 9).tolist() == [0]

    def test_composite_anchor_and_its_combination(self) -> None:
        pairs = np.array([[1, 2], [3, 4], [4, 4], [1, 2], [3, 4]])
        keys = np.array([[25], [25], [25], [24], [24]])
        places = np.tile([[1, 2]], (5, 1))
        some = Latent(np.zeros(5, dtype=int), pairs, places, keys, np.zeros((5, 1), dtype=int))
        rule = CompositeAnchor(unseen=((3, 4),), seen=((1, 2),))
        assert rule.splits == ("train", "test")
        assert rule.side(some, 9).tolist() == [0, 1, -1, 0, 1]
        both = Combined(parts=(ModularResidue(position="key"), rule))
        assert both.splits == ("train", "test on data", "test on task")
        assert both.side(some, 9).tolist() == [0, 2, -1, 1, 2]
        assert both.side(replace(some, rule=np.full(5, -1)), 9).tolist() == [-1] * 5


class TestLabels:
    def test_copies_are_exact(self) -> None:
        random = np.random.default_rng(0)
        assert Labels(copies=5).changed_rows(12, random).nonzero()[0].tolist() == [4, 9]
        assert Labels(copies=4, changed=3).share == 0.75
        share = Labels(probability=0.3).changed_rows(100_000, random).mean()
        assert abs(share - 0.3) < 5 * (0.21 / 100_000) ** 0.5
        with pytest.raises(SpecError, match="changed: 5 of 5 copies"):
            Labels(copies=5, changed=5)
