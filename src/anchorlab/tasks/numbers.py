"""Types of task arguments that hold several numbers or texts, written `1,5,9` on a command line."""

from typing import Annotated, Any

from pydantic import BeforeValidator


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _split_lists(value: Any) -> Any:
    return [_split(part) for part in value.split(";") if part.strip()] if isinstance(value, str) else value


def _split_pairs(value: Any) -> Any:
    value = _split_lists(value)
    pair = isinstance(value, list | tuple) and len(value) == 2 and not any(isinstance(v, list | tuple) for v in value)
    return [value] if pair else value


Numbers = Annotated[tuple[int, ...], BeforeValidator(_split)]
"""Whole numbers, written `1,5,9`."""

Pair = Annotated[tuple[int, int], BeforeValidator(_split)]
"""Two whole numbers, written `20,100`."""

Reals = Annotated[tuple[float, ...], BeforeValidator(_split)]
"""Real numbers, written `1,0.5`."""

Texts = Annotated[tuple[str, ...], BeforeValidator(_split)]
"""Short texts, written `+5,+1`."""

Pairs = Annotated[tuple[tuple[int, int], ...], BeforeValidator(_split_pairs)]
"""Pairs of whole numbers, written `3,4;4,3`."""

Lists = Annotated[tuple[tuple[int, ...], ...], BeforeValidator(_split_lists)]
"""Lists of whole numbers, written `0;0;1,2`."""
