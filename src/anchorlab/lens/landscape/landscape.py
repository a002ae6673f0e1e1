"""Landscapes as plain values: the loss with every subset of a model's units, and what follows from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.drawable import Drawable, plotted
from anchorlab.errors import SpecError
from anchorlab.lens.landscape import subsets
from anchorlab.spec import check_known

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

Drawn = Literal["sizes", "shapley", "minimal"]

Replacement = Literal["mean", "resample", "zero"]
"""What replaces a unit's output: its mean over all sequences at the same position, another sequence's, or zero."""

Sets = tuple[tuple[str, ...], ...]
"""Sets of units by their names."""

SHARE = 0.1
"""The default rise of the loss within which a set suffices, as a share of the whole effect of the units."""


def check_share(share: float) -> None:
    """Raise `SpecError` for a share of 1 or more: the empty set would suffice."""
    if not share < 1:
        raise SpecError("share", f"{share} lets all of the effect be lost", "give less than 1")


def checked_finite(loss: Float[Tensor, "member subset"]) -> Float[Tensor, "member subset"]:
    """Return the losses, or raise `SpecError` if one is not finite: no set of its member could be judged."""
    if not bool(loss.isfinite().all()):
        member = int((~loss.isfinite()).any(dim=1).nonzero()[0])
        problem = f"member {member} has a loss that is not finite"
        raise SpecError("model", problem, "choose others, or a checkpoint before")
    return loss


@dataclass(frozen=True, repr=False)
class Landscape(Drawable):
    """The loss and the accuracy of every member with every subset of its units, all other units replaced.

    A subset is a number: bit i says that unit i is kept. Subset 0 keeps none, the last all, which is the model itself.
    A set is sufficient if its loss is at most the model's plus a share of the whole effect, which is the loss without
    any unit minus the model's loss. Sufficiency need not grow with the set, since a unit can also harm.

    Fields
        units: the names of the units: `layer.head` for heads, `layer.head@role` for heads at the positions of one role,
            `layer.mlp` for feed-forward layers
        loss, accuracy: `[member subset]`; the accuracy is NaN for a task without accuracy
        replace: what replaces a unit
    """

    units: tuple[str, ...]
    loss: Float[Tensor, "member subset"]
    accuracy: Float[Tensor, "member subset"]
    replace: Replacement = "mean"

    def __repr__(self) -> str:
        members, count = self.loss.shape
        return f"Landscape of {members} members and {count:,} subsets of {len(self.units)} units"

    @property
    def effect(self) -> Float[Tensor, "member"]:
        """The whole effect of the units: the loss without any unit minus the loss with all."""
        return self.loss[:, 0] - self.loss[:, -1]

    @cached_property
    def shapley(self) -> Float[Tensor, "member unit"]:
        """The exact Shapley value of each unit: how far it lowers the loss, on average over all orders of adding units.

        The values of a member add up to its `effect`. See `subsets.shapley_values`.
        """
        return subsets.shapley_values(-self.loss)

    @cached_property
    def interactions(self) -> Float[Tensor, "member unit other"]:
        """The exact Shapley interaction of each pair of units, with 0 on the diagonal.

        It is negative if one unit can stand in for the other, and positive if they work only together. See
        `subsets.shapley_interactions`.
        """
        return subsets.shapley_interactions(-self.loss)

    @cached_property
    def best_loss(self) -> Float[Tensor, "member size"]:
        """The lowest loss of all subsets of each size, from 0 to all units."""
        counts = subsets.sizes(len(self.units))
        return torch.stack([self.loss[:, counts == size].amin(dim=1) for size in range(len(self.units) + 1)], dim=1)

    def subset(self, *units: str) -> int:
        """Return the number of a subset."""
        for name in units:
            check_known("units", name, self.units, "unit")
        return sum(1 << self.units.index(name) for name in {*units})

    def names(self, subset: int) -> tuple[str, ...]:
        """Return the names of the units in a subset."""
        return tuple(name for place, name in enumerate(self.units) if subset >> place & 1)

    def threshold(self, share: float = SHARE) -> Float[Tensor, "member"]:
        """Return the largest loss of a sufficient set."""
        return self.loss[:, -1] + share * self.effect

    def sufficient(self, share: float = SHARE) -> Bool[Tensor, "member subset"]:
        """Return which subsets are sufficient."""
        check_share(share)
        enough = self.loss <= self.threshold(share).unsqueeze(1)
        lost = (~enough.any(dim=1)).nonzero().flatten().tolist()
        if lost:
            best, reached = self.loss[lost[0]].min(), self.threshold(share)[lost[0]]
            problem = f"no set of member {lost[0]} reaches a loss of {reached:.4g}; the lowest is {best:.4g}"
            raise SpecError("share", problem, "give a larger one")
        return enough

    def minimal(self, share: float = SHARE) -> tuple[Sets, ...]:
        """Return each member's minimal sufficient sets: sufficient sets that contain no other.

        The smallest come first, and sets of the same size in the order of their loss.
        """
        found = subsets.minimal(self.sufficient(share))
        return tuple(self._named(sets, loss.tolist()) for sets, loss in zip(found, self.loss, strict=True))

    def necessary(self, share: float = SHARE) -> tuple[Sets, ...]:
        """Return each member's minimal necessary sets; a set is necessary if its complement is not sufficient."""
        return tuple(self._named(sets) for sets in subsets.minimal(~self.sufficient(share).flip(-1)))

    def redundancy(self, share: float = SHARE) -> Int[Tensor, "member"]:
        """Return the largest number of pairwise disjoint sufficient sets; 0 if no unit is needed at all."""
        sets = subsets.minimal(self.sufficient(share))
        return subsets.most_disjoint(sets) * ~sets[:, 0]

    def backups(self, share: float = SHARE) -> Bool[Tensor, "member unit backup"]:
        """Return for each pair of units whether the second can take the first one's place in a minimal sufficient set.

        Unit u is a backup of v if a minimal sufficient set holds v and not u, and still suffices with u in place of v.
        Removing v alone may then cost nothing, though v does work.
        """
        enough = self.sufficient(share)
        return subsets.exchangeable(subsets.minimal(enough), enough)

    def summary(self, share: float = SHARE) -> "polars.DataFrame":
        """Return one row per member with its losses, minimal sets, redundancy and indispensable units."""
        import polars

        found, necessary = self.minimal(share), self.necessary(share)
        return polars.DataFrame(
            {
                "member": range(len(self.loss)),
                "loss": self.loss[:, -1].tolist(),
                "without": self.loss[:, 0].tolist(),
                "threshold": self.threshold(share).tolist(),
                "minimal_sets": [len(sets) for sets in found],
                "smallest": [" ".join(sets[0]) for sets in found],
                "disjoint": self.redundancy(share).tolist(),
                "indispensable": [" ".join(one[0] for one in sets if len(one) == 1) for sets in necessary],
            },
            schema_overrides={"member": polars.Int64},
        )

    @property
    def table(self) -> "polars.DataFrame":
        """One row per member and subset: member, subset, size, units, loss, accuracy."""
        import polars

        members, count = self.loss.shape
        names = [" ".join(self.names(subset)) for subset in range(count)]
        return polars.DataFrame(
            {
                "member": torch.arange(members).repeat_interleave(count).numpy(),
                "subset": torch.arange(count).repeat(members).numpy(),
                "size": subsets.sizes(len(self.units)).repeat(members).numpy(),
                "units": names * members,
                "loss": self.loss.flatten().numpy(),
                "accuracy": self.accuracy.flatten().numpy(),
            }
        )

    def plot(self, what: Drawn = "sizes", share: float | None = None, member: int | None = None) -> "Figure":
        """Draw the best loss against the number of units, the Shapley values, or the minimal sets of one member.

        Args:
            what: `sizes`, `shapley` or `minimal`.
            share: sets the threshold, 0.1 by default; Shapley values have none.
            member: the only member to draw; None: all.
        """
        check_known("what", what, get_args(Drawn), "drawing")
        if what == "shapley" and share is not None:
            raise SpecError("share", "sets a threshold, and Shapley values have none", "leave it out")
        if member is not None and not 0 <= member < len(self.loss):
            raise SpecError("member", f"there is no member {member}", f"choose from 0..{len(self.loss) - 1}")
        return plotted(self, what=what, share=SHARE if share is None else share, member=member)

    def __str__(self) -> str:
        lines = [f"{self.loss.shape[1]} subsets of {', '.join(self.units)}; sets within {SHARE:.0%} of the effect:"]
        for row in self.summary().rows(named=True):
            count = f"minimal sets: {row['minimal_sets']}, {row['disjoint']} of them disjoint"
            losses = f"loss {row['loss']:.4g}, without units {row['without']:.4g}"
            lines.append(f"  member {row['member']}: {losses}; {count}; the smallest {row['smallest'] or 'empty'}")
        return "\n".join(lines)

    def _named(self, sets: Bool[Tensor, "subset"], loss: Sequence[float] | None = None) -> Sets:
        """Return the names of the sets: by size, then by loss if given, else by their units."""
        found = sets.nonzero().flatten().tolist()
        order = sorted(found, key=lambda subset: (subset.bit_count(), subset if loss is None else loss[subset]))
        return tuple(self.names(subset) for subset in order)
