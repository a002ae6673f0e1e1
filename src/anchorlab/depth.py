"""How deep data of others is nested: deeper than any of ours, reading it further would end in a `RecursionError`."""

from typing import Any

MOST_DEPTH = 64
"""The most levels of lists and tables within one another; ours have fewer than ten."""

TOO_DEEP = f"is nested deeper than {MOST_DEPTH} levels"


def is_too_deep(data: Any) -> bool:
    """Return whether lists and tables lie within one another deeper than `MOST_DEPTH`."""
    level = [data]
    for _ in range(MOST_DEPTH + 1):
        level = [inner for one in level if isinstance(one, dict | list) for inner in _inner(one)]
        if not level:
            return False
    return True


def _inner(one: dict[Any, Any] | list[Any]) -> list[Any]:
    return list(one.values()) if isinstance(one, dict) else one
