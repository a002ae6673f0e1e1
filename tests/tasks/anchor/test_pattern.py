"""Patterns of anchors and keys, against positions listed by hand and by brute force."""

import itertools

import pytest

from anchorlab.errors import SpecError
from anchorlab.tasks.anchor.pattern import Pattern


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
