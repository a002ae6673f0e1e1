"""When requests go out: rate limits, each kept by a token bucket that fills evenly, and retries."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import numpy as np
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


class Patience(Spec):
    """Timeout of a try, number of tries, and exponential backoff between them.

    The n-th wait is `first * 2^(n - 1)` seconds, at most `longest`, times a uniform random number from [0.5, 1). It is
    never shorter than the wait that the server asks for in `Retry-After`. If the server asks for more than `longest`,
    the question fails with an error.

    Fields
        timeout: the seconds for one try, from sending to the last byte of the reply
        tries: the maximum number of tries for one question
        first, longest: the first and the longest wait, in seconds
        seed: the seed of the random waits
    """

    timeout: float = Field(default=120.0, gt=0)
    tries: int = Field(default=8, ge=1)
    first: float = Field(default=1.0, gt=0)
    longest: float = Field(default=120.0, gt=0)
    seed: int = Field(default=0, ge=0)

    def wait(self, failed: int, asked_for: float, generator: np.random.Generator) -> float:
        """Return the seconds to wait after failed try number `failed`, counted from 1; at least `asked_for`."""
        own = min(self.longest, self.first * 2.0 ** (min(failed, 64) - 1)) * generator.uniform(0.5, 1.0)
        return float(max(own, asked_for))


class Pacer:
    """Delays requests to keep the rate limits. All requests to a server share one pacer, and every retry counts.

    Each limit is a token bucket that may be overdrawn: any amount may be taken unless the level is below zero. A bucket
    is known by the time at which its level was or will be zero.

    `clock` and `sleep` are the system's by default.
    """

    def __init__(
        self,
        pace: Pace,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._limits, self._clock, self._sleep = (pace.requests, pace.tokens), clock, sleep
        self._empty = [clock(), clock()]
        self._held_until = clock()

    async def take(self, tokens: float) -> None:
        """Wait for the next turn, and take it and its `tokens`."""
        while (wait := max(*self._empty, self._held_until) - self._clock()) > _AT_ONCE:
            await self._sleep(min(wait, _LOOK))
        self._use(1.0, tokens)

    def give_back(self, tokens: float) -> None:
        """Return unused tokens; a negative number takes the tokens that were used in excess."""
        self._use(0.0, -tokens)

    def hold(self, seconds: float) -> None:
        """Delay all requests for a time, as an overloaded server asks for."""
        self._held_until = max(self._held_until, self._clock() + seconds)

    def _use(self, *amounts: float) -> None:
        for place, (limit, amount) in enumerate(zip(self._limits, amounts, strict=True)):
            if limit is not None:
                full = self._clock() - _SAVED
                self._empty[place] = max(self._empty[place], full) + amount * _MINUTE / (_RATE * limit)
