"""Separation: predicates that assign the final latent of a sequence to a split; nothing edits a sequence afterwards."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Int
from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator, model_validator

from anchorlab.errors import SpecError, below
from anchorlab.spec import Spec, unknown_name
from anchorlab.tasks.anchor.latent import Latent
from anchorlab.tasks.anchor.placement import Layout

SEEN, UNSEEN, NOWHERE = 0, 1, -1


class Separation(Spec):
    """A predicate that assigns every latent to a split. Subclasses set `rule`, the tag that names them in files.

    A separation may hold out keys, combinations of anchors, or both. A sequence belongs to training if nothing in it is
    held out, to the test (on data) if all its keys are held out, and to the test (on task), whatever its keys, if its
    combination of anchors is held out. A sequence with only some of its keys held out belongs to no split.

    covering: whether to refuse a task whose test has keys or answers that training never shows. The paper's own
        multi-anchor task needs False: the answer 21 = 20 + 1 occurs only in its test.
    """

    rule: str
    covering: bool = True

    @abstractmethod
    def check(self, layout: Layout) -> None:
        """Raise `SpecError` if the rule names an anchor, a position or a key that does not exist."""

    @property
    def of_keys(self) -> bool:
        """Whether the rule holds out keys."""
        return False

    @property
    def of_anchors(self) -> bool:
        """Whether the rule holds out combinations of anchors."""
        return False

    def keys_held_out(self, latent: Latent, length: int) -> Bool[np.ndarray, "row slot"]:
        """Return whether each key is held out, regardless of other keys; slots without a key may get either value."""
        return np.zeros(latent.keys.shape, dtype=bool)

    def keys_in_use(self, latent: Latent, length: int) -> Bool[np.ndarray, "row slot"]:
        """Return whether each key may occur at its position in any split; slots without a key may get either value."""
        return np.ones(latent.keys.shape, dtype=bool)

    def anchors_side(self, latent: Latent) -> Int[np.ndarray, "row"]:
        """Return `SEEN`, `UNSEEN` or `NOWHERE` for each combination of anchors."""
        return np.full(len(latent), SEEN)

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, training first."""
        if self.of_keys and self.of_anchors:
            return ("train", "test on data", "test on task")
        return ("train", "test")

    def side(self, latent: Latent, length: int) -> Int[np.ndarray, "row"]:
        """Return the index in `splits` of each latent in sequences of this `length`; -1 if it belongs to no split."""
        exists, held_out = latent.key_positions >= 0, self.keys_held_out(latent, length)
        data = np.where((held_out & exists).any(axis=1), np.where((held_out | ~exists).all(axis=1), 1, -1), 0)
        anchors = self.anchors_side(latent)
        side = np.where(anchors == SEEN, data, np.where(anchors == UNSEEN, len(self.splits) - 1, -1))
        in_use = (self.keys_in_use(latent, length) | ~exists).all(axis=1)
        return np.where(latent.found & in_use, side, -1)


class ModularResidue(Separation):
    """Hold out a key x if (x - p) mod `modulus` is one of `residues`.

    modulus: the modulus; None: n - 1
    position: whether p is the 0-based position of the first `anchor` or of the `key` itself
    residues: the residues to hold out. If the anchor at p is right before the key, the default {0} is the paper's
        example set for the key's 1-based position i: mod(x, n-1) in {i - 2}
    by_position: the paper's sets Γ, an alternative to residues: for a position p, the residues of x (not x - p) held
        out there; at other positions nothing is held out

    With several keys, all keys are held out in test and none in training.
    Source: anchor functions, section 3.2.1.
    """

    of_keys: ClassVar[bool] = True

    rule: Literal["modular_residue"] = "modular_residue"
    modulus: int | None = Field(None, ge=2, le=65_536)
    position: Literal["anchor", "key"] = "anchor"
    residues: tuple[int, ...] = (0,)
    by_position: dict[int, tuple[int, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_way(self) -> "ModularResidue":
        if self.by_position and self.residues != (0,):
            raise SpecError("by_position", "is given together with residues", "give only one of them")
        return self

    def check(self, layout: Layout) -> None:
        """Raise `SpecError` for a position outside the sequence."""
        length = layout.placement.length
        for place in self.by_position:
            if not 0 <= place < length:
                raise SpecError("by_position", f"{place} is outside the {length} positions", "count them from 0")

    def keys_held_out(self, latent: Latent, length: int) -> Bool[np.ndarray, "row slot"]:
        """Return whether each key has a held-out residue."""
        modulus = self.modulus or max(length - 1, 2)
        position = self._place(latent)
        if not self.by_position:
            return np.isin((latent.keys - position) % modulus, np.mod(self.residues, modulus))
        held_out = np.zeros(latent.keys.shape, dtype=bool)
        for place, residues in self.by_position.items():
            held_out |= (position == place) & np.isin(latent.keys % modulus, np.mod(residues, modulus))
        return held_out

    def _place(self, latent: Latent) -> Int[np.ndarray, "row slot_or_one"]:
        """Return the position p of each key."""
        return latent.anchor_positions[:, :1] if self.position == "anchor" else latent.key_positions


class MovingKeys(ModularResidue):
    """Modular residue, for keys whose range moves with the position.

    numbers: the first and the last value that x - p may have; the other fields are as in `ModularResidue`

    The authors' code draws a number from 20 to 99, assigns it to a split by its residue, and adds the position. So keys
    range from 20 + p to 99 + p. A sequence with any other key belongs to no split.
    """

    rule: Literal["moving_keys"] = "moving_keys"  # type: ignore[assignment]
    numbers: tuple[int, int] = (20, 99)

    def keys_in_use(self, latent: Latent, length: int) -> Bool[np.ndarray, "row slot"]:
        """Return whether each key is within its range."""
        moved = latent.keys - self._place(latent)
        return np.asarray((moved >= self.numbers[0]) & (moved <= self.numbers[1]))


class AnchorBased(Separation):
    """Hold out ranges of keys for each anchor; the first anchor of a sequence decides.

    held_out: for each anchor, inclusive ranges of keys

    Source: anchor functions, section 3.2.2.
    """

    of_keys: ClassVar[bool] = True

    rule: Literal["anchor_based"] = "anchor_based"
    held_out: dict[int, tuple[tuple[int, int], ...]]

    def check(self, layout: Layout) -> None:
        """Raise `SpecError` for an unknown anchor or a range outside the items."""
        lowest, highest = layout.vocabulary.items
        for anchor, ranges in self.held_out.items():
            if anchor not in layout.vocabulary.anchors:
                remedy = f"choose from {sorted(layout.vocabulary.anchors)}"
                raise SpecError("held_out", f"{anchor} is not an anchor", remedy)
            for first, last in ranges:
                if not lowest <= first <= last <= highest:
                    problem = f"{first}..{last} is not a range of items"
                    raise SpecError(f"held_out.{anchor}", problem, f"keep to {lowest}..{highest}")

    def keys_held_out(self, latent: Latent, length: int) -> Bool[np.ndarray, "row slot"]:
        """Return whether each key is held out for the first anchor of its row."""
        held_out = np.zeros(latent.keys.shape, dtype=bool)
        for anchor, ranges in self.held_out.items():
            for first, last in ranges:
                held_out |= (latent.anchors[:, :1] == anchor) & (latent.keys >= first) & (latent.keys <= last)
        return held_out


class CompositeAnchor(Separation):
    """Hold out combinations of anchors.

    unseen: the combinations to hold out, in the order of the pattern's slots, as in `((3, 4),)`
    seen: the combinations in training; None: all others. A combination in neither list belongs to no split.

    Source: anchor functions, section 3.2.3.
    """

    of_anchors: ClassVar[bool] = True

    rule: Literal["composite_anchor"] = "composite_anchor"
    unseen: tuple[tuple[int, ...], ...] = Field(min_length=1)
    seen: tuple[tuple[int, ...], ...] | None = None

    @field_validator("seen")
    @classmethod
    def _some(cls, seen: tuple[tuple[int, ...], ...] | None) -> tuple[tuple[int, ...], ...] | None:
        if seen is not None and not seen:
            raise SpecError("", "is empty", "name what training shows, or leave it out for all others")
        return seen

    def check(self, layout: Layout) -> None:
        """Raise `SpecError` for a combination that the patterns cannot form, and for a combination in both lists."""
        known = {tuple(one) for some in layout.combinations for one in some.tolist()}
        for field, listed in (("unseen", self.unseen), ("seen", self.seen or ())):
            for one in listed:
                if one not in known:
                    raise SpecError(field, f"{list(one)} is not a combination of anchors", "name one per anchor slot")
        for one in self.seen or ():
            if one in self.unseen:
                raise SpecError("seen", f"{list(one)} is also unseen", "remove it from one of them")

    def anchors_side(self, latent: Latent) -> Int[np.ndarray, "row"]:
        """Return the side of each combination according to the lists."""
        side = np.full(len(latent), SEEN if self.seen is None else NOWHERE)
        for listed, value in ((self.seen or (), SEEN), (self.unseen, UNSEEN)):
            for one in listed:
                wide = (*one, *(-1,) * (latent.anchors.shape[1] - len(one)))
                side[(latent.anchors == wide).all(axis=1)] = value
        return side


def _parse(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    rule = value.get("rule", "modular_residue")
    if not isinstance(rule, str) or rule not in RULES:
        raise unknown_name("rule", str(rule), RULES, "separation rule")
    return RULES[rule].parse(dict(value))


AnySeparation = Annotated[SerializeAsAny[Separation], BeforeValidator(_parse)]
"""A separation of any rule, parsed from a table by its `rule` (modular residue by default)."""


class Combined(Separation):
    """Combine several rules: hold out everything that any of them holds out.

    parts: the rules, such as modular residue and composite anchor

    Source: anchor functions, section 4.4 (modular residue with composite-anchor).
    """

    rule: Literal["combined"] = "combined"
    parts: tuple[AnySeparation, ...] = Field(min_length=1)

    @property
    def of_keys(self) -> bool:
        """Whether any part holds out keys."""
        return any(part.of_keys for part in self.parts)

    @property
    def of_anchors(self) -> bool:
        """Whether any part holds out combinations of anchors."""
        return any(part.of_anchors for part in self.parts)

    def check(self, layout: Layout) -> None:
        """Check every part."""
        for index, part in enumerate(self.parts):
            with below(f"parts.{index}"):
                part.check(layout)

    def keys_held_out(self, latent: Latent, length: int) -> Bool[np.ndarray, "row slot"]:
        """Return whether any part holds out each key."""
        return np.asarray(np.logical_or.reduce([part.keys_held_out(latent, length) for part in self.parts]))

    def keys_in_use(self, latent: Latent, length: int) -> Bool[np.ndarray, "row slot"]:
        """Return whether every part allows each key."""
        return np.asarray(np.logical_and.reduce([part.keys_in_use(latent, length) for part in self.parts]))

    def anchors_side(self, latent: Latent) -> Int[np.ndarray, "row"]:
        """Return `NOWHERE` if any part returns it, else `UNSEEN` if any part does, else `SEEN`."""
        sides = np.stack([part.anchors_side(latent) for part in self.parts])
        return np.where((sides == NOWHERE).any(axis=0), NOWHERE, sides.max(axis=0))


RULES: dict[str, type[Separation]] = {
    "modular_residue": ModularResidue,
    "moving_keys": MovingKeys,
    "anchor_based": AnchorBased,
    "composite_anchor": CompositeAnchor,
    "combined": Combined,
}
