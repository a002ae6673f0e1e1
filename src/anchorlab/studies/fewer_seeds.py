"""Parts of profiles: `paper:2` is `paper` with the first two of its seeds."""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from anchorlab.errors import SpecError
from anchorlab.training import Members

Setting = TypeVar("Setting")

_PART = re.compile(r"(?P<base>.*?):(?P<seeds>[0-9]{1,6})")


def part_of(profile: str) -> tuple[str, int | None]:
    """Return a profile's name and how many of its seeds are taken, None for all."""
    match = _PART.fullmatch(profile)
    return (profile, None) if match is None else (match["base"], int(match["seeds"]))


def part_name(profile: str, setting: object, seeds: int) -> str:
    """Return the name of the part of a profile with so many seeds, or the profile's own if it has no more of them."""
    return profile if _fewer(setting, seeds) == setting else f"{profile}:{seeds}"


def with_fewer_seeds(setting: Setting, seeds: int) -> Setting:
    """Return a setting with the first seeds of its own: in each whole number in a field `seeds`, and in all members.

    Errors: `SpecError` for no seed, and for a setting without more seeds than that.
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
