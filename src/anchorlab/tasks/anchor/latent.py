"""The part of a sequence that determines its answer; the rest is noise."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int


@dataclass(frozen=True)
class Latent:
    """The tokens and positions of a rule's slots; -1 if nothing was found, or if the rule has fewer slots.

    Shapes
        rule: the index of the rule, `[row]`
        anchors, anchor_positions: by anchor slot, `[row anchor]`; for a slot that occurs twice, its first position
        keys, key_positions: by key slot, `[row slot]`
    """

    rule: Int[np.ndarray, "row"]
    anchors: Int[np.ndarray, "row anchor"]
    anchor_positions: Int[np.ndarray, "row anchor"]
    keys: Int[np.ndarray, "row slot"]
    key_positions: Int[np.ndarray, "row slot"]

    def __len__(self) -> int:
        return int(self.rule.shape[0])

    @classmethod
    def concatenate(cls, parts: Sequence["Latent"]) -> "Latent":
        """Return the rows of all parts."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))

    @property
    def found(self) -> Bool[np.ndarray, "row"]:
        """Whether each row has a latent."""
        return self.rule >= 0

    def select(self, rows: np.ndarray | slice) -> "Latent":
        """Return some of the rows, by index or mask."""
        return Latent(*(value[rows] for value in vars(self).values()))

    def with_keys(self, keys: Int[np.ndarray, "row slot"]) -> "Latent":
        """Return the same slots with other keys."""
        return replace(self, keys=keys)

    def columns(self) -> Int[np.ndarray, "row column"]:
        """Return all fields side by side; equal rows are equal latents."""
        return np.column_stack([*vars(self).values()])
