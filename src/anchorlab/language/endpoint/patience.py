"""How long to wait for a server, and how often to ask again."""

import math
from contextlib import suppress
from email.utils import parsedate_to_datetime

import numpy as np
from pydantic import Field

from anchorlab.spec import Spec


class Patience(Spec):
    """When a try has failed and when the next one follows.

    The n-th wait is `first * 2^(n - 1)` seconds, at most `longest`, times a number drawn evenly from [0.5, 1); at
    least what the server asks for in `Retry-After`. A server that asks for more than `longest` is given up.

    Fields
        timeout: seconds for one try, from sending to the last byte of the reply
        tries: how often one question is put before it is given up
        first, longest: the first wait and the longest, in seconds
        seed: of the waits
    """

    timeout: float = Field(default=120.0, gt=0)
    tries: int = Field(default=8, ge=1)
    first: float = Field(default=1.0, gt=0)
    longest: float = Field(default=120.0, gt=0)
    seed: int = Field(default=0, ge=0)

    def wait(self, failed: int, asked_for: float, generator: np.random.Generator) -> float:
        """Return the seconds to wait after the try number `failed`, counted from 1."""
        own = min(self.longest, self.first * 2.0 ** (min(failed, 64) - 1)) * generator.uniform(0.5, 1.0)
        return float(max(own, asked_for))


def seconds_asked_for(retry_after: str | None, retry_after_ms: str | None, date: str | None) -> float:
    """Return the wait that a server asks for in its headers, in seconds; 0 where it asks for none.

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
