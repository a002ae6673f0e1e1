"""The limit on how deeply data from other people may be nested; beyond it Python raises a `RecursionError`."""

from typing import Any

MOST_DEPTH = 64
"""The most levels of nested lists and tables; our own files have fewer than ten."""

TOO_DEEP = f"is nested deeper than {MOST_DEPTH} levels"


def is_too_deep(data: Any) -> bool:
    """Return whether lists and tables are nested deeper than `MOST_DEPTH`."""
    level = _nested([data])
    for _ in range(MOST_DEPTH):
        level = [inner for one in level for inner in _nested(one)]
    return bool(level)


def _nested(one: dict[Any, Any] | list[Any]) -> list[dict[Any, Any] | list[Any]]:
    return [inner for inner in (one.values() if isinstance(one, dict) else one) if isinstance(inner, dict | list)]
