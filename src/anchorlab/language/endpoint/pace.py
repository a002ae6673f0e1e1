"""Requests and tokens a minute: a bucket of each, filled evenly."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from pydantic import Field

from anchorlab.spec import Spec

_MINUTE = 60.0
_RATE = 0.98  # of the limit; what remains is for the saved second, so that no 60 seconds hold more than the limit
_SAVED = 1.0  # second of unused rate at most, which makes up for waking late
_AT_ONCE = 1e-6  # seconds; what is nearer than rounding is now
_LOOK = 0.25  # seconds between two looks while waiting, for tokens are given back at any time


class Pace(Spec):
    """How fast to ask; None for no limit.

    The limits are kept to within 2 % from below, in every period of 60 seconds; that of tokens counts what a request
    is likely to take until its reply says what it took.

    Fields
        concurrent: how many requests are on their way at once
        requests, tokens: the most a minute, tokens read and written together
    """

    concurrent: int = Field(default=8, ge=1, le=1000)
    requests: float | None = Field(default=None, gt=0)
    tokens: float | None = Field(default=None, gt=0)


class Pacer:
    """Lets requests pass at a pace. One for all of a server's requests; tries count like first requests.

    `clock` and `sleep` are those of the system; a test brings its own.
    """

    def __init__(
        self,
        pace: Pace,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._requests = _Bucket(pace.requests, clock)
        self._tokens = _Bucket(pace.tokens, clock)
        self._clock, self._sleep = clock, sleep
        self._held_until = clock()

    async def take(self, tokens: float, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Wait for a turn and take it, and `tokens` with it; return False, without a turn, once `stopped`."""
        while not stopped():
            wait = max(self._requests.wait(), self._tokens.wait(), self._held_until - self._clock())
            if wait <= _AT_ONCE:
                self._requests.take(1.0)
                self._tokens.take(tokens)
                return True
            await self._sleep(min(wait, _LOOK))
        return False

    def give_back(self, tokens: float) -> None:
        """Return tokens that were taken and not used; fewer than none if more were used."""
        self._tokens.take(-tokens)

    def hold(self, seconds: float) -> None:
        """Let nothing pass for a time, as a server asks for that has had too much."""
        self._held_until = max(self._held_until, self._clock() + seconds)


class _Bucket:
    """A level that rises evenly and may be taken from while it is not below zero, by any amount."""

    def __init__(self, limit: float | None, clock: Callable[[], float]) -> None:
        self._rate = None if limit is None else limit / _MINUTE * _RATE
        self._clock, self._level, self._then = clock, 0.0, clock()

    def wait(self) -> float:
        """Return the seconds until something may be taken; not above 0 if now."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        self._level = min(self._rate * _SAVED, self._level + (now - self._then) * self._rate)
        self._then = now
        return -self._level / self._rate

    def take(self, amount: float) -> None:
        self._level -= amount
