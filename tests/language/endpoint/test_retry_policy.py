"""Waits between tries."""

import pytest

from anchorlab.errors import SpecError
from anchorlab.language.endpoint import Patience
from anchorlab.language.endpoint.retry_policy import seconds_asked_for
from anchorlab.rng import generator


def test_waits_double_up_to_the_longest_and_are_spread():
    patience = Patience(first=1.0, longest=20.0)
    draws = generator(0, "waits")
    for failed, full in enumerate([1, 2, 4, 8, 16, 20, 20], start=1):
        waits = [patience.wait(failed, 0.0, draws) for _ in range(400)]
        assert 0.5 * full <= min(waits) < 0.52 * full
        assert 0.98 * full < max(waits) <= full
    assert patience.wait(10_000, 0.0, draws) <= 20


def test_the_same_seed_waits_the_same():
    waits = [
        [Patience().wait(n, 0.0, draws) for n in range(1, 9)] for draws in (generator(3), generator(3), generator(4))
    ]
    assert waits[0] == waits[1] != waits[2]


def test_no_wait_is_shorter_than_asked_for():
    assert Patience().wait(1, 7.0, generator(0)) == 7.0
    assert Patience(first=100.0).wait(1, 7.0, generator(0)) >= 50.0


@pytest.mark.parametrize(
    ("retry_after", "milliseconds", "date", "seconds"),
    [
        (None, None, None, 0.0),
        ("7", None, None, 7.0),
        ("0.5", None, "Sun, 06 Nov 1994 08:49:37 GMT", 0.5),
        ("7", "250", None, 0.25),
        (None, "250", None, 0.25),
        ("7", "soon", None, 7.0),
        ("Sun, 06 Nov 1994 08:50:07 GMT", None, "Sun, 06 Nov 1994 08:49:37 GMT", 30.0),
        ("Sun, 06 Nov 1994 08:49:07 GMT", None, "Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
        ("Sun, 06 Nov 1994 08:50:07 GMT", None, None, 0.0),
        ("soon", None, None, 0.0),
        ("-3", None, None, 0.0),
        ("nan", "inf", None, 0.0),
    ],
)
def test_what_a_server_asks_for(retry_after, milliseconds, date, seconds):
    assert seconds_asked_for(retry_after, milliseconds, date) == seconds


@pytest.mark.parametrize("field", ["timeout", "tries", "first", "longest"])
def test_bad_patience(field):
    with pytest.raises(SpecError, match=f"^{field}: "):
        Patience(**{field: 0})
