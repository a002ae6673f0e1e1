"""What an anchor does to a key: small arithmetic, read from text such as `x`, `+5` or `+5 then -2`."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from anchorlab.errors import SpecError
from anchorlab.tasks.anchor.vocabulary import LARGEST

_STEP = re.compile(r"(?:x\s*)?([+\-*])\s*([0-9]{1,6})")
_LONGEST = 16


@dataclass(frozen=True)
class Operation:
    """A pure function g of a key, applied to whole arrays: steps of adding, subtracting or multiplying, in order.

    `Operation()` is the identity, written `x`. Source: anchor function paper, equation (2).

    >>> int(Operation.parse("+5 then -2")(np.array(40)))
    43
    """

    steps: tuple[tuple[str, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Operation":
        """Reads `x`, `+5`, `-2`, `*2`, or several with `then` between them.

        Errors: `SpecError` for any other text.
        """
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

    @property
    def text(self) -> str:
        """The operation as `parse` reads it."""
        return " then ".join(f"{sign}{amount}" for sign, amount in self.steps) or "x"

    def __str__(self) -> str:
        return self.text

    def __call__(self, keys: Int[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
        """The result for each key; only meaningful where `defined`."""
        for sign, amount in self.steps:
            keys = keys * amount if sign == "*" else keys + (amount if sign == "+" else -amount)
        return keys

    def defined(self, keys: Int[np.ndarray, "*shape"], size: int) -> Bool[np.ndarray, "*shape"]:
        """The domain: where every step's result is a token `0 .. size-1`."""
        inside = (keys >= 0) & (keys < size)
        for step in self.steps:
            keys = Operation((step,))(np.where(inside, keys, 0))
            inside = inside & (keys >= 0) & (keys < size)
        return inside

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Specifications hold the operation as its text."""
        return core_schema.no_info_plain_validator_function(
            cls._validate, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def _validate(cls, value: Any) -> "Operation":
        if isinstance(value, Operation):
            return value
        if not isinstance(value, str):
            raise SpecError("", f"should be text, got {value!r:.60}", 'write it in quotes, such as "+5"')
        try:
            return cls.parse(value)
        except SpecError as error:
            raise SpecError("", error.problem, error.remedy) from None
