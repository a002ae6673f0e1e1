"""How the latents of one split are drawn: a frame, then every key among those that the separation allows there."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from numpy.random import Generator

from anchorlab.tasks.alias import AliasTable
from anchorlab.tasks.anchor.latent import Latent
from anchorlab.tasks.anchor.placement import Layout
from anchorlab.tasks.anchor.separation import SEEN, UNSEEN, Separation


@dataclass(frozen=True)
class Drawing:
    """What one split draws from.

    Shapes
        frames: the rows of `Layout.frames` that this split has, `[choice]`
        group: the group of each, `[choice]`
        kind: which list of allowed keys a slot has, `[choice slot]`
        start, count: where that list lies in `allowed`, `[kind]`
        allowed: the lists of allowed keys, one after the other
    """

    frames: Int[np.ndarray, "choice"]
    group: Int[np.ndarray, "choice"]
    kind: Int[np.ndarray, "choice slot"]
    start: Int[np.ndarray, "kind"]
    count: Int[np.ndarray, "kind"]
    allowed: Int[np.ndarray, "key"]
    alias: AliasTable
    by_group: Mapping[int, AliasTable]

    @property
    def latents(self) -> float:
        """How many latents there are: over frames, the product of the keys allowed in each slot."""
        return float(np.prod(self.count[self.kind].astype(np.float64), axis=1).sum())

    def listed(self, kind: int) -> Int[np.ndarray, "key"]:
        """The keys of one list."""
        keys: np.ndarray = self.allowed[self.start[kind] : self.start[kind] + self.count[kind]]
        return keys

    def frame(
        self, random: Generator, rows: int, groups: Int[np.ndarray, "row"] | None = None
    ) -> Int[np.ndarray, "row"]:
        """An index into `frames` for each row, of a given group if any."""
        if groups is None:
            return self.alias.draw(random, np.zeros(rows, dtype=np.int64))
        chosen = np.empty(rows, dtype=np.int64)
        for group in np.unique(groups).tolist():
            mine = np.flatnonzero(groups == group)
            chosen[mine] = self.by_group[group].draw(random, np.zeros(len(mine), dtype=np.int64))
        return chosen

    def keys(self, random: Generator, chosen: Int[np.ndarray, "row"]) -> Int[np.ndarray, "row slot"]:
        """A key for each slot of each row, uniform among those allowed; -1 where the rule has no such slot."""
        kind = self.kind[chosen]
        index = (random.random(kind.shape) * self.count[kind]).astype(np.int64)
        keys: np.ndarray = self.allowed[self.start[kind] + index]
        return keys


def draw_from(layout: Layout, separation: Separation, group: Int[np.ndarray, "frame"]) -> tuple[Drawing | None, ...]:
    """For each split of the separation what it draws from; None where nothing is left.

    Rules are uniform, then the anchors among a rule's, then the positions among those where the split has keys.
    """
    frames, items = layout.frames, np.arange(layout.vocabulary.items[0], layout.vocabulary.items[1] + 1)
    exists = frames.key_positions >= 0
    rows = np.repeat(np.arange(len(frames)), len(items))
    with_items = frames.select(rows)
    keys = np.where(exists[rows], np.tile(items, len(frames))[:, None], -1)
    held_out = separation.keys_held_out(with_items.with_keys(keys), layout.placement.length)
    held_out = held_out.reshape(len(frames), len(items), -1).swapaxes(1, 2)
    anchors, anything = separation.anchors_side(frames), np.ones_like(held_out)
    sides = [(anchors == SEEN, ~held_out if separation.of_keys else anything)]
    if separation.of_keys:
        sides.append((anchors == SEEN, held_out))
    if separation.of_anchors:
        sides.append((anchors == UNSEEN, anything))
    return tuple(_drawing(layout, mine, allowed, group, items) for mine, allowed in sides)


def _drawing(
    layout: Layout, mine: np.ndarray, allowed: np.ndarray, group: np.ndarray, items: np.ndarray
) -> Drawing | None:
    frames, exists = layout.frames, layout.frames.key_positions >= 0
    chosen = np.flatnonzero(mine & (allowed.any(axis=2) | ~exists).all(axis=1) & exists.any(axis=1))
    if not len(chosen):
        return None
    packed = np.packbits(allowed[chosen].reshape(-1, len(items)), axis=1)  # few bytes are sorted faster than many
    _, one, kind = np.unique(packed.view(f"V{packed.shape[1]}").ravel(), return_index=True, return_inverse=True)
    masks = allowed[chosen].reshape(-1, len(items))[one]
    kind = np.where(exists[chosen], kind.reshape(len(chosen), -1), len(masks))
    lists = [items[mask] for mask in masks] + [np.array([-1])]  # the last is what a slot holds that the rule lacks
    count = np.array([len(one) for one in lists])
    weights = _shares(frames.rule[chosen], _same(frames.select(chosen)))
    return Drawing(
        frames=chosen,
        group=group[chosen],
        kind=kind,
        start=np.cumsum([0, *count[:-1]]),
        count=count,
        allowed=np.concatenate(lists),
        alias=AliasTable.build(weights[None, :]),
        by_group={
            one: AliasTable.build(np.where(group[chosen] == one, weights, 0.0)[None, :])
            for one in np.unique(group[chosen]).tolist()
        },
    )


def _same(frames: Latent) -> Int[np.ndarray, "frame"]:
    """A number for each choice of rule and anchors."""
    _, same = np.unique(np.column_stack([frames.rule, frames.anchors]), axis=0, return_inverse=True)
    return same.reshape(-1)


def _shares(rule: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """How likely a frame is when rules are uniform, then anchors within them, then positions within those."""
    _, first, frames_in = np.unique(anchors, return_index=True, return_counts=True)
    anchors_in = np.bincount(rule[first], minlength=int(rule.max()) + 1)
    weights: np.ndarray = 1.0 / (anchors_in[rule] * frames_in[anchors])
    return weights
