"""Timeouts, retries and the waits between them."""

import math
from contextlib import suppress
from email.utils import parsedate_to_datetime

import numpy as np
from pydantic import Field

from anchorlab.spec import Spec


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


def seconds_asked_for(retry_after: str | None, retry_after_ms: str | None, date: str | None) -> float:
    """Return the wait that a server asks for in its headers, in seconds; 0 if it asks for none.

    `Retry-After` holds seconds or a time of day, which is compared with the server's own `Date`.
    """
    for text, scale in ((retry_after_ms, 1e-3), (retry_after, 1.0)):
        with suppress(ValueError):
            if text and math.isfinite(seconds := float(text) * scale):
                return max(0.0, seconds)
    try:
        until = parsedate_to_datetime(retry_after or "")
        return max(0.0, (until - parsedate_to_datetime(date or "")).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0
