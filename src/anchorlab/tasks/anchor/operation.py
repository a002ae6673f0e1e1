"""The operation of an anchor on a key: arithmetic such as `+5 then -2`, or a table such as `20 -> 31, 21 -> 40`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from jaxtyping import Bool, Int
from pydantic import BeforeValidator, GetCoreSchemaHandler

from anchorlab.errors import SpecError
from anchorlab.spec import text_type
from anchorlab.tasks.anchor.vocabulary import LARGEST

_ENTRY = re.compile(r"([0-9]{1,6})\s*->\s*([0-9]{1,6})")
_STEP = re.compile(r"(?:x\s*)?([+\-*])\s*([0-9]{1,6})")
_LONGEST = 16


@dataclass(frozen=True)
class Operation:
    """A pure, vectorised function g of a key: steps of adding, subtracting or multiplying, in order, or a table.

    `Operation()` is the identity, written `x`. A `table` lists pairs (token, result) and is undefined elsewhere.
    Source: anchor functions, equation (2).

    >>> int(Operation.parse("+5 then -2")(np.array(40)))
    43
    """

    steps: tuple[tuple[str, int], ...] = ()
    table: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Operation":
        """Parse `x`, `+5`, `-2`, `*2`, several of them joined by `then`, or a table `20 -> 31, 21 -> 40`.

        Errors: `SpecError` for any other text.
        """
        if "->" in text:
            return cls._parse_table(text)
        steps: list[tuple[str, int]] = []
        for part in text.split(" then "):
            if part.strip() == "x":
                continue
            match = _STEP.fullmatch(part.strip())
            if match is None or int(match[2]) >= LARGEST:
                raise SpecError("operation", f"cannot read {text!r:.60}", "write x, +5, -2, *2, or +5 then -2")
            steps.append((match[1], int(match[2])))
        if len(steps) > _LONGEST:
            raise SpecError("operation", f"has {len(steps)} steps", f"use at most {_LONGEST}")
        return cls(tuple(steps))

    @classmethod
    def _parse_table(cls, text: str) -> "Operation":
        entries = [_ENTRY.fullmatch(part.strip()) for part in text.split(",")]
        pairs = [(int(entry[1]), int(entry[2])) for entry in entries if entry]
        if len(pairs) < len(entries) or len(dict(pairs)) < len(pairs) or any(max(pair) >= LARGEST for pair in pairs):
            remedy = "write each token once: 20 -> 31, 21 -> 40"
            raise SpecError("operation", f"cannot read the table {text!r:.60}", remedy)
        return cls(table=tuple(sorted(pairs)))

    @property
    def text(self) -> str:
        """The operation in the form that `parse` accepts."""
        if self.table:
            return ", ".join(f"{token} -> {result}" for token, result in self.table)
        return " then ".join(f"{sign}{amount}" for sign, amount in self.steps) or "x"

    def __str__(self) -> str:
        return self.text

    def __call__(self, keys: Int[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
        """Return the result for each key; meaningless if `defined` is false for the key."""
        if self.table:
            listed, results = np.array(self.table, dtype=np.int64).T
            return np.asarray(results[np.minimum(np.searchsorted(listed, keys), len(listed) - 1)])
        for sign, amount in self.steps:
            keys = keys * amount if sign == "*" else keys + (amount if sign == "+" else -amount)
        return keys

    def defined(self, keys: Int[np.ndarray, "*shape"], size: int) -> Bool[np.ndarray, "*shape"]:
        """Return whether each key is in the domain for a vocabulary of `size` tokens.

        A key is in the domain if every step stays within `0 .. size-1`, or if the table gives it a result in this
        range.
        """
        inside = (keys >= 0) & (keys < size)
        if self.table:
            return inside & np.isin(keys, [token for token, result in self.table if result < size])
        for step in self.steps:
            keys = Operation((step,))(np.where(inside, keys, 0))
            inside = inside & (keys >= 0) & (keys < size)
        return inside

    def results(self, size: int) -> Int[np.ndarray, "token"]:
        """Return the result for each token `0 .. size-1`; -1 outside the domain."""
        tokens = np.arange(size)
        inside = self.defined(tokens, size)
        return np.where(inside, self(np.where(inside, tokens, self.table[0][0] if self.table else 0)), -1)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Store the operation as text in specifications; a table may be given as a mapping."""
        text = text_type(cls, cls.parse, 'write it in quotes, such as "+5"')
        return handler.generate_schema(Annotated[text, BeforeValidator(_table_text)])


def _table_text(value: Any) -> Any:
    is_table = isinstance(value, Mapping)
    return ", ".join(f"{token} -> {result}" for token, result in value.items()) if is_table else value
