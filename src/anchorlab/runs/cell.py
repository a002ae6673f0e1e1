"""Cells: specifications of results, addressed by their content."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anchorlab.errors import SpecError


@dataclass(frozen=True)
class Cell:
    """The specification of one result: everything that decides its numbers, as plain JSON data.

    Cells with the same `spec`, such as `{"task": ..., "model": ..., "recipe": ..., "members": ..., "format": 1}`, are
    equal and have the same address; the order of keys does not matter. `label` is a name for people and not
    part of the address.

    Errors: `SpecError` that names the first field that is not plain JSON (NaN, an object, a non-string key).

    >>> Cell({"a": 1, "b": 2}).address == Cell({"b": 2, "a": 1}, label="same").address
    True
    """

    spec: Mapping[str, Any] = field(compare=False)
    label: str = field(default="", compare=False)
    address: str = field(init=False)

    def __post_init__(self) -> None:
        text = canonical_json(self.spec, at="cell")
        # A copy, so that later changes to the caller's dictionary cannot contradict the address.
        object.__setattr__(self, "spec", json.loads(text))
        object.__setattr__(self, "address", hashlib.blake2b(text.encode(), digest_size=10).hexdigest())


def canonical_json(data: Any, at: str = "") -> str:
    """Return the canonical text of plain JSON data: keys sorted, no spaces, floats in their shortest exact form.

    Errors: `SpecError` for NaN, infinity, non-string keys and other values outside JSON; it names the field below `at`.
    """
    return json.dumps(_plain(data, at), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: Any, at: str) -> Any:
    """Return `value` with mappings as dictionaries and tuples as lists. Errors: `SpecError` for anything else."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise SpecError(at or "spec", f"{value} is not allowed in a cell", "write a finite number or null")
        return value
    if isinstance(value, Mapping):
        for key in value:
            if type(key) is not str:
                raise SpecError(at or "spec", f"key {key!r} is not a string", "write keys as strings")
        return {key: _plain(item, f"{at}.{key}".removeprefix(".")) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{at}.{index}".removeprefix(".")) for index, item in enumerate(value)]
    raise SpecError(
        at or "spec", f"{type(value).__name__} is not plain JSON data", "write it as numbers, text or lists"
    )
