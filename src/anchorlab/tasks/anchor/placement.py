"""Where anchors and keys stand: the placement both draws (by listing every arrangement) and tests."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Int, Integer
from pydantic import Field, model_validator

from anchorlab.errors import SpecError
from anchorlab.spec import Spec
from anchorlab.tasks.anchor.vocabulary import Vocabulary

MOST_ARRANGEMENTS = 2**20


@dataclass(frozen=True)
class Latent:
    """The part of a sequence that decides its answer; everything else is noise. -1 where nothing was found.

    Shapes
        anchors: the anchor tokens, in order, `[row anchor]`
        anchor_position: where the first of them stands, `[row]`
        key: the key token, `[row]`
        key_position: where it stands, `[row]`
    """

    anchors: Int[np.ndarray, "row anchor"]
    anchor_position: Int[np.ndarray, "row"]
    key: Int[np.ndarray, "row"]
    key_position: Int[np.ndarray, "row"]

    def __len__(self) -> int:
        return int(self.key.shape[0])

    def select(self, rows: np.ndarray) -> "Latent":
        """Some of the rows, by index or mask."""
        return Latent(self.anchors[rows], self.anchor_position[rows], self.key[rows], self.key_position[rows])


class Placement(Spec):
    """`anchors` anchors one after the other at a uniform position, and one key at a fixed offset from the first.

    `offset` is the key's position minus the first anchor's: 1 is right after a single anchor, -1 right before; a table
    gives each (first) anchor an offset of its own.

        length 9, offset 1      . . . a x . . . .        one-anchor function, equations (1)-(4)
        length 9, offset 2      . . . a . x . . .        section 5.2
        anchors 2, offset -1    . . x a b . . . .        two-anchor composite function, equation (5)
    """

    length: int = Field(9, ge=2, le=4096)
    anchors: int = Field(1, ge=1, le=8)
    offset: int | dict[int, int] = 1

    @model_validator(mode="after")
    def _fits(self) -> "Placement":
        offsets = self.offset.values() if isinstance(self.offset, dict) else [self.offset]
        for offset in offsets:
            if 0 <= offset < self.anchors:
                raise SpecError(
                    "offset", f"{offset} puts the key where an anchor stands", f"use -1, or {self.anchors} and more"
                )
            if not self.starts(offset):
                needed = max(offset + 1, self.anchors - min(offset, 0))
                raise SpecError(
                    "length", f"{self.length} is too short for a key at offset {offset}", f"use at least {needed}"
                )
        return self

    def starts(self, offset: int) -> range:
        """The positions at which the first anchor can stand."""
        return range(max(0, -offset), self.length - max(self.anchors - 1, offset))

    def offset_of(self, anchor: int) -> int:
        """The key's offset after this first anchor."""
        return self.offset if isinstance(self.offset, int) else self.offset[anchor]

    def check_anchors(self, anchors: Iterable[int]) -> None:
        """Raises `SpecError` unless a table of offsets has exactly these anchors."""
        if isinstance(self.offset, dict) and set(self.offset) != set(anchors):
            raise SpecError("offset", f"is given for {sorted(self.offset)}", f"give one for each of {sorted(anchors)}")

    def arrangements(self, vocabulary: Vocabulary) -> Latent:
        """Every arrangement of anchors, position and key, once."""
        keys = np.arange(vocabulary.items[0], vocabulary.items[1] + 1)
        anchors, starts, offsets = [], [], []
        for combination in product(vocabulary.anchors, repeat=self.anchors):
            offset = self.offset_of(combination[0])
            for start in self.starts(offset):
                anchors.append(combination)
                starts.append(start)
                offsets.append(offset)
        position = np.repeat(starts, len(keys))
        return Latent(
            anchors=np.repeat(np.array(anchors, dtype=np.int64), len(keys), axis=0),
            anchor_position=position,
            key=np.tile(keys, len(starts)),
            key_position=position + np.repeat(offsets, len(keys)),
        )

    def write(self, sequences: Integer[np.ndarray, "row position"], latent: Latent) -> None:
        """Puts anchors and keys into sequences of noise, in place."""
        flat = sequences.reshape(-1)
        first = np.arange(len(latent)) * self.length
        for index in range(self.anchors):
            flat[first + latent.anchor_position + index] = latent.anchors[:, index]
        flat[first + latent.key_position] = latent.key

    def find(self, sequences: Int[np.ndarray, "row position"], vocabulary: Vocabulary) -> Latent:
        """Reads anchors and key back from any sequences; -1 in every field of a row without exactly one arrangement."""
        rows = np.arange(sequences.shape[0])
        nothing = np.full(len(rows), -1)
        if sequences.shape[1] != self.length:
            return Latent(np.full((len(rows), self.anchors), -1), nothing, nothing, nothing)
        is_anchor = vocabulary.is_anchor(sequences)
        start = is_anchor.argmax(axis=1)
        last = np.minimum(start + self.anchors, self.length) - 1
        found = (is_anchor.sum(axis=1) == self.anchors) & (last - start == self.anchors - 1)
        within = np.minimum(start[:, None] + np.arange(self.anchors), self.length - 1)
        anchors = sequences[rows[:, None], within]
        found &= vocabulary.is_anchor(anchors).all(axis=1)
        if isinstance(self.offset, dict):
            offset = np.zeros(len(rows), dtype=np.int64)
            for anchor, its_offset in self.offset.items():
                offset[anchors[:, 0] == anchor] = its_offset
        else:
            offset = np.full(len(rows), self.offset)
        position = start + offset
        found &= (position >= 0) & (position < self.length)
        position = np.where(found, position, 0)
        key = sequences[rows, position]
        found &= vocabulary.is_item(key)
        return Latent(
            anchors=np.where(found[:, None], anchors, -1),
            anchor_position=np.where(found, start, -1),
            key=np.where(found, key, -1),
            key_position=np.where(found, position, -1),
        )
