"""Names of changed profiles: `paper:2` is `paper` with its first two seeds, `quick@gpt2` is `quick` with another model.

A model may have a revision: `quick@EleutherAI/pythia-160m@step1000`.
"""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from anchorlab.errors import SpecError
from anchorlab.language.endpoint import address_of, is_address, read_address
from anchorlab.training import Members

SIGN = "@"
"""What separates the names of profile, model and revision."""

Setting = TypeVar("Setting")

_PART = re.compile(r"(?P<base>.*?):(?P<seeds>[0-9]{1,6})")


def of_model(setting: Setting, model: str | None = None, revision: str | None = None) -> Setting:
    """Return a setting with another pretrained model, or with another revision of its own.

    Errors: `SpecError` for a setting without the fields `model` and `revision`, for a name with an `@`, and for an
    address that is not a server's.
    """
    names = {field.name for field in fields(setting)} if is_dataclass(setting) else set()
    if not {"model", "revision"} <= names or not is_dataclass(setting) or isinstance(setting, type):
        raise SpecError("model", "the study opens no pretrained model", "leave out the model and its revision")
    if model is not None and is_address(model):
        model = ",".join(address_of(*read_address(one)) if is_address(one) else one for one in model.split(","))
    for field, name in (("model", model), ("revision", revision)):
        if name is not None and (SIGN in name or not name):
            raise SpecError(field, f"{name!r} cannot be part of a profile's name", f"give a name without {SIGN}")
    return replace(setting, revision=revision, **({} if model is None else {"model": model}))


def profile_name(profile: str, model: str, revision: str | None) -> str:
    """Return the name of a profile with another model."""
    return SIGN.join(part for part in (profile, model, revision) if part)


def parts(profile: str) -> tuple[str, str | None, str | None]:
    """Split a profile's name into profile, model and revision; the latter two are None for the profile's own model."""
    base, _, given = profile.partition(SIGN)
    model, _, revision = given.partition(SIGN)
    return base, model or None, revision or None


def part_of(profile: str) -> tuple[str, int | None]:
    """Split a profile's name into the whole profile's and the number of seeds, None for all."""
    match = _PART.fullmatch(profile)
    return (profile, None) if match is None else (match["base"], int(match["seeds"]))


def part_name(profile: str, setting: object, seeds: int) -> str:
    """Return the name of a profile with its first `seeds` seeds, or the profile's own name if it has no more."""
    return profile if _fewer(setting, seeds) == setting else f"{profile}:{seeds}"


def with_fewer_seeds(setting: Setting, seeds: int) -> Setting:
    """Return a setting cut to its first seeds: in every integer field `seeds`, and in all members.

    Errors: `SpecError` for zero seeds, and for a setting that has no more than `seeds`.
    """
    if seeds < 1:
        raise SpecError("profile", "takes no seed", "take one or more, as in paper:2")
    fewer: Setting = _fewer(setting, seeds)
    if fewer == setting:
        raise SpecError("profile", f"has no more than {seeds} seeds", "name it without a number")
    return fewer


def _fewer(value: Any, seeds: int) -> Any:
    if isinstance(value, Members):
        return value.take(range(min(seeds, len(value))))
    if is_dataclass(value) and not isinstance(value, type):
        new = {one.name: _fewer(getattr(value, one.name), seeds) for one in fields(value) if one.init}
        if type(new.get("seeds")) is int:
            new["seeds"] = min(new["seeds"], seeds)
        return replace(value, **new)
    if isinstance(value, Mapping):
        return {name: _fewer(one, seeds) for name, one in value.items()}
    return tuple(_fewer(one, seeds) for one in value) if type(value) is tuple else value
