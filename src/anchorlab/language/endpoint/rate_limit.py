"""Rate limits for requests and tokens per minute, each kept by a token bucket that fills evenly."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from pydantic import Field

from anchorlab.spec import Spec

_MINUTE = 60.0
_RATE = 0.98  # share of the limit; the rest covers the saved second, so that no 60 seconds exceed the limit
_SAVED = 1.0  # seconds of unused rate that a bucket saves at most, to make up for waking late
_AT_ONCE = 1e-6  # seconds; shorter waits are rounding error
_LOOK = 0.25  # seconds between two checks while waiting, because tokens are given back at any time


class Pace(Spec):
    """Rate limits; None for no limit.

    Every period of 60 seconds stays within the limits and can use 98 % of them. Until its reply reports the number of
    tokens, a request counts with its likely number.

    Fields
        concurrent: the maximum number of requests in flight
        requests, tokens: the maximum per minute; input and output tokens count together
    """

    concurrent: int = Field(default=8, ge=1, le=1000)
    requests: float | None = Field(default=None, gt=0)
    tokens: float | None = Field(default=None, gt=0)


class Pacer:
    """Delays requests to keep the rate limits. All requests to a server share one pacer, and every retry counts.

    `clock` and `sleep` are the system's by default; tests replace them.
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
        """Wait for the next turn, and take it and its `tokens`; return False, without a turn, once `stopped`."""
        while not stopped():
            wait = max(self._requests.wait(), self._tokens.wait(), self._held_until - self._clock())
            if wait <= _AT_ONCE:
                self._requests.take(1.0)
                self._tokens.take(tokens)
                return True
            await self._sleep(min(wait, _LOOK))
        return False

    def give_back(self, tokens: float) -> None:
        """Return unused tokens; a negative number takes the tokens that were used in excess."""
        self._tokens.take(-tokens)

    def hold(self, seconds: float) -> None:
        """Delay all requests for a time, as an overloaded server asks for."""
        self._held_until = max(self._held_until, self._clock() + seconds)


class _Bucket:
    """A token bucket that may be overdrawn: any amount may be taken while the level is not below zero."""

    def __init__(self, limit: float | None, clock: Callable[[], float]) -> None:
        self._rate = None if limit is None else limit / _MINUTE * _RATE
        self._clock, self._level, self._then = clock, 0.0, clock()

    def wait(self) -> float:
        """Return the seconds until the next amount may be taken; 0 or less means now."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        self._level = min(self._rate * _SAVED, self._level + (now - self._then) * self._rate)
        self._then = now
        return -self._level / self._rate

    def take(self, amount: float) -> None:
        self._level -= amount
