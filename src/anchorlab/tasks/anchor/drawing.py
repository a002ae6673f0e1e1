"""Draw the sequences of a split: first a frame, then the keys, each among those that the separation allows there."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.random import Generator

from anchorlab.errors import SpecError
from anchorlab.tasks.alias import AliasTable
from anchorlab.tasks.anchor.latent import Latent
from anchorlab.tasks.anchor.noise import MarkovNoise
from anchorlab.tasks.anchor.placement import Layout
from anchorlab.tasks.anchor.reader import Found, Reader
from anchorlab.tasks.anchor.separation import SEEN, UNSEEN, Separation

_MOST_REDRAWS = 1000


@dataclass(frozen=True, eq=False)
class Drawing:
    """The frames of one split, their probabilities, and the keys allowed in each of their slots.

    Shapes
        frames: rows of `Layout.frames`, `[choice]`
        group, weights: the group of each frame, and its probability up to a common factor, `[choice]`
        kind: the index of each slot's list of allowed keys, `[choice slot]`
        start, count: the position of each list in `allowed` and its length, `[kind]`
        allowed: the lists of allowed keys, concatenated
    """

    frames: Int[np.ndarray, "choice"]
    group: Int[np.ndarray, "choice"]
    weights: Float[np.ndarray, "choice"]
    kind: Int[np.ndarray, "choice slot"]
    start: Int[np.ndarray, "kind"]
    count: Int[np.ndarray, "kind"]
    allowed: Int[np.ndarray, "key"]

    @cached_property
    def _table(self) -> AliasTable:
        return AliasTable.build(self.weights[None, :])

    @cached_property
    def _tables_by_group(self) -> dict[int, AliasTable]:
        groups = np.unique(self.group).tolist()
        return {one: AliasTable.build(np.where(self.group == one, self.weights, 0.0)[None, :]) for one in groups}

    @property
    def latents(self) -> float:
        """The number of latents: the product of the keys allowed in each slot, summed over frames."""
        return float(np.prod(self.count[self.kind].astype(np.float64), axis=1).sum())

    def listed(self, kind: int) -> Int[np.ndarray, "key"]:
        """Return the keys of one list."""
        return np.asarray(self.allowed[self.start[kind] : self.start[kind] + self.count[kind]])

    def frame(
        self, random: Generator, rows: int, groups: Int[np.ndarray, "row"] | None = None
    ) -> Int[np.ndarray, "row"]:
        """Draw an index into `frames` for each row, within the row's group if `groups` are given."""
        if groups is None:
            return self._table.draw(random, np.zeros(rows, dtype=np.int64))
        chosen = np.empty(rows, dtype=np.int64)
        for group in np.unique(groups).tolist():
            mine = np.flatnonzero(groups == group)
            chosen[mine] = self._tables_by_group[group].draw(random, np.zeros(len(mine), dtype=np.int64))
        return chosen

    def keys(self, random: Generator, chosen: Int[np.ndarray, "row"]) -> Int[np.ndarray, "row slot"]:
        """Draw a key for each slot of each row, uniformly from the allowed keys; -1 if the rule has no such slot."""
        kind = self.kind[chosen]
        # uniform within the list of each slot; the lists lie one after another in `allowed`
        index = (random.random(kind.shape) * self.count[kind]).astype(np.int64)
        return np.asarray(self.allowed[self.start[kind] + index])


def drawings(layout: Layout, separation: Separation, group: Int[np.ndarray, "frame"]) -> dict[str, Drawing]:
    """Return the frames and keys that each split draws from; `group` is the group of each frame of the layout.

    The rule is drawn uniformly, then its anchors, then their positions, all among frames for which the split has keys.
    Errors: `SpecError` for a split without any frame.
    """
    frames, items = layout.frames, np.arange(layout.vocabulary.items[0], layout.vocabulary.items[1] + 1)
    exists = frames.key_positions >= 0
    # ask the separation about every item in every slot of every frame: each frame is repeated once per item, with this
    # item in all of its slots; the answer is `[frame slot item]`
    rows = np.repeat(np.arange(len(frames)), len(items))
    with_items = frames.select(rows)
    keys = np.where(exists[rows], np.tile(items, len(frames))[:, None], -1)
    latents, length = with_items.with_keys(keys), layout.placement.length
    held_out, in_use = (
        one(latents, length).reshape(len(frames), len(items), -1).swapaxes(1, 2)
        for one in (separation.keys_held_out, separation.keys_in_use)
    )
    anchors = separation.anchors_side(frames)
    sides = [(anchors == SEEN, in_use & ~held_out if separation.of_keys else in_use)]
    if separation.of_keys:
        sides.append((anchors == SEEN, in_use & held_out))
    if separation.of_anchors:
        sides.append((anchors == UNSEEN, in_use))
    found = {}
    for name, (mine, allowed) in zip(separation.splits, sides, strict=True):
        drawing = _drawing(layout, mine, allowed, group, items)
        if drawing is None:
            raise SpecError("separation", f"leaves no {name} keys", "hold out other keys")
        found[name] = drawing
    return found


def _drawing(
    layout: Layout,
    mine: Bool[np.ndarray, "frame"],
    allowed: Bool[np.ndarray, "frame slot item"],
    group: Int[np.ndarray, "frame"],
    items: Int[np.ndarray, "item"],
) -> Drawing | None:
    """Return the drawing of those frames in `mine` that have an allowed key for every slot; None if there are none."""
    frames, exists = layout.frames, layout.frames.key_positions >= 0
    chosen = np.flatnonzero(mine & (allowed.any(axis=2) | ~exists).all(axis=1) & exists.any(axis=1))
    if not len(chosen):
        return None
    packed = np.packbits(allowed[chosen].reshape(-1, len(items)), axis=1)  # packed bytes sort faster than bools
    # many slots allow the same keys: keep each list of allowed keys once, and its index for every slot
    _, one, kind = np.unique(packed.view(f"V{packed.shape[1]}").ravel(), return_index=True, return_inverse=True)
    masks = allowed[chosen].reshape(-1, len(items))[one]
    kind = np.where(exists[chosen], kind.reshape(len(chosen), -1), len(masks))
    lists = [items[mask] for mask in masks] + [np.array([-1])]  # the last list is for slots that the rule lacks
    count = np.array([len(one) for one in lists])
    return Drawing(
        frames=chosen,
        group=group[chosen],
        weights=_shares(frames.select(chosen)),
        kind=kind,
        start=np.cumsum([0, *count[:-1]]),
        count=count,
        allowed=np.concatenate(lists),
    )


def _shares(frames: Latent) -> Float[np.ndarray, "frame"]:
    """Return weights that make rules equally likely, then the anchors of a rule, then the anchors' positions."""
    _, first, same, frames_in = np.unique(
        np.column_stack([frames.rule, frames.anchors]),
        axis=0,
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    anchors_in = np.bincount(frames.rule[first], minlength=int(frames.rule.max()) + 1)
    return np.asarray(1.0 / (anchors_in[frames.rule] * frames_in[same.reshape(-1)]))


def draw_sequences(
    reader: Reader,
    drawing: Drawing,
    choice: Int[np.ndarray, "row"],
    random: Generator,
    into: Int[np.ndarray, "row position"],
    noise: MarkovNoise | None = None,
) -> Found:
    """Write a sequence of each chosen frame into `into`; draw again until each sequence has exactly one answer.

    `choice` is an index into `drawing.frames`. Returns the latents drawn, with their answers and the rivals' answers.

    Errors: `SpecError` if some rows still have no answer after a thousand draws.
    """
    layout = reader.layout
    first, last = layout.vocabulary.items
    frames = drawing.frames[choice]
    places = layout.frames.select(frames)

    def draw(rows: np.ndarray | slice) -> Found:
        latent = places.select(rows).with_keys(drawing.keys(random, choice[rows]))
        size = len(latent), layout.placement.length
        if noise is None:
            tokens = random.integers(first, last + 1, size=size, dtype=np.uint16)
        else:
            tokens = noise.draw(random, *size, layout.vocabulary.items)
        layout.write(tokens, frames[rows], latent)
        into[rows] = tokens
        found = reader.answer(latent, into[rows], rivals=True)
        if not layout.alone:  # several patterns share their anchors' positions: draw again if a second one fits
            found.answer[layout.find(into[rows]).rule != latent.rule] = -1
        return found

    found = draw(slice(None))
    for _ in range(_MOST_REDRAWS):
        again = np.flatnonzero(found.answer < 0)
        if not len(again):
            return found
        new = draw(again)
        found.latent.keys[again], found.answer[again] = new.latent.keys, new.answer
        for name, other in found.rivals.items():
            other[again] = new.rivals[name]
    raise SpecError("rules", "hardly ever have an answer", "choose rules that seldom tie or fit the same sequence")
