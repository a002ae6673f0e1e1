"""The pace, by a clock that a test winds and against a server, and the waits between tries."""

import asyncio
import bisect
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorlab.errors import SpecError
from anchorlab.language.endpoint import Pace, Patience
from anchorlab.language.endpoint.client import seconds_asked_for
from anchorlab.language.endpoint.pace import Pacer
from anchorlab.rng import generator
from tests.language.endpoint.kit import endpoint, question
from tests.language.endpoint.scripted import served, spoken

pytestmark = pytest.mark.nightly


class Clock:
    """A clock that goes on only while somebody sleeps, and wakes late by `late` seconds."""

    def __init__(self, late=0.0):
        self.now, self.late = 1000.0, late

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds + self.late
        await asyncio.sleep(0)


def passed(pace, count, tokens=1.0, used=None, late=0.0, pauses=()):
    """The times at which `count` requests pass; `pauses` is how long nobody asks before a request, by number."""
    clock, times = Clock(late), []
    pacer = Pacer(pace, clock, clock.sleep)

    async def ask():
        for number in range(count):
            clock.now += dict(pauses).get(number, 0.0)
            await pacer.take(tokens)
            times.append(clock.now)
            if used is not None:
                pacer.give_back(tokens - used)

    asyncio.run(ask())
    return times


@pytest.mark.parametrize("late", [0.0, 0.02])
@pytest.mark.parametrize("limit", [10.0, 60.0, 600.0, 20_000.0])
def test_requests_pass_within_five_percent_of_the_limit(limit, late):
    times = passed(Pace(requests=limit), 400, late=late if limit < 1000 else late / 10)
    rate = (len(times) - 1) / (times[-1] - times[0]) * 60
    assert 0.95 * limit < rate <= limit


@settings(deadline=None, max_examples=30)
@given(
    limit=st.integers(20, 300),
    late=st.floats(0, 0.3),
    pauses=st.lists(st.tuples(st.integers(0, 100), st.floats(0, 90)), max_size=5),
)
def test_no_sixty_seconds_hold_more_requests_than_the_limit(limit, late, pauses):
    times = passed(Pace(requests=limit), 100, late=late, pauses=pauses)
    for number, time in enumerate(times):
        assert bisect.bisect_left(times, time + 60.0 - 1e-6) - number <= limit


@pytest.mark.parametrize("used", [None, 10.0, 150.0])
def test_tokens_pass_within_five_percent_of_the_limit(used):
    taken = 100.0
    times = passed(Pace(tokens=6000.0), 500, tokens=taken, used=used)
    rate = (len(times) - 1) * (used or taken) / (times[-1] - times[0]) * 60
    assert 0.95 * 6000 < rate <= 6000


def test_the_narrower_limit_counts():
    times = passed(Pace(requests=600.0, tokens=600.0), 100, tokens=10.0)
    assert (times[-1] - times[0]) / 99 == pytest.approx(1 / 0.98, rel=0.01)


def test_without_a_limit_nothing_waits():
    assert len(set(passed(Pace(), 1000, tokens=1e9))) == 1


def test_a_request_larger_than_a_minute_s_tokens_passes_and_is_paid_for():
    times = passed(Pace(tokens=60.0), 3, tokens=120.0)
    assert [b - a for a, b in pairwise(times)] == pytest.approx([122.4, 122.4], abs=0.2)


def test_nothing_passes_while_the_server_has_enough():
    clock = Clock()
    pacer = Pacer(Pace(), clock, clock.sleep)
    pacer.hold(7.0)
    pacer.hold(2.0)
    asyncio.run(pacer.take(1.0))
    assert clock.now == pytest.approx(1007.0)


def test_who_is_stopped_while_waiting_takes_no_turn():
    clock, taken = Clock(), []

    async def sleep(seconds):
        await clock.sleep(seconds)
        if clock.now > 1003.0:
            raise SpecError("endpoint", "stopped")

    async def ask():
        pacer = Pacer(Pace(requests=1.0), clock, sleep)
        for number in range(2):
            await pacer.take(1.0)
            taken.append(number)

    with pytest.raises(SpecError, match="stopped"):
        asyncio.run(ask())
    assert taken == [0]
    assert clock.now < 1004.0


@pytest.mark.slow
@pytest.mark.parametrize("pace", [Pace(requests=1200.0), Pace(tokens=6000.0, concurrent=4)])
def test_a_server_is_asked_at_the_limit(journal, pace):
    def script(asked):  # 5 tokens; the pace expects 16 for the answer and 1 for the question
        return spoken(asked, usage={"prompt_tokens": 2, "completion_tokens": 3})

    with served(script) as server:
        endpoint(server, journal, pace=pace).say([question(number) for number in range(201)])
    times = [asked.at for asked in server.asked]
    rate = 200 / (times[-1] - times[0]) * 60
    assert rate == pytest.approx(1200.0, rel=0.05)


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
    ("headers", "seconds"),
    [
        ({}, 0.0),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5", "date": "Sun, 06 Nov 1994 08:49:37 GMT"}, 0.5),
        ({"retry-after": "7", "retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "7", "retry-after-ms": "soon"}, 7.0),
        ({"retry-after": "Sun, 06 Nov 1994 08:50:07 GMT", "date": "Sun, 06 Nov 1994 08:49:37 GMT"}, 30.0),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:07 GMT", "date": "Sun, 06 Nov 1994 08:49:37 GMT"}, 0.0),
        ({"retry-after": "Sun, 06 Nov 1994 08:50:07 GMT"}, 0.0),
        ({"retry-after": "soon"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan", "retry-after-ms": "inf"}, 0.0),
    ],
)
def test_what_a_server_asks_for(headers, seconds):
    assert seconds_asked_for(headers) == seconds


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [(Pace, field, value) for field in ("requests", "tokens", "concurrent") for value in (0, -1, float("nan"))]
    + [(Patience, field, 0) for field in ("timeout", "tries", "first", "longest")],
)
def test_a_limit_out_of_range_is_named(kind, field, value):
    with pytest.raises(SpecError, match=f"^{field}: "):
        kind(**{field: value})
