"""The run-time check of types and shapes; as for type checkers, an int will do where a float is expected.

The first `MOST` calls of a test are checked: a function that is called in a loop is seen often enough, and a check
costs more than most calls.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

MOST = 5_000
calls = 0
typed = beartype(conf=BeartypeConf(is_pep484_tower=True))


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check a function's types, and count its calls; a class is checked without a count."""
    if isinstance(function, type):
        return typed(function)
    strict = typed(function)

    @wraps(strict)
    def counted(*args: Any, **kwargs: Any) -> Any:
        global calls
        calls += 1
        if calls >= MOST:
            jaxtyping.config.update("jaxtyping_disable", True)
        return strict(*args, **kwargs)

    return counted


def begin() -> None:
    """Check the calls of the next test."""
    global calls
    calls = 0
    jaxtyping.config.update("jaxtyping_disable", False)
