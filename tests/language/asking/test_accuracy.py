"""The interval of an accuracy."""

import pytest

from anchorlab.language.asking import accuracy


def test_intervals_are_wilsons():
    # 8 of 10: centre (0.8 + z^2/20) / (1 + z^2/10), half width z sqrt(0.016 + z^2/400) / (1 + z^2/10), z = 1.959964
    found = accuracy([True] * 8 + [False] * 2, 0.25)
    assert (found.low, found.high) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)
    assert found.share == 0.8 and found.beats_guessing
    assert not accuracy([True] * 3 + [False] * 7, 0.25).beats_guessing
