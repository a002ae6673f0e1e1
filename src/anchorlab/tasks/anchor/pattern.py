"""Patterns: the order of the anchors and keys of a sequence, and the gaps between them."""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int

from anchorlab.errors import SpecError

MOST_ASSIGNMENTS = 2**18
_ANCHOR, _KEY, _LITERAL = re.compile("[A-Z][A-Za-z0-9_]*"), re.compile("[a-z][a-z0-9_]*"), re.compile("[0-9]{1,6}")
_REMEDY = "write slots in a row, such as `A x`, `x A ... B` or `^ A x B y A $`"


@dataclass(frozen=True)
class Gap:
    """Noise between two written tokens: `least` tokens of it, or any larger number if `open`."""

    least: int
    open: bool


@dataclass(frozen=True)
class Pattern:
    """The tokens of a sequence that are written (anchors and keys, not noise), left to right.

    They may begin anywhere in the sequence, unless the pattern is pinned to an end.

        A, B, ...    an anchor of the vocabulary                    x, y, m, ...   a key, drawn from the items
        3            the anchor 3 itself                            a name again   the same token again
        .            one token of noise                             ...            any number of noise tokens, or none
        ^            first in the pattern: the sequence's start     $              last: the sequence's end

    `slots` are the names, anchors before keys. `places` holds the slot of each written token in order, and `gaps` holds
    the gap before each written token and after the last.

    >>> Pattern.parse("x A . B").positions(6).tolist()
    [[0, 1, 3], [1, 2, 4], [2, 3, 5]]
    """

    text: str
    anchors: tuple[str, ...]
    keys: tuple[str, ...]
    places: tuple[int, ...]
    gaps: tuple[Gap, ...]

    @classmethod
    def parse(cls, text: str) -> "Pattern":
        """Return the pattern that `text` describes. Errors: `SpecError` for text that is not a pattern."""
        words = text.split()
        pinned_start, pinned_end = words[:1] == ["^"], words[-1:] == ["$"]
        names: list[str] = []
        gaps: list[Gap] = []
        least, open_ = 0, not pinned_start
        for word in words[pinned_start : len(words) - pinned_end]:
            if word == ".":
                least += 1
            elif word == "...":
                open_ = True
            elif _ANCHOR.fullmatch(word) or _KEY.fullmatch(word) or _LITERAL.fullmatch(word):
                names.append(word)
                gaps.append(Gap(least, open_))
                least, open_ = 0, False
            else:
                raise SpecError("pattern", f"cannot read {word!r:.40} in {text!r:.80}", _REMEDY)
        if not names:
            raise SpecError("pattern", f"{text!r:.80} names no token", _REMEDY)
        gaps.append(Gap(least, open_ or not pinned_end))
        anchors = tuple(dict.fromkeys(name for name in names if not _KEY.fullmatch(name)))
        keys = tuple(dict.fromkeys(name for name in names if _KEY.fullmatch(name)))
        slots = (*anchors, *keys)
        return cls(" ".join(words), anchors, keys, tuple(slots.index(name) for name in names), tuple(gaps))

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the anchors, then of the keys."""
        return (*self.anchors, *self.keys)

    @cached_property
    def first(self) -> tuple[int, ...]:
        """For each slot, the index into `places` of its first written token."""
        return tuple(self.places.index(slot) for slot in range(len(self.slots)))

    def positions(self, length: int) -> Int[np.ndarray, "assignment place"]:
        """Return every way to place the written tokens in `length` positions.

        Errors: `SpecError` for a sequence that is too short, or more than `MOST_ASSIGNMENTS` ways.
        """
        needed = len(self.places) + sum(gap.least for gap in self.gaps)
        if length < needed:
            raise SpecError("length", f"{length} is too short for `{self.text}`", f"use at least {needed}")
        after = [sum(gap.least for gap in self.gaps[i + 1 :]) + len(self.places) - i for i in range(len(self.places))]
        ways = np.zeros((1, 0), dtype=np.int64)
        for index, gap in enumerate(self.gaps[:-1]):
            lowest = (ways[:, -1] + 1 if index else np.zeros(len(ways), dtype=np.int64)) + gap.least
            highest = np.full(len(ways), length - after[index]) if gap.open else lowest
            counts = np.maximum(np.minimum(highest, length - after[index]) - lowest + 1, 0)
            if counts.sum() > MOST_ASSIGNMENTS:
                remedy = "use fewer `...` or a shorter length"
                raise SpecError("pattern", f"`{self.text}` fits in too many ways", remedy)
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            ways = np.column_stack([np.repeat(ways, counts, axis=0), np.repeat(lowest, counts) + within])
        end = self.gaps[-1]
        return ways if end.open else ways[ways[:, -1] == length - 1 - end.least]
