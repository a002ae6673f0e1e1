"""Similarity of recorded vectors: between positions, heads, neurons, or the stages of a model."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from anchorlab.errors import SpecError
from anchorlab.lens.look.record import Record
from anchorlab.spec import unknown_name


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
    `cosine_similarity`. The cosine with a vector of length 0 is 0.

    Source: anchor functions, appendix B.3, Figures 22 and 23 (positions); 6.2, Figure 19 (heads).
    """
    value, axes = _stages(record, sites) if not isinstance(sites, str) else (record[sites], record.axes(sites))
    along = (along,) if isinstance(along, str) else tuple(along)
    for field, name in (("between", between), *(("along", name) for name in along)):
        if name not in axes:
            raise unknown_name(field, name, axes, "axis")
    if not along or len({between, *along}) != 1 + len(along):
        raise SpecError("along", f"cannot be {along}", f"name at least one axis other than {between!r}, each once")
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
