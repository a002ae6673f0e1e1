"""The run-time check of types and shapes; as for type checkers, an int will do where a float is expected.

A test's first calls are checked, `MOST` of them, and the others are not: a function that is called in a loop is seen
often enough, and checking costs more than most of what is called.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

MOST = 5_000
calls = 0


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
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


typed = beartype(conf=BeartypeConf(is_pep484_tower=True))


def begin() -> None:
    """Check the calls of the next test."""
    global calls
    calls = 0
    jaxtyping.config.update("jaxtyping_disable", False)
