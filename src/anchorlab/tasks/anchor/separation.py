"""Who may be trained on: a predicate on the final latent that names its split; nothing edits a sequence afterwards."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Int
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from anchorlab.errors import SpecError
from anchorlab.spec import Spec, unknown_name
from anchorlab.tasks.anchor.placement import Latent, Placement
from anchorlab.tasks.anchor.vocabulary import Vocabulary

TRAIN, TEST = 0, 1


class Separation(Spec):
    """A rule that gives every latent one side. Subclasses set `rule`, the tag by which files name them.

    `covering` asks that every key and answer of test occurs as such in training, else the task is refused. The paper's
    own multi-anchor task does not: 21 = 20 + 1 is asked for, and no other anchor and key make it.
    """

    rule: str
    covering: bool = True

    @abstractmethod
    def check(self, vocabulary: Vocabulary, placement: Placement) -> None:
        """Raises `SpecError` where the rule names an anchor, a position or a key that does not exist."""

    @abstractmethod
    def side(self, latent: Latent, placement: Placement) -> Int[np.ndarray, "row"]:
        """`TRAIN` or `TEST` for each row; rows of -1 get any."""


class ModularResidue(Separation):
    """A key x stands in test only when the residue of x - p is held out, in training only when it is not.

    p is the 0-based position of the first anchor or of the key, the modulus n - 1 unless given, the residues held out
    {0}: with an anchor at p right before the key this is the paper's example set for the key's 1-based position i,
    mod(x, n-1) in {i - 2}. `by_position` gives the paper's sets Γ outright instead: position -> residues of x that
    are held out there; a position without an entry holds none out.
    Source: anchor function paper, section 3.2.1.
    """

    rule: Literal["modular_residue"] = "modular_residue"
    modulus: int | None = Field(None, ge=2, le=65_536)
    position: Literal["anchor", "key"] = "anchor"
    residues: tuple[int, ...] = (0,)
    by_position: dict[int, tuple[int, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_way(self) -> "ModularResidue":
        if self.by_position and self.residues != (0,):
            raise SpecError("by_position", "is given beside residues", "give one of them")
        return self

    def check(self, vocabulary: Vocabulary, placement: Placement) -> None:
        """Raises `SpecError` for a position outside the sequence."""
        for place in self.by_position:
            if not 0 <= place < placement.length:
                raise SpecError(
                    "by_position", f"{place} is outside the {placement.length} positions", "count them from 0"
                )

    def side(self, latent: Latent, placement: Placement) -> Int[np.ndarray, "row"]:
        """`TEST` where the residue is held out."""
        modulus = self.modulus or max(placement.length - 1, 2)
        position = latent.anchor_position if self.position == "anchor" else latent.key_position
        if not self.by_position:
            held_out = np.isin((latent.key - position) % modulus, self._reduced(self.residues, modulus))
            return np.where(held_out, TEST, TRAIN)
        side = np.full(len(latent), TRAIN)
        for place, residues in self.by_position.items():
            side[(position == place) & np.isin(latent.key % modulus, self._reduced(residues, modulus))] = TEST
        return side

    @staticmethod
    def _reduced(residues: tuple[int, ...], modulus: int) -> list[int]:
        return [residue % modulus for residue in residues]


class AnchorBased(Separation):
    """Each (first) anchor has its own keys in training; the rest, given as inclusive ranges, come in test only.

    Source: anchor function paper, section 3.2.2.
    """

    rule: Literal["anchor_based"] = "anchor_based"
    held_out: dict[int, tuple[tuple[int, int], ...]]

    def check(self, vocabulary: Vocabulary, placement: Placement) -> None:
        """Raises `SpecError` for an unknown anchor or a range outside the items."""
        lowest, highest = vocabulary.items
        for anchor, ranges in self.held_out.items():
            if anchor not in vocabulary.anchors:
                raise SpecError("held_out", f"{anchor} is not an anchor", f"choose from {sorted(vocabulary.anchors)}")
            for first, last in ranges:
                if not lowest <= first <= last <= highest:
                    raise SpecError(
                        f"held_out.{anchor}", f"{first}..{last} is not a range of items", f"keep to {lowest}..{highest}"
                    )

    def side(self, latent: Latent, placement: Placement) -> Int[np.ndarray, "row"]:
        """`TEST` where the anchor's key is held out."""
        side = np.full(len(latent), TRAIN)
        for anchor, ranges in self.held_out.items():
            for first, last in ranges:
                side[(latent.anchors[:, 0] == anchor) & (latent.key >= first) & (latent.key <= last)] = TEST
        return side


RULES: dict[str, type[Separation]] = {"modular_residue": ModularResidue, "anchor_based": AnchorBased}


def _parse(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    rule = value.get("rule", "modular_residue")
    if not isinstance(rule, str) or rule not in RULES:
        raise unknown_name("rule", str(rule), RULES, "separation rule")
    return RULES[rule].parse(dict(value))


AnySeparation = Annotated[SerializeAsAny[Separation], BeforeValidator(_parse)]
"""A separation of any rule, read from a table by its `rule`, modular residue when it names none."""
