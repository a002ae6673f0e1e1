"""Placement: all ways to fit patterns into a sequence, for writing anchors and keys and for reading them back."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from jaxtyping import Int, Integer
from pydantic import Field, field_validator

from anchorlab.errors import SpecError
from anchorlab.spec import Spec
from anchorlab.tasks.anchor.latent import Latent
from anchorlab.tasks.anchor.pattern import Pattern
from anchorlab.tasks.anchor.vocabulary import Vocabulary

MOST_FRAMES = 2**18


class Placement(Spec):
    """The length of sequences, and the anchors that the slots of a pattern may hold.

    choices: the anchors that a slot may hold, as in `{"A": (1, 2), "B": (3, 4)}`; other slots may hold any anchor
    distinct: whether the anchors of one sequence must all differ
    """

    length: int = Field(9, ge=1, le=4096)
    choices: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    distinct: bool = False

    @field_validator("choices")
    @classmethod
    def _not_empty(cls, choices: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        for slot, anchors in choices.items():
            if not anchors or len(set(anchors)) < len(anchors):
                raise SpecError(slot, f"{list(anchors)} is not a choice of anchors", "name each of them once")
        return choices

    def check(self, patterns: Sequence[Pattern], vocabulary: Vocabulary) -> None:
        """Raise `SpecError` for a slot or an anchor that does not exist."""
        slots = {slot for pattern in patterns for slot in pattern.anchors}
        for slot, anchors in self.choices.items():
            if slot not in slots:
                raise SpecError(f"choices.{slot}", "is not a slot of any pattern", f"use {', '.join(sorted(slots))}")
            for anchor in anchors:
                if anchor not in vocabulary.anchors:
                    remedy = f"choose from {sorted(vocabulary.anchors)}"
                    raise SpecError(f"choices.{slot}", f"{anchor} is not an anchor", remedy)
        for pattern in patterns:
            if not (pattern.anchors and pattern.keys):
                raise SpecError("pattern", f"`{pattern.text}` lacks an anchor or a key", "write both, such as `A x`")
            for slot in pattern.anchors:
                if slot.isdigit() and int(slot) not in vocabulary.anchors:
                    problem = f"`{pattern.text}`: {slot} is not an anchor"
                    raise SpecError("pattern", problem, "list it in vocabulary.anchors")

    def allowed(self, slot: str, vocabulary: Vocabulary) -> tuple[int, ...]:
        """Return the anchors that a slot may hold."""
        return (int(slot),) if slot.isdigit() else self.choices.get(slot, vocabulary.anchors)

    def combinations(self, pattern: Pattern, vocabulary: Vocabulary) -> Int[np.ndarray, "combination anchor"]:
        """Return every choice of anchors for a pattern's slots.

        Errors: `SpecError` if there is no such choice, or more than `MOST_FRAMES`.
        """
        choices = [self.allowed(slot, vocabulary) for slot in pattern.anchors]
        if np.prod([float(len(choice)) for choice in choices]) > MOST_FRAMES:
            raise SpecError("choices", f"`{pattern.text}` has too many combinations of anchors", "use fewer anchors")
        found = [one for one in product(*choices) if not self.distinct or len(set(one)) == len(one)]
        if not found:
            raise SpecError("distinct", f"leaves no anchors for `{pattern.text}`", "give more anchors")
        return np.array(found, dtype=np.int64).reshape(-1, len(choices))


@dataclass(frozen=True)
class Layout:
    """Every way to place a task's patterns in a sequence.

    A frame fixes a pattern, its anchors and all positions, and leaves the keys to draw.

    Shapes, by pattern
        assignments: the positions of the written tokens, `[assignment place]`
        combinations: the anchors of the slots, `[combination anchor]`
    """

    patterns: tuple[Pattern, ...]
    placement: Placement
    vocabulary: Vocabulary
    assignments: tuple[np.ndarray, ...]
    combinations: tuple[np.ndarray, ...]

    @classmethod
    def build(cls, patterns: Sequence[Pattern], placement: Placement, vocabulary: Vocabulary) -> "Layout":
        """List the assignments and combinations of the patterns.

        Errors: as `Placement.check`; `SpecError` if there are too many, or if a sequence would not determine the
        positions of its keys.
        """
        placement.check(patterns, vocabulary)
        assignments = tuple(pattern.positions(placement.length) for pattern in patterns)
        combinations = tuple(placement.combinations(pattern, vocabulary) for pattern in patterns)
        frames = sum(len(one) * len(other) for one, other in zip(assignments, combinations, strict=True))
        if frames > MOST_FRAMES:
            raise SpecError("choices", f"make {frames} frames, more than {MOST_FRAMES}", "use fewer anchors or gaps")
        layout = cls(tuple(patterns), placement, vocabulary, assignments, combinations)
        layout._candidates  # noqa: B018  raises for patterns that leave the position of a key open
        return layout

    @property
    def anchors(self) -> int:
        """The largest number of anchor slots of a pattern: the width of anchors in `Latent`."""
        return max(len(pattern.anchors) for pattern in self.patterns)

    @property
    def slots(self) -> int:
        """The largest number of key slots of a pattern: the width of keys in `Latent`."""
        return max(len(pattern.keys) for pattern in self.patterns)

    @cached_property
    def frames(self) -> Latent:
        """Every frame, with keys -1 (`key_positions` is -1 for slots that do not exist)."""
        parts = []
        for index, (ways, chosen) in enumerate(zip(self.assignments, self.combinations, strict=True)):
            rows = np.repeat(np.arange(len(ways)), len(chosen))
            parts.append(self._latent(index, ways[rows], np.tile(chosen, (len(ways), 1)), None))
        return Latent.concatenate(parts)

    def _latent(self, rule: int, ways: np.ndarray, anchors: np.ndarray, keys: np.ndarray | None) -> Latent:
        """Return latents of one rule from positions `[row place]`, anchors `[row anchor]` and keys `[row slot]`."""
        pattern = self.patterns[rule]
        first = ways[:, list(pattern.first)]
        count = len(pattern.anchors)
        return Latent(
            np.full(len(ways), rule),
            _wide(anchors, self.anchors),
            _wide(first[:, :count], self.anchors),
            _wide(np.full((len(ways), len(pattern.keys)), -1) if keys is None else keys, self.slots),
            _wide(first[:, count:], self.slots),
        )

    @cached_property
    def _code(self) -> np.ndarray:
        # One random word per position: its sum over a set of positions identifies the set, and is fast to look up.
        return np.random.Generator(np.random.SFC64(0)).integers(-(2**62), 2**62, size=self.placement.length)

    @cached_property
    def _candidates(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The sorted codes of sets of anchor positions, and the rules and assignments `[code depth]` with each code."""
        listed: dict[int, list[tuple[int, int]]] = {}
        for rule, (pattern, ways) in enumerate(zip(self.patterns, self.assignments, strict=True)):
            places = [place for place, slot in enumerate(pattern.places) if slot < len(pattern.anchors)]
            with np.errstate(over="ignore"):
                codes = self._code[ways[:, places]].sum(axis=1)
            for way, code in enumerate(codes.tolist()):
                found = listed.setdefault(code, [])
                if any(other == rule for other, _ in found):
                    problem = f"`{pattern.text}` leaves the position of a key open"
                    raise SpecError("pattern", problem, "tie it to an anchor or an end")
                found.append((rule, way))
        codes = np.array(sorted(listed), dtype=np.int64)
        table = np.full((2, len(codes), max(map(len, listed.values()))), -1)
        for row, code in enumerate(codes.tolist()):
            for depth, (rule, way) in enumerate(listed[code]):
                table[:, row, depth] = rule, way
        return codes, table[0], table[1]

    @property
    def alone(self) -> bool:
        """Whether the positions of the anchors determine the rule."""
        return bool(self._candidates[1].shape[1] == 1)

    @cached_property
    def _written(self) -> tuple[Int[np.ndarray, "frame place"], Int[np.ndarray, "rule place"]]:
        """The positions of each frame's written tokens, and each rule's slots of them, anchors first; -1 pads both."""
        places = max(ways.shape[1] for ways in self.assignments)
        shown = np.full((len(self.patterns), places), -1)
        for rule, pattern in enumerate(self.patterns):
            count = len(pattern.anchors)
            shown[rule, : len(pattern.places)] = [s if s < count else self.anchors + s - count for s in pattern.places]
        ways = [
            np.repeat(_wide(ways, places), len(chosen), axis=0)
            for ways, chosen in zip(self.assignments, self.combinations, strict=True)
        ]
        return np.concatenate(ways), shown

    def places(self, rule: int, sequence: Int[np.ndarray, "position"]) -> list[int]:
        """Return the position of each written token of a sequence that fits a rule, repeats included."""
        codes, rules, ways = self._candidates
        with np.errstate(over="ignore"):
            at = np.searchsorted(codes, (self.vocabulary.is_anchor(sequence) * self._code).sum())
        found: list[int] = self.assignments[rule][ways[at, rules[at].tolist().index(rule)]].tolist()
        return found

    def write(
        self, sequences: Integer[np.ndarray, "row position"], frames: Int[np.ndarray, "row"], latent: Latent
    ) -> None:
        """Write anchors and keys, repeats included, into `sequences` in place; `frames` are rows of `self.frames`."""
        ways, shown = self._written
        flat, first = sequences.reshape(-1), np.arange(len(latent)) * self.placement.length
        values = np.concatenate([latent.anchors, latent.keys], axis=1)
        for place in range(ways.shape[1]):
            position, slot = ways[frames, place], shown[latent.rule, place]
            if (slot >= 0).all():
                flat[first + position] = values[np.arange(len(values)), slot]
            else:
                rows = np.flatnonzero(slot >= 0)
                flat[first[rows] + position[rows]] = values[rows, slot[rows]]

    def find(self, sequences: Int[np.ndarray, "row position"]) -> Latent:
        """Return the latents of any sequences; a row that fits no rule, or several, has -1 in every field."""
        rows, vocabulary = len(sequences), self.vocabulary
        nothing = Latent(
            np.full(rows, -1), *(np.full((rows, w), -1) for w in (self.anchors, self.anchors, self.slots, self.slots))
        )
        if sequences.shape[1] != self.placement.length:
            return nothing
        codes, rules, ways = self._candidates
        is_anchor = vocabulary.is_anchor(sequences)
        with np.errstate(over="ignore"):
            code = (is_anchor * self._code).sum(axis=1)
        at = np.minimum(np.searchsorted(codes, code), len(codes) - 1)
        hit, fits = codes[at] == code, np.zeros(rows, dtype=np.int64)
        for depth in range(rules.shape[1]):
            for rule, pattern in enumerate(self.patterns):
                mine = np.flatnonzero(hit & (rules[at, depth] == rule))
                where = self.assignments[rule][ways[at[mine], depth]]
                good, anchors, keys = self._read(rule, sequences[mine[:, None], where])
                good &= is_anchor[mine].sum(axis=1) == sum(slot < len(pattern.anchors) for slot in pattern.places)
                mine, where, anchors, keys = mine[good], where[good], anchors[good], keys[good]
                fits[mine] += 1
                found = self._latent(rule, where, anchors, keys)
                for part, value in zip(vars(nothing).values(), vars(found).values(), strict=True):
                    part[mine] = value
        for part in vars(nothing).values():
            part[fits != 1] = -1
        return nothing

    def _read(self, rule: int, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return whether tokens `[row place]` fit the rule, their anchors `[row anchor]` and keys `[row slot]`."""
        pattern, count = self.patterns[rule], len(self.patterns[rule].anchors)
        slots = tokens[:, list(pattern.first)]
        good = (tokens == slots[:, list(pattern.places)]).all(axis=1)
        for index, slot in enumerate(pattern.anchors):
            good &= np.isin(slots[:, index], self.placement.allowed(slot, self.vocabulary))
        good &= self.vocabulary.is_item(slots[:, count:]).all(axis=1)
        if self.placement.distinct:
            good &= (np.diff(np.sort(slots[:, :count], axis=1), axis=1) != 0).all(axis=1)
        return good, slots[:, :count], slots[:, count:]


def _wide(values: np.ndarray, width: int) -> np.ndarray:
    """Pad with columns of -1 to `width`."""
    return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=-1)
