"""Rules of anchor functions: what is read from a text, and what is refused."""

import pytest

from anchorlab.errors import SpecError
from anchorlab.tasks import Rule


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
