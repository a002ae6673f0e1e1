"""The base of every specification: frozen, comparable, without unknown fields, with one-line errors."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from anchorlab.errors import SpecError


class Spec(BaseModel):
    """A frozen value that describes something and can be written as JSON or TOML; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise spec_error(error, fields=type(self).model_fields) from None

    @classmethod
    def parse(cls, data: Any, at: str = "") -> Self:
        """Builds the value from plain data; a mistake raises `SpecError` that names the field below `at`."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise spec_error(error, at, fields=cls.model_fields) from None
        except TypeError as error:
            if "keywords must be strings" not in str(error):
                raise
            raise SpecError(at or "spec", "has a field name that is not text") from None

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, checked as a new value is.

        Errors: `SpecError` for an unknown field or a value out of range.
        """
        return type(self).parse({**dict(self), **changes})


def spec_error(error: ValidationError, at: str = "", fields: Iterable[str] = ()) -> SpecError:
    """The first complaint of a pydantic error as a one-line `SpecError`, with the nearest name for a mistyped one."""
    first = error.errors(include_url=False)[0]
    inner = first.get("ctx", {}).get("error")
    location = [str(part) for part in first["loc"] if not str(part).startswith("function-")]
    if isinstance(inner, SpecError):
        return SpecError(".".join([part for part in (at, *location, inner.field) if part]), inner.problem, inner.remedy)
    field = ".".join([part for part in (at, *location) if part]) or "spec"
    if first["type"] == "extra_forbidden":
        return unknown_name(field, location[-1], fields, "field")
    shown = repr(first.get("input"))
    given = "" if len(shown) > 60 or first["type"] == "missing" else f", got {shown}"
    message = first["msg"].removeprefix("Value error, ")
    return SpecError(field, message[0].lower() + message[1:] + given)


def unknown_name(field: str, name: str, known: Iterable[str] | Mapping[str, Any], what: str) -> SpecError:
    """The error for a name that nobody knows: the nearest known one, or the whole list."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    remedy = f"did you mean {near[0]!r}?" if near else (f"known: {', '.join(names)}" if names else "remove it")
    return SpecError(field, f"unknown {what} {name!r}", remedy)
