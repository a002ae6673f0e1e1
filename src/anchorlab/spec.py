"""The base of all specifications: frozen, comparable, strict about fields, with one-line errors."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from inspect import Parameter, Signature, signature
from numbers import Real
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    create_model,
    model_serializer,
    model_validator,
)

from anchorlab.errors import SpecError

JSON_CONFIG = ConfigDict(extra="forbid", ser_json_inf_nan="strings", ser_json_bytes="base64", val_json_bytes="base64")
"""Pydantic settings of plain values that are kept as JSON: refuse unknown fields, write bytes in base64."""

_TRUTHS = frozenset({"true", "false", "yes", "no", "on", "off", "t", "f", "y", "n"})
_LONGEST_DEFAULT = 30  # characters in a signature
_LONGEST_VALUE = 120  # characters of a field's value in the repr of a specification

SomeSpec = TypeVar("SomeSpec", bound="Spec")  # not typing.Self, which the run-time check of the tests cannot read


class Typed(str):
    """Text of a number or truth value that a field converts, as on a command line; see `typed`."""


def typed(text: str) -> str:
    """Return text as a person types it: `Typed` if it reads as a number or truth value, else unchanged.

    Words stay plain `str`, since older versions of pydantic compare no other kind of text with literals.
    """
    try:
        float(text)
    except ValueError:
        return Typed(text) if text.lower() in _TRUTHS else text
    return Typed(text)


class Spec(BaseModel):
    """A frozen value that can be written as JSON or TOML and refuses unknown fields, and text in place of a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    other_names: ClassVar[Mapping[str, str]] = {}
    """Names of other libraries and the field to write instead, such as `lr` and `learning_rate`."""

    by_place: ClassVar[str | None] = None
    """The field that may be given without its name because its value is unmistakable, as in `AdamW(1e-3)`."""

    later: ClassVar[frozenset[str]] = frozenset()
    """Fields that are not written at their defaults, so that runs keep the addresses from before the fields existed."""

    def __init__(self, *values: Any, **data: Any) -> None:
        if values:
            data = self._named(values, data)
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise spec_error(error, spec=type(self), data=data) from None

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.__signature__ = _signature(cls)

    @classmethod
    def _named(cls, values: Sequence[Any], data: Mapping[str, Any]) -> dict[str, Any]:
        """Return all fields, also the positional, by name. Errors: `SpecError` that tells how to name the values."""
        free = [name for name in cls.__signature__.parameters if name not in data]
        if len(values) == 1 and cls.by_place in free and isinstance(values[0], Real | Sequence):
            return {cls.by_place: values[0], **data}
        named = ", ".join(f"{name}=..." for name in free[: len(values)])
        raise SpecError(
            cls.__name__, f"takes its fields by name, got {values[0]!r:.60}", f"write {cls.__name__}({named})"
        )

    @classmethod
    def parse(cls: type[SomeSpec], data: Any, at: str = "") -> SomeSpec:
        """Build the value from plain data. Errors: `SpecError` that names the field below `at`."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise spec_error(error, at, spec=cls, data=data) from None
        except TypeError as error:
            if "keywords must be strings" not in str(error):
                raise
            raise SpecError(at or "spec", "has a field name that is not text") from None

    @model_validator(mode="wrap")
    @classmethod
    def _numbers_are_not_text(cls: type[SomeSpec], data: Any, handler: Callable[[Any], SomeSpec]) -> SomeSpec:
        found = handler(data)
        for name, given in data.items() if isinstance(data, Mapping) else ():
            if type(given) is str and isinstance(getattr(found, name, None), int | float):
                raise SpecError(name, f"is text, {given!r:.60}", "write it without quotes")
        return found

    @model_serializer(mode="wrap")
    def _written(self, write: Callable[["Spec"], dict[str, Any]]) -> dict[str, Any]:
        left_out = {name for name in self.later if getattr(self, name) == type(self).model_fields[name].default}
        return {name: value for name, value in write(self).items() if name not in left_out}

    __str__ = BaseModel.__repr__  # pydantic's names no class, and is empty if all fields have their defaults

    def __repr_args__(self) -> Iterable[tuple[str, "Cut"]]:
        """Yield the fields that differ from their defaults, as a user would write them; long values are cut."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if field.is_required() or value != field.get_default(call_default_factory=True):
                parts = value if isinstance(value, tuple) else (value,)
                own = all(isinstance(part, Spec) for part in parts)
                yield name, Cut(value if own else self.model_dump(mode="json", include={name}).get(name, value))

    def replace(self: SomeSpec, **changes: Any) -> SomeSpec:
        """Return a copy with some fields changed, validated like a new value.

        Errors: `SpecError` for an unknown field or a value out of range.
        """
        # fields by name: iterating over a value would also give its cached properties
        return type(self).parse({**{name: getattr(self, name) for name in type(self).model_fields}, **changes})


def spec_of(function: Callable[..., Any], kind: str, base: type[Any], method: str, given: int) -> type[Any]:
    """Return a specification of `kind` whose fields are a function's arguments, which need defaults.

    Args:
        function: its default values give the types of arguments that are not annotated
        kind: the value of the field `kind`
        base: the class of the specification
        method: the method of the specification that calls the function
        given: the number of leading arguments that the method takes, which are not fields

    Errors: `TypeError` for an argument without a default.
    """
    fields: dict[str, Any] = {}
    for name, parameter in list(signature(function, eval_str=True).parameters.items())[given:]:
        if parameter.default is parameter.empty:
            raise TypeError(f"{function.__name__}: argument {name!r} needs a default")
        annotation = type(parameter.default) if parameter.annotation is parameter.empty else parameter.annotation
        fields[name] = (annotation, parameter.default)

    def call(self: Spec, *values: Any) -> Any:
        return function(*values, **{name: getattr(self, name) for name in fields})

    tagged: Any = {"kind": (Literal[kind], kind), **fields}
    spec: type[Any] = create_model(function.__name__, __base__=base, __module__=function.__module__, **tagged)
    setattr(spec, method, call)
    spec.__doc__, spec.__qualname__ = function.__doc__, function.__qualname__
    spec.__abstractmethods__ = frozenset()
    return spec


def register_kind(kind: str, spec: type[SomeSpec], registry: dict[str, type[SomeSpec]], what: str) -> type[SomeSpec]:
    """Enter a specification in a registry, and return it. Errors: `ValueError` for a kind that another class has."""
    known = registry.get(kind)
    if known is not None and (known.__module__, known.__qualname__) != (spec.__module__, spec.__qualname__):
        raise ValueError(f"{what} kind {kind!r} is already registered by {known.__module__}")
    registry[kind] = spec
    return spec


def parse_kind(data: Any, at: str, registry: Mapping[str, type[SomeSpec]], what: str) -> SomeSpec:
    """Build the specification that is registered for the `kind` in `data`, with the fields in `data`.

    Errors: `SpecError` below `at` for a missing or unknown kind (with the nearest known one), and for an unknown field
    or an invalid value.
    """
    field = f"{at}.kind".removeprefix(".")
    if not isinstance(data, Mapping) or "kind" not in data:
        raise SpecError(field, "is missing", f"known: {', '.join(sorted(registry))}")
    kind = data["kind"]
    if not registry:
        raise SpecError(field, f"unknown {what} {kind!r:.60}", "import the module that registers it")
    if not isinstance(kind, str) or kind not in registry:
        raise unknown_name(field, str(kind), registry, what)
    return registry[kind].parse(dict(data), at)


def text_type(kind: type, parse: Callable[[str], Any], remedy: str) -> Any:
    """Return a pydantic type for a class whose values are text in specifications: `parse` reads it, `str` writes it.

    `remedy` is the remedy in the error for a value that is not text.
    """

    def validate(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        if not isinstance(value, str):
            raise SpecError("", f"should be text, got {value!r:.60}", remedy)
        try:
            return parse(value)
        except SpecError as error:
            raise SpecError("", error.problem, error.remedy) from None

    return Annotated[Any, PlainValidator(validate), PlainSerializer(lambda value: str(value))]


class Cut:
    """A value whose repr is cut to `_LONGEST_VALUE` characters."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        shown = repr(self.value)
        return shown if len(shown) <= _LONGEST_VALUE else f"{shown[: _LONGEST_VALUE - 4]} ..."


class _Long:
    """A default that is too long for a signature."""

    def __repr__(self) -> str:
        return "..."


def _signature(spec: type[Spec]) -> Signature:
    """Return the signature for `help`: required fields first, then the class's own; no types, which bury names."""
    own, found = vars(spec).get("__annotations__", {}), []
    fields = spec.model_fields.items()
    for name, field in sorted(fields, key=lambda one: (not one[1].is_required(), one[0] not in own)):
        default = Parameter.empty if field.is_required() else field.get_default(call_default_factory=True)
        # tags such as `kind` are left out because users never set them
        if field.is_required() or get_origin(field.annotation) is not Literal or len(get_args(field.annotation)) > 1:
            shown = _Long() if len(repr(default)) > _LONGEST_DEFAULT and not field.is_required() else default
            place = Parameter.POSITIONAL_OR_KEYWORD if name == spec.by_place else Parameter.KEYWORD_ONLY
            found.append(Parameter(name, place, default=shown))
    return Signature(sorted(found, key=lambda one: one.kind))


def spec_error(error: ValidationError, at: str = "", spec: "type[Spec] | None" = None, data: Any = None) -> SpecError:
    """Return the first entry of a pydantic error as a one-line `SpecError`.

    Args:
        error: the pydantic error
        at: the path of the specification
        spec: the class of the specification, for suggesting the nearest field
        data: the validated data, if at hand; the path then contains only names that occur in it
    """
    every = error.errors(include_url=False)
    first = every[0]
    if first["type"] == "missing":  # a misspelled field is missing, too: name what was written
        place = first["loc"][:-1]
        first = next((one for one in every if one["type"] == "extra_forbidden" and one["loc"][:-1] == place), first)
    kind, context = first["type"], first.get("ctx", {})
    inner = context.get("error")
    location = _written(first["loc"], data, missing=kind == "missing")
    if isinstance(inner, SpecError):
        return SpecError(".".join([part for part in (at, *location, inner.field) if part]), inner.problem, inner.remedy)
    field = ".".join([part for part in (at, *location) if part]) or "spec"
    if kind == "extra_forbidden":
        name = location[-1]
        if spec is not None and name in spec.other_names:
            return SpecError(field, f"unknown field {name!r}", f"write {spec.other_names[name]}")
        return unknown_name(field, name, () if spec is None else spec.model_fields, "field")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tag_field = f"{field}.{context['discriminator'].strip(chr(39))}"
        if "tag" not in context:
            return SpecError(tag_field, "is missing", "name the kind")
        return unknown_name(tag_field, context["tag"], re.findall("'([^']*)'", context["expected_tags"]), "kind")
    shown = repr(first.get("input"))
    given = "" if len(shown) > 60 or kind == "missing" else f", got {shown}"
    message = first["msg"].removeprefix("Value error, ").partition(", unable to")[0]
    remedy = f"write [{shown}]".replace("'", '"') if kind == "tuple_type" and given else ""
    return SpecError(field, message[0].lower() + message[1:] + given, remedy)


def _written(location: Sequence[int | str], data: Any, missing: bool) -> list[str]:
    """Return the path of an error as the user wrote it, without the unions and validators that pydantic adds."""
    parts = []
    for index, part in enumerate(location):
        if str(part).startswith("function-") or part == "[key]":
            continue
        if data is None:
            parts.append(str(part))
        elif isinstance(data, Mapping) and part in data:
            parts.append(str(part))
            data = data[part]
        elif isinstance(data, list | tuple) and isinstance(part, int):
            parts.append(str(part))
            data = data[part] if part < len(data) else ()
        elif missing and index == len(location) - 1:
            parts.append(str(part))
    return parts


def unknown_name(field: str, name: str, known: Iterable[str] | Mapping[str, Any], what: str) -> SpecError:
    """Return the error for a name that is not in `known`; it suggests the nearest known name, or lists them all.

    `field` is the path of the field, and `what` the kind of name, such as `task`.
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    listed = ", ".join(repr(one) if "," in one else one for one in names)
    remedy = f"did you mean {near[0]!r}?" if near else (f"known: {listed}" if names else "remove it")
    return SpecError(field, f"unknown {what} {name!r:.80}", remedy)


def check_known(field: str, name: str, known: Collection[str], what: str) -> None:
    """Raise `unknown_name` unless the name is in `known`."""
    if name not in known:
        raise unknown_name(field, name, known, what)
