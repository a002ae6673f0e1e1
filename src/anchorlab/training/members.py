"""Members: the seeds of an ensemble, and the settings that differ between its members."""

import re
from collections.abc import Iterable
from numbers import Integral
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from anchorlab.errors import SpecError
from anchorlab.models.initialisation import GAMMA, WeightGroup
from anchorlab.spec import Spec
from anchorlab.training.recipe import MOST_SEQUENCES

MOST_MEMBERS = 2**20

_MOST_SEEDS = 100_000  # that a text may give

PER_MEMBER = ("learning_rate", "weight_decay", "clip", "initialisation_scale", "data_size")
"""The fields of `Members` that override the recipe, one value per member."""

PerMemberRate = tuple[Annotated[float, Field(ge=0)], ...]


class Gamma(Spec):
    """The initialisation rate γ of each member, for models with `initialisation = "gamma"`.

    A weight matrix starts as N(0, d^-2γ), where d is the number of its inputs, or the width for an embedding. `all`
    applies to every group of weights whose own rates are not set; without `all`, such a group keeps γ = 0.5.
    """

    all: PerMemberRate | None = None
    embedding: PerMemberRate | None = None
    attention: PerMemberRate | None = None
    feed_forward: PerMemberRate | None = None
    recurrent: PerMemberRate | None = None
    projection: PerMemberRate | None = None

    @property
    def given(self) -> dict[str, PerMemberRate]:
        """The rates that are set, by weight group or `all`."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: values for name, values in fields.items() if values is not None}

    def of(self, group: WeightGroup, member: int) -> float:
        """Return a member's γ for a group of weights."""
        values = self.given.get(group, self.all)
        return GAMMA if values is None else values[member]


class Members(Spec):
    """The members of an experiment: their seeds, and other settings that differ between them.

    `seeds` is a list of seeds or their number: `Members(seeds=10)` has the seeds 0 to 9. A seed has three child
    streams: data, initialisation, order. `hold` fixes a stream for all members, as in `hold={"data": 0}` for the same
    data under different initialisations.

    The other fields override the recipe with one value per member. `initialisation_scale` multiplies the initial weight
    matrices; `gamma` sets their initialisation rate, as in `gamma={"all": (0.5, 0.8)}` for two members; `data_size`
    must be a multiple of the batch.
    """

    by_place: ClassVar[str | None] = "seeds"

    seeds: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] = (0,)  # a table of metrics has 64 bits for each
    hold: dict[Literal["data", "initialisation", "order"], int] = Field(default_factory=dict)
    learning_rate: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    weight_decay: tuple[Annotated[float, Field(ge=0)], ...] | None = None
    clip: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    initialisation_scale: tuple[Annotated[float, Field(ge=0)], ...] | None = None
    data_size: tuple[Annotated[int, Field(ge=1, le=MOST_SEQUENCES)], ...] | None = None
    gamma: Gamma = Gamma()

    @classmethod
    def of(cls, seeds: "int | str | Iterable[int] | Members") -> "Members":
        """Return members with the given seeds: the number of seeds, a list of them, or text for `read_seeds`.

        Errors: `SpecError` below `members`; at `seeds` for text.
        """
        if isinstance(seeds, Members):
            return seeds
        if isinstance(seeds, Integral) and not isinstance(seeds, bool):
            return cls.parse({"seeds": int(seeds)}, "members")
        if isinstance(seeds, str):
            return cls(seeds=read_seeds(seeds))
        if isinstance(seeds, bytes) or not isinstance(seeds, Iterable):
            raise SpecError(
                "members.seeds", f"{seeds!r:.60} does not say which seeds", "give their number, or a list of them"
            )
        return cls.parse({"seeds": [int(one) if isinstance(one, Integral) else one for one in seeds]}, "members")

    @field_validator("seeds", mode="before")
    @classmethod
    def _count(cls, seeds: Any) -> Any:
        if not isinstance(seeds, int) or isinstance(seeds, bool):
            return seeds
        if seeds < 0:
            raise ValueError(f"{seeds} is no number of seeds; a single seed is a list of one")
        if seeds > MOST_MEMBERS:
            raise ValueError(f"{seeds} is more than {MOST_MEMBERS} members")
        return tuple(range(seeds))

    @model_validator(mode="after")
    def _one_value_per_member(self) -> "Members":
        if not self.seeds:
            raise SpecError("seeds", "there are none", "give at least one")
        scalars = {name: getattr(self, name) for name in PER_MEMBER if getattr(self, name) is not None}
        scalars |= {f"gamma.{group}": values for group, values in self.gamma.given.items()}
        for name, values in scalars.items():
            if len(values) != len(self.seeds):
                raise SpecError(name, f"{len(values)} values for {len(self.seeds)} members", "give one per seed")
        members = list(zip(self.seeds, *scalars.values(), strict=True))
        if len(set(members)) != len(members):
            twice = next(seed for seed, *rest in members if members.count((seed, *rest)) > 1)
            raise SpecError("seeds", f"{twice} is given twice", "give each member its own seed")
        return self

    @classmethod
    def filling(cls, **fields: Any) -> "Members":
        """Build members from valid values without validation, for a pass in which members may be repeated."""
        return cls.model_construct(**fields)

    def __len__(self) -> int:
        return len(self.seeds)

    def stream(self, name: Literal["data", "initialisation", "order"], member: int) -> int:
        """Return the seed of one of a member's streams: the held one, or the member's own."""
        return self.hold.get(name, self.seeds[member])

    def take(self, members: range) -> "Members":
        """Return the members in a range of indices."""
        cut = {
            name: getattr(self, name)[members.start : members.stop]
            for name in ("seeds", *PER_MEMBER)
            if getattr(self, name) is not None
        }
        rates = {group: values[members.start : members.stop] for group, values in self.gamma.given.items()}
        return self.replace(**cut, gamma=Gamma(**rates))


def seeds_of(value: Any) -> tuple[int, ...]:
    """Return the seeds in a text, in a list, or from 0 up to a given number. Errors: `SpecError`."""
    return Members.of(value).seeds


def read_seeds(text: str) -> tuple[int, ...]:
    """Parse the seeds in a text: `0:10` means 0 to 9, `0,3,5` these three. Errors: `SpecError` at `seeds`."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,18})\s*(?::\s*([0-9]{1,18})\s*)?", part)
        if match is None:
            raise SpecError("seeds", f"{text!r:.60} is not a list of seeds", "write 0:10 for ten seeds, or 0,3,5")
        first = int(match[1])
        span = range(first, int(match[2]) if match[2] else first + 1)
        if not span:
            raise SpecError("seeds", f"{part.strip()} is an empty range", "write 0:10 for ten seeds")
        if len(seeds) + len(span) > _MOST_SEEDS:
            raise SpecError("seeds", f"{text!r:.60} has more than {_MOST_SEEDS} seeds", "train fewer at once")
        seeds += span
    return tuple(seeds)
