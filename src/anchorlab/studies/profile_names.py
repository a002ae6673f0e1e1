"""Names of changed profiles: `paper:1002` is `paper` with seed 1002 alone, `quick@gpt2` is `quick` with another model.

Seeds are written as on the command line: `paper:1000:1003` has the seeds 1000 to 1002, `paper:1000,1004` these two. A
model may have a revision: `quick@EleutherAI/pythia-160m@step1000`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from anchorlab.errors import SpecError
from anchorlab.language.endpoint import address_of, is_address, read_address
from anchorlab.training import Experiment, Members
from anchorlab.training.members import read_seeds

SIGN = "@"
"""The separator between profile, model and revision in a name."""

Setting = TypeVar("Setting")

_PART = re.compile(r"(?P<base>.*?):(?P<seeds>[0-9,:]+)")


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


def part_of(profile: str) -> tuple[str, tuple[int, ...] | None]:
    """Split a profile's name into the name of the whole profile and the chosen seeds; None for all seeds.

    Errors: `SpecError` for seeds that cannot be read.
    """
    match = _PART.fullmatch(profile)
    return (profile, None) if match is None else (match["base"], read_seeds(match["seeds"]))


def part_name(profile: str, seeds: Sequence[int]) -> str:
    """Return the name of a profile with these seeds alone."""
    first, last = seeds[0], seeds[-1]
    in_a_row = len(seeds) > 1 and list(seeds) == list(range(first, last + 1))
    return f"{profile}:{f'{first}:{last + 1}' if in_a_row else ','.join(map(str, seeds))}"


def with_number_of_seeds(setting: Setting, number: int) -> Setting:
    """Return a setting with another number of seeds.

    An integer field `seeds` becomes `number` if it has the largest number of the setting, else at most `number`. Of
    `Members`, the first `number` stay; if there are fewer and they differ in their seeds alone, the next seeds follow.
    """
    counted: Setting = _counted(setting, number, max(_numbers(setting), default=number))
    return counted


def reseeded(experiments: Sequence[Experiment], seeds: Sequence[int]) -> list[Experiment]:
    """Return experiments with other seeds: the first seed becomes `seeds[0]`, the second `seeds[1]`, and so on.

    All other settings of the members stay. Errors: `SpecError` if the experiments do not have as many different seeds.
    """
    own = sorted({seed for one in experiments for seed in one.members.seeds})
    if len(set(seeds)) != len(seeds):
        raise SpecError("seeds", "name a seed twice", "name each once")
    if len(own) != len(seeds):
        raise SpecError("seeds", f"are {len(seeds)}; this profile trains {len(own)}", f"name {len(own)} of them")
    new = dict(zip(own, seeds, strict=True))

    def changed(one: Experiment) -> Experiment:
        start = None if one.start is None else changed(one.start)
        members = one.members.replace(seeds=tuple(new[seed] for seed in one.members.seeds))
        return replace(one, members=members, start=start)

    return [changed(one) for one in experiments]


def _numbers(value: Any) -> Iterator[int]:
    """Yield the value of every integer field `seeds` in a setting."""
    if is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            inner = getattr(value, one.name)
            yield from (inner,) if one.name == "seeds" and type(inner) is int else _numbers(inner)
    elif isinstance(value, Mapping | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _numbers(inner)


def _counted(value: Any, number: int, largest: int) -> Any:
    """Return a setting with `number` in place of `largest` seeds, and at most `number` in its other fields."""
    if isinstance(value, Members):
        if number <= len(value) or value != Members(seeds=value.seeds, hold=value.hold):
            return value.take(range(min(number, len(value))))
        after = max(value.seeds) + 1
        return value.replace(seeds=(*value.seeds, *range(after, after + number - len(value))))
    if is_dataclass(value) and not isinstance(value, type):
        new = {one.name: _counted(getattr(value, one.name), number, largest) for one in fields(value) if one.init}
        if type(seeds := new.get("seeds")) is int:
            new["seeds"] = number if seeds == largest else min(seeds, number)
        return replace(value, **new)
    if isinstance(value, Mapping):
        return {name: _counted(one, number, largest) for name, one in value.items()}
    return tuple(_counted(one, number, largest) for one in value) if type(value) is tuple else value
