"""Expressions of what an anchor function answers, against values worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from anchorlab.errors import SpecError
from anchorlab.tasks import Operation
from anchorlab.tasks.anchor.expression import Expression, Reading


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
