"""Which head of one member corresponds to which head of another."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import normalize

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens.grids import grid_table
from anchorlab.lens.heads.detect import pattern_sites
from anchorlab.lens.look import Record, own_places

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class HeadMatching:
    """A one-to-one matching, in each layer, between the heads of a reference member and the heads of every member.

    Shapes
        reference: the member that all members are compared with
        similarities: `[member layer head other]`, the similarity of the reference's head `head` and the member's head
            `other`
        heads: `[member layer head]`, the member's head that corresponds to the reference's head `head`
    """

    reference: int
    similarities: Float[Tensor, "member layer head other"]
    heads: Int[Tensor, "member layer head"]

    @cached_property
    def similarity(self) -> Float[Tensor, "member layer head"]:
        """The similarity of the heads of each pair."""
        return self.similarities.gather(-1, self.heads.unsqueeze(-1)).squeeze(-1)

    @cached_property
    def chance(self) -> Float[Tensor, "member layer"]:
        """The mean similarity of randomly paired heads; pairs that do not exceed it mean nothing."""
        return self.similarities.mean(dim=(-2, -1))

    def reorder(self, values: Shaped[Tensor, "member layer head *more"]) -> Shaped[Tensor, "member layer head *more"]:
        """Return per-head values with the heads of every member in the reference's order.

        A head index then means the same in all members, as far as the pairs are similar, so means over members make
        sense.
        """
        if values.shape[:3] != self.heads.shape:
            problem = f"have shape {tuple(values.shape)}, which does not begin with {tuple(self.heads.shape)}"
            raise SpecError("values", problem, "give [member layer head ...]")
        index = self.heads.reshape(*self.heads.shape, *(1,) * (values.ndim - 3)).expand_as(values)
        return values.gather(2, index)

    @property
    def table(self) -> "polars.DataFrame":
        """One row per member and head of the reference: member, layer, head, corresponds, similarity, chance."""
        axes = dict(zip(("member", "layer", "head"), map(range, self.heads.shape), strict=True))
        values = {"corresponds": self.heads, "similarity": self.similarity, "chance": self.chance}
        return grid_table(axes, values)


def match_heads(seen: "Record | polars.DataFrame", reference: int = 0) -> HeadMatching:
    """Match the heads of all members to the heads of a reference member.

    Members that differ in their seed often have the same heads in another order. In each layer, the heads are paired so
    that the sum of their similarities is maximal:

        record = look(ensemble, inputs, "blocks.*.attn.hook_pattern", output=False)
        match_heads(record).reorder(scores)  # scores `[member layer head]`, with like heads at like places

    For a record, the similarity of two heads, from 0 to 1, is the cosine between their attention patterns on the same
    sequences, as vectors over query and key, averaged over the sequences. For a table of `detect`, it is the cosine
    between their scores above chance; scores at different offsets are different coordinates. Scores compare what heads
    do, not where they look. A head with no score above chance has similarity 0 to every other head.

    Args:
        seen: a record of attention patterns, or a table of `detect`, without candidates.
        reference: the member whose order of heads all others adopt.

    Source: Kuhn, 1955 (assignment; solved by `scipy.optimize.linear_sum_assignment`).
    """
    from scipy.optimize import linear_sum_assignment

    vectors = _patterns(seen) if isinstance(seen, Record) else _scores(seen)
    members = len(vectors)
    if not 0 <= reference < members:
        raise SpecError("reference", f"there is no member {reference}", f"choose one from 0 to {members - 1}")
    wrong = (~vectors.isfinite()).flatten(1).any(dim=1).nonzero()
    if len(wrong):
        raise SpecError("seen", f"member {int(wrong[0])} has values that are not finite", "look at the other members")
    units = normalize(vectors.double(), dim=-1)
    # Cosines are computed for each sequence, then averaged; scores have a single row in place of the sequences.
    alike = torch.einsum("lbhw,mlbow->mlho", units[reference], units) / units.shape[2]
    pairs = [linear_sum_assignment(one, maximize=True)[1] for one in alike.flatten(0, 1).numpy()]
    return HeadMatching(reference, alike, torch.as_tensor(np.stack(pairs)).view(alike.shape[:3]))


def _patterns(record: Record) -> Float[Tensor, "member layer batch head width"]:
    if record.candidates is not None:
        raise SpecError("seen", "has candidates", "choose one with record.candidate(name)")
    sites = pattern_sites(record)
    if not sites:
        raise SiteError("the record holds no attention pattern; record a site such as 'blocks.*.attn.hook_pattern'")
    _check_heads({record[site].shape[2] for site in sites})
    patterns = torch.stack([record[site] for site in sites], dim=1)
    if record.lengths is not None:
        own = own_places(record.lengths, patterns.shape[-2])
        patterns = patterns.where(own[:, None, :, None], 0)  # attention of the padding
    return patterns.flatten(4)


def _scores(table: "polars.DataFrame") -> Float[Tensor, "member layer 1 head width"]:
    """The scores above chance of each head, with a coordinate for each detector and offset in the table."""
    import polars

    if "candidate" in table.columns:
        raise SpecError("seen", "has candidates", "choose one with seen.filter(polars.col('candidate') == name)")
    above = (polars.col("value") - polars.col("chance")).clip(lower_bound=0).alias("above")
    place = polars.format("{} {}", "detector", polars.col("offset").fill_null(-1)).alias("place")
    wide = table.select("member", "layer", "head", place, above).pivot(
        on="place", index=["member", "layer", "head"], values="above"
    )
    wide = wide.fill_null(0).sort("member", "layer", "head")
    members, layers = (wide[name].n_unique() for name in ("member", "layer"))
    _check_heads(set(wide.group_by("member", "layer").len()["len"]))
    return wide.drop("member", "layer", "head").to_torch().reshape(members, layers, 1, -1, wide.width - 3)


def _check_heads(counts: set[int]) -> None:
    if len(counts) > 1:
        raise SpecError("seen", f"has layers of {sorted(counts)} heads", "match layers of as many heads at a time")
