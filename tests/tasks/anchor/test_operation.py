"""Operations on keys, against values worked out by hand."""

import numpy as np
import pytest

from anchorlab.errors import SpecError
from anchorlab.tasks import Operation


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
