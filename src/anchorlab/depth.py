"""Limits on data from other people: how deeply it is nested, and the length of whole numbers.

Beyond them Python raises a `RecursionError`, or a `ValueError` when it prints a number.
"""

from typing import Any

MOST_DEPTH = 64
"""The most levels of nested lists and tables; our own files have fewer than ten."""

TOO_DEEP = f"is nested deeper than {MOST_DEPTH} levels"


TOO_LONG = "holds a whole number of more than 64 bits"


def is_too_deep(data: Any) -> bool:
    """Return whether lists and tables are nested deeper than `MOST_DEPTH`."""
    level = _nested([data])
    for _ in range(MOST_DEPTH):
        level = [inner for one in level for inner in _nested(one)]
    return bool(level)


def has_long_number(data: Any) -> bool:
    """Return whether data that is not too deep holds a whole number outside the signed 64 bits of TOML."""
    if isinstance(data, dict | list):
        return any(map(has_long_number, data.values() if isinstance(data, dict) else data))
    return isinstance(data, int) and not -(2**63) <= data < 2**63


def _nested(one: dict[Any, Any] | list[Any]) -> list[dict[Any, Any] | list[Any]]:
    return [inner for inner in (one.values() if isinstance(one, dict) else one) if isinstance(inner, dict | list)]
