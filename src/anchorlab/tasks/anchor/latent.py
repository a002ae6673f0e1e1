"""The part of a sequence that decides its answer; everything else is noise."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int


@dataclass(frozen=True)
class Latent:
    """What a rule's slots hold and where they stand; -1 where nothing was found, or where a rule has fewer slots.

    Shapes
        rule: which rule it is, counted from 0, `[row]`
        anchors, anchor_positions: by anchor slot, `[row anchor]`; the position of a slot is where it stands first
        keys, key_positions: by key slot, `[row slot]`
    """

    rule: Int[np.ndarray, "row"]
    anchors: Int[np.ndarray, "row anchor"]
    anchor_positions: Int[np.ndarray, "row anchor"]
    keys: Int[np.ndarray, "row slot"]
    key_positions: Int[np.ndarray, "row slot"]

    def __len__(self) -> int:
        return int(self.rule.shape[0])

    @property
    def found(self) -> np.ndarray:
        """Where there is one."""
        return self.rule >= 0

    def select(self, rows: np.ndarray | slice) -> "Latent":
        """Some of the rows, by index or mask."""
        return Latent(
            self.rule[rows], self.anchors[rows], self.anchor_positions[rows], self.keys[rows], self.key_positions[rows]
        )

    def with_keys(self, keys: np.ndarray) -> "Latent":
        """The same places with other keys."""
        return Latent(self.rule, self.anchors, self.anchor_positions, keys, self.key_positions)

    def columns(self) -> np.ndarray:
        """All of it side by side, `[row column]`: equal rows are equal latents."""
        parts = (self.rule[:, None], self.anchors, self.anchor_positions, self.keys, self.key_positions)
        return np.concatenate(parts, axis=1)
