"""Similarity of recorded vectors: between positions, heads, neurons or stages, and between sites by CKA."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from anchorlab.errors import SpecError
from anchorlab.lens.grids import Tabled, grid_table
from anchorlab.lens.look import PLACES, Record, own_places
from anchorlab.spec import check_known

if TYPE_CHECKING:
    import polars

_ROUNDING = 1e-6
"""Rows whose spread is below this share of their size count as constant, because float32 resolves no less."""


def cosine_similarity(
    left: Float[Tensor, "*lead row width"], right: Float[Tensor, "*lead column width"]
) -> Float[Tensor, "*lead row column"]:
    """Return the cosine between every vector of `left` and every vector of `right`; 0 for vectors of length 0."""
    return normalize(left, dim=-1) @ normalize(right, dim=-1).transpose(-1, -2)


def similarity(
    record: Record, sites: str | Sequence[str], between: str, along: str | Sequence[str]
) -> Float[Tensor, "*lead one other"]:
    """Return the cosine between every two indices of the axis `between`, as vectors over the axes `along`.

    | compares | sites | between | along | axes of the result |
    |---|---|---|---|---|
    | positions | `hook_resid_post` | `position` | `width` | member batch position position |
    | heads | `attn.hook_pattern` | `head` | `query`, `key` | member batch head head |
    | neurons, by activation | `mlp.hook_post` | `hidden` | `batch`, `position` | member hidden hidden |
    | stages | several sites | `stage` | `width` | member batch position stage stage |

    The result has the remaining axes, in their order, then `between` twice. Several sites, which must have the same
    axes and sizes, become an axis `stage` after `member`. To compare neurons by their input weights, use
    `cosine_similarity`. The cosine with a vector of length 0 is 0. Values of padding count as 0.

    Source: anchor functions, appendix B.3, Figures 22 and 23 (positions); 6.2, Figure 19 (heads).
    """
    value, axes = _stages(record, sites) if not isinstance(sites, str) else (record[sites], record.axes(sites))
    along = (along,) if isinstance(along, str) else tuple(along)
    for field, name in (("between", between), *(("along", name) for name in along)):
        check_known(field, name, axes, "axis")
    if not along or len({between, *along}) != 1 + len(along):
        raise SpecError("along", f"cannot be {along}", f"name at least one axis other than {between!r}, each once")
    if record.lengths is not None and "batch" in axes:
        for place in {*PLACES} & {*axes}:
            own = own_places(record.lengths, value.shape[axes.index(place)])
            shape = [size if name in ("batch", place) else 1 for name, size in zip(axes, value.shape, strict=True)]
            value = value.where(own.reshape(shape), 0)
    order = [*(name for name in axes if name not in (between, *along)), between, *along]
    vectors = value.permute([axes.index(name) for name in order]).flatten(-len(along))
    return cosine_similarity(vectors, vectors)


def _stages(record: Record, sites: Sequence[str]) -> tuple[Tensor, tuple[str, ...]]:
    kinds = {(record.axes(site), record[site].shape) for site in sites}
    if len(kinds) != 1:
        problem = f"have {len(kinds)} kinds of axes and sizes" if kinds else "name no site"
        raise SpecError("sites", problem, "give stages that are alike in both, or one site at a time")
    first, *others = record.axes(sites[0])
    return torch.stack([record[site] for site in sites], dim=1), (first, "stage", *others)


def head_similarity(pattern: Float[Tensor, "*lead batch head query key"]) -> Float[Tensor, "*lead"]:
    """Return how similar the heads of one layer are: 1 for equal patterns (anchor functions, 6.2, Fig 19).

    The cosine between two heads' patterns, as vectors over query and key, averaged over all pairs of different heads
    and over the batch.
    """
    heads = pattern.shape[-3]
    if heads < 2:
        raise SpecError("pattern", "has a single head", "give a layer of at least two heads")
    similarity = cosine_similarity(pattern.flatten(-2), pattern.flatten(-2))
    pairs = torch.ones(heads, heads, device=pattern.device).triu(1).bool()
    return similarity[..., pairs].mean(dim=(-2, -1))


def condensation(weights: Float[Tensor, "*lead input neuron"]) -> Float[Tensor, "*lead"]:
    """Return how far the neurons of a layer are condensed: 1 if all are parallel or opposite (anchor functions, 6.2).

    The absolute cosine between the input weights of two neurons, averaged over all pairs of different neurons. Pairs
    are weighted by the product of their norms, so that small neurons count little. Random directions of dimension
    `input` give about sqrt(2 / (pi input)).
    """
    neurons = weights.shape[-1]
    if neurons < 2:
        raise SpecError("weights", "have a single neuron", "give a layer of at least two neurons")
    products = weights.transpose(-1, -2) @ weights
    norms = weights.norm(dim=-2)
    pairs = ~torch.eye(neurons, dtype=torch.bool, device=weights.device)
    counted = norms.unsqueeze(-1) * norms.unsqueeze(-2)
    cosine: Tensor = products.abs()[..., pairs].sum(dim=-1) / counted[..., pairs].sum(dim=-1)
    return cosine


@dataclass(frozen=True, repr=False)
class Alignment(Tabled):
    """Linear CKA between the values at sites of two records, and its chance level for unrelated values.

    Shapes
        sites, other_sites: the sites of both records
        values: `[member site other_member other_site]`, from 0 to 1; NaN if values do not vary over the rows
        chance: `[member site other_member other_site]`, the mean over all permutations of the rows of one side
    """

    sites: tuple[str, ...]
    other_sites: tuple[str, ...]
    values: Float[Tensor, "member site other_member other_site"]
    chance: Float[Tensor, "member site other_member other_site"]

    def layers(self, member: int = 0, other_member: int | None = None) -> Float[Tensor, "site other_site"]:
        """Return the similarities between the sites of two members, or within one member if `other_member` is None."""
        other = member if other_member is None else other_member
        for field, index, axis in (("member", member, 0), ("other_member", other, 2)):
            count = self.values.shape[axis]
            if not 0 <= index < count:
                raise SpecError(field, f"there is no member {index}", f"choose one from 0 to {count - 1}")
        return self.values[member, :, other]

    @property
    def table(self) -> "polars.DataFrame":
        """One row per pair: member, site, other_member, other_site, cka, chance."""
        members, _, others, _ = self.values.shape
        axes = {
            "member": range(members),
            "site": self.sites,
            "other_member": range(others),
            "other_site": self.other_sites,
        }
        return grid_table(axes, {"cka": self.values, "chance": self.chance})


def cka(record: Record, other: Record | None = None) -> Alignment:
    """Return the similarity between the values at all sites and in all members, within one record or between two.

    Each sequence is a row, or each position of each sequence at a site with positions; all other axes together form the
    vector. Padding behind shorter sequences is left out. With centred rows X and Y,

        CKA = |Xᵀ Y|² / (|Xᵀ X| |Yᵀ Y|)

    in Frobenius norms. CKA is 1 for vectors that are equal up to rotation, reflection, shift and scale. So it can
    compare layers of different widths, and members whose neurons do not correspond. It is not invariant under other
    linear maps: directions of large variance count most.

    If the rows are few compared with the width, unrelated values look similar by accident. `chance` is the mean over
    all permutations of the rows, tr(XᵀX) tr(YᵀY) / (rows - 1) divided by the same norms. Judge a value by where it lies
    between `chance` and 1.

        record = look(ensemble, inputs, ["hook_embed", "blocks.*.hook_resid_post"], output=False)
        cka(record).values  # [member site other_member other_site]

    Args:
        record: at least one site; the output counts as one.
        other: another record of the same sequences, such as another model's record; None: `record` itself.

    Source: Kornblith et al., 2019, sections 3 and 4; the chance level: the mean of a permutation test, Kazi-Aoual et
    al., 1995.
    """
    right = record if other is None else other
    lefts = _rows(record, "record")
    rights = lefts if right is record else _rows(right, "other")
    counts = sorted({one.shape[1] for one in (*lefts, *rights)})
    if len(counts) != 1:
        raise SpecError("record", f"has sites of {counts} rows", "record sites with positions, or sites without, alone")
    # Each member at each site against all members at a site, `[other_member width other_width]` at a time.
    products = [[torch.stack([_square(one, many) for many in rights]) for one in members] for members in lefts]
    values = torch.stack([torch.stack(one) for one in products]).permute(1, 0, 3, 2)
    norms = [torch.stack([_square(one, one) for one in sides], dim=1).sqrt() for sides in (lefts, rights)]
    traces = [torch.stack([one.square().sum(dim=(1, 2)) for one in sides], dim=1) for sides in (lefts, rights)]
    whole = _outer(*norms)
    whole = torch.where(whole > 0, whole, torch.nan)
    return Alignment(tuple(record), tuple(right), values / whole, _outer(*traces) / (counts[0] - 1) / whole)


def _rows(record: Record, field: str) -> list[Float[Tensor, "member row width"]]:
    """Return the centred rows at each site; exactly 0 if they do not vary beyond rounding."""
    if record.candidates is not None:
        raise SpecError(field, "has candidates", "choose one with record.candidate(name)")
    if not len(record):
        raise SpecError(field, "has no site", "record at least one")
    found = []
    for site in record:
        value, axes = record[site].double(), list(record.axes(site))
        if axes[:2] != ["member", "batch"]:
            raise SpecError(field, f"site {site} has no row for each sequence", "leave it out")
        place = next((axes.index(name) for name in ("position", "scored") if name in axes), None)
        value = value.unsqueeze(2) if place is None else value.movedim(place, 2)
        rows = value.reshape(len(value), value.shape[1] * value.shape[2], -1)
        if record.lengths is not None and "scored" not in axes:
            if "position" not in axes:
                problem = f"has sequences of different lengths, and {site} no axis of positions"
                raise SpecError(field, problem, "give sequences of one length, or leave the site out")
            rows = rows[:, own_places(record.lengths, value.shape[2]).flatten()]
        centred = rows - rows.mean(dim=1, keepdim=True)
        varies = centred.norm(dim=(1, 2)) > _ROUNDING * rows.norm(dim=(1, 2))
        found.append(centred * varies.reshape(-1, 1, 1))
    return found


def _square(
    left: Float[Tensor, "*member row width"], right: Float[Tensor, "member row other_width"]
) -> Float[Tensor, "member"]:
    return (left.mT @ right).square().sum(dim=(1, 2))


def _outer(left: Float[Tensor, "member site"], right: Float[Tensor, "other_member other_site"]) -> Tensor:
    return left[:, :, None, None] * right
