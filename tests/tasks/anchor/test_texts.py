"""Operations, patterns, rules and expressions: what is read from a text, by hand, and what is refused."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from anchorlab.errors import SpecError
from anchorlab.tasks import Operation, Rule
from anchorlab.tasks.anchor.expression import Expression, Reading
from anchorlab.tasks.anchor.pattern import Pattern


class TestOperation:
    @pytest.mark.parametrize(
        ("text", "result", "canonical"),
        [("x", 40, "x"), ("+5", 45, "+5"), (" x + 5 ", 45, "+5"), ("-2", 38, "-2"), ("*2", 80, "*2"),
         ("+5 then -2", 43, "+5 then -2"), ("*2 then +1 then x", 81, "*2 then +1")],
    )  # fmt: skip
    def test_text(self, text: str, result: int, canonical: str) -> None:
        operation = Operation.parse(text)
        assert operation(np.array([40])).tolist() == [result]
        assert str(operation) == canonical
        assert Operation.parse(canonical) == operation

    def test_the_domain_holds_every_step_inside_also_of_a_table(self) -> None:
        keys = np.array([0, 2, 7, 9, -1])
        assert Operation.parse("+1")(keys).tolist() == [1, 3, 8, 10, 0]
        assert Operation.parse("+1").defined(keys, 10).tolist() == [True, True, True, False, False]
        assert Operation.parse("-3 then +3").defined(keys, 10).tolist() == [False, False, True, True, False]
        assert not Operation.parse(" then ".join(["*65535"] * 16)).defined(np.array([3]), 65_536).any()
        operation = Operation.parse("21 -> 40, 20->31")
        assert operation.text == "20 -> 31, 21 -> 40" and Operation.parse(operation.text) == operation
        assert operation.results(41)[[19, 20, 21, 22]].tolist() == [-1, 31, 40, -1]
        assert operation.results(40)[[20, 21]].tolist() == [31, -1]  # 40 is no token there


# Patterns of anchors and keys, against positions listed by hand and by brute force.
class TestPattern:
    @pytest.mark.parametrize(
        ("text", "length", "positions"),
        [("A x", 4, [[0, 1], [1, 2], [2, 3]]), ("A . x", 4, [[0, 2], [1, 3]]), ("x A B", 4, [[0, 1, 2], [1, 2, 3]]),
         ("x A ... B", 4, [[0, 1, 2], [0, 1, 3], [1, 2, 3]]), ("m 3 n ... m $", 5, [[0, 1, 2, 4], [1, 2, 3, 4]]),
         ("^ A x", 4, [[0, 1]]), ("^ . A ... x . $", 6, [[1, 4]]), ("A x $", 4, [[2, 3]])],
    )  # fmt: skip
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


def test_the_text_of_a_rule_goes_round() -> None:
    rule = Rule.parse("  x A  B ->  B(A(x)) ")
    assert rule.text == "x A B -> B(A(x))" and Rule.parse(rule.text) == rule


# Expressions of what an anchor function answers, against values worked out by hand.
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
        [("x", [10, 20, 30]), ("x + y", [21, 32, 43]), ("(x + y) // 2 - 1", [9, 15, 20]), ("y % 4 * 3", [9, 0, 3]),
         ("-x + 40", [30, 20, 10]), ("min(x, y) + max(x, y, 25)", [35, 37, 43]), ("A(x)", [15, 40, 35]),
         ("B(A(x))", [30, 45, 40]), ("pair(A, B, x)", [9, 45, 40]), ("A + 30", [31, 32, 31]),
         ("nearest(12, x, y)", [11, 12, 13]), ("nearest(x, {y: A, 60: B})", [1, 2, 1]), ("min(A(x), y)", [11, 12, 13]),
         ("nearest(12, A(x), y, 60)", [11, 12, 13]), ("x * 3 + -7", [23, 53, 83]),
         ("pair(A, B, x - 5) + 0", [4, 35, 35])],
    )  # fmt: skip
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

    def test_steps_are_told_and_first_after_reads_the_sequence(self) -> None:
        steps = Expression("B(A(x)) + 0").evaluate(reading(x=[10], A=[1], B=[2]))[2]
        assert [(step.text, step.slot, step.value.tolist()) for step in steps] == [
            ("A(x)", "A", [15]),
            ("B(A(x))", "B", [30]),
        ]
        one = reading(A=[1, 1])
        sequences = np.array([[1, 5, 33, 20], [40, 41, 1, 6]])
        found = replace(one, sequences=sequences, positions={"A": np.array([0, 2])})
        value, known, _ = Expression("first_after(A)").evaluate(found)
        assert value[0] == 33 and known.tolist() == [True, False]


REFUSED = [
    (Operation.parse, "operation",
     ["", "5", "+", "x*", "__import__('os')", "+5 then", "++5", "+9999999", "+1 then " * 20]),
    (Operation.parse, "cannot read the table", ["20 ->", "20 -> 31, 20 -> 32", "20 -> 70000", "20 -> 31;"]),
    (Pattern.parse, "pattern", ["", "^ $", "A ?", "A x; y", "x^2", "$ A"]),
    (lambda text: Pattern.parse(text).positions(3), "length: 3 is too short for `A . . x`; use at least", ["A . . x"]),
    (lambda text: Pattern.parse(text).positions(300), "fits in too many ways", ["A ... B ... C ... D"]),
    (Rule.parse, "has no `->`", ["A x"]),
    (Rule.parse, "mentions 'y', which `A x` does not hold; use A, x", ["A x -> y"]),
    (Rule.parse, "mentions 'B'", ["A x -> B(x)"]),
    (Rule.parse, "cannot read", ["A x -> os.system(x)"]),
    (Expression, "answer",
     ["", "x +", "__import__('os')", "x.y", "x[0]", "open(x)", "A(x, y)", "lambda: x", "x ** 9", "x if y else A",
      "nearest(x)", "nearest(x, {y: A}, y)", "first_after(3)", "pair(A, x)", "1.5", "'x'", "True", "A(*x)", "min(x)",
      "first_after(x)", "pair(x, B, x)", "trained(A, y, x)",
      "f(x=1)", "x := 3", "(" * 300 + "x" + ")" * 300, "x" * 500, "{x: y}"]),
]  # fmt: skip


@pytest.mark.parametrize(("read", "message", "text"), [(*one, text) for *one, texts in REFUSED for text in texts])
def test_other_text_is_refused(read, message, text):
    with pytest.raises(SpecError, match=message):
        read(text)
