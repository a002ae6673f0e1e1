"""All detectors at once: a table of what every head does, and a label for each head."""

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens.heads import per_sequence
from anchorlab.lens.heads.chance import chance_of_uniform, threshold, uniform_attention
from anchorlab.lens.heads.scores import HeadScores, OffsetScores
from anchorlab.lens.look.record import Record
from anchorlab.tasks.batch import Batch

if TYPE_CHECKING:
    import polars

_PATTERN_AXES = ("batch", "head", "query", "key")

_LABELS = {
    "shift": "shift {}",
    "previous_token": "shift 1",
    "self_attending": "self",
    "next_token": "next",
    "uniform": "uniform",
    "induction": "induction",
    "matching": "matching",
    "broadcast_profile": "broadcast from anchor{:+d}",
    "anchor_attending": "broadcast from anchor",
    "broadcast": "broadcast from source",
    "fixed_position": "position {}",
}
"""The label that each detector gives to a head for which it fires, with the offset in place of the braces; of equally
strong detectors, the first one labels the head."""

_LABELS_AT_ZERO = {"shift": "self", "broadcast_profile": "broadcast from anchor"}


def detect(
    record: Record,
    batch: Batch | None = None,
    *,
    anchors: Int[Tensor, "batch"] | None = None,
    keys: Int[Tensor, "batch"] | None = None,
) -> "polars.DataFrame":
    """Score every head of every attention pattern of a record with every detector that applies.

    Returns one row per member, (candidate,) layer, head and detector:

    | detector | offset | value |
    |---|---|---|
    | `shift` | the best shift | `shift` at this offset |
    | `previous_token` | | `shift(1)` |
    | `self_attending` | | `shift(0)` |
    | `next_token` | | `next_token`, where the pattern is not causal |
    | `uniform` | | `uniform` |
    | `induction` | | `induction`, where the inputs are tokens and some token occurs twice in a sequence |
    | `matching` | | `matching`, where `induction` applies |
    | `fixed_position` | the position with the most attention, from 0 | `fixed_position` there |
    | `anchor_attending` | | `anchor_attending`, where anchors are known |
    | `broadcast_profile` | the best source, relative to the anchor | `broadcast` from it, where anchors are known |
    | `broadcast` | | `broadcast` from the keys, where keys are known |

    and the columns

    | column | |
    |---|---|
    | `chance` | the score of a head that attends at random, on the same inputs and under the same mask |
    | `low`, `high` | the 95 % interval of the value over draws of as many sequences (`HeadScores.interval`) |
    | `fires` | whether the value is above `threshold(chance)`, halfway from chance to 1 |

    For a detector that takes the best of several offsets, `chance` is the largest of a random head's expected scores at
    these offsets. A random head can score well above it on a single short sequence, or where all sequences have the
    same pattern.

    The layer is the first number in a site's name, or the site's place among the patterns of the record.

    Args:
        record: a look with at least one site of axes batch, head, query and key.
        batch: the sequences of the record. The first anchor and the first key of each sequence are read from its
            latents `anchor_positions` and `key_positions`, where it has them.
        anchors: the position of one anchor in each sequence, in place of the batch's.
        keys: the position of one key in each sequence, in place of the batch's.

    Errors: `SiteError` for a record without attention patterns; `SpecError` for a batch with other inputs than the
    record's; those of the detectors.
    """
    import polars

    if batch is not None:
        if not torch.equal(batch.inputs.cpu(), record.inputs):
            raise SpecError("batch", "has other inputs than the record", "give the batch that was looked at")
        anchors = _first(batch, "anchor_positions") if anchors is None else anchors
        keys = _first(batch, "key_positions") if keys is None else keys
    patterns = [site for site in record if record.axes(site)[-4:] == _PATTERN_AXES]
    sites = [site for site in patterns if "hook_attn_scores" not in site]  # the same axes, before the softmax
    if not sites:
        raise SiteError("the record holds no attention pattern; record a site such as 'blocks.*.attn.hook_pattern'")
    columns: dict[str, list[object]] = {name: [] for name in ("member", "candidate", "layer", "head")}
    columns |= {name: [] for name in ("detector", "offset", "value", "chance", "low", "high", "fires")}
    for place, site in enumerate(sites):
        number = re.search(r"\d+", site)
        layer = int(number.group()) if number else place
        pattern = record[site] if record.candidates is not None else record[site].unsqueeze(1)
        members, candidates, _, heads = pattern.shape[:-2]
        grid = torch.cartesian_prod(*(torch.arange(size) for size in (members, candidates, heads))).reshape(-1, 3)
        names = record.candidates or ("",)
        length, causal = pattern.shape[-1], not bool(pattern.triu(1).any())
        random = uniform_attention(length, causal).to(pattern).expand(pattern.shape[-4], 1, length, length)
        for detector, measure in _detectors(length, causal, record.inputs, anchors, keys).items():
            found = measure(pattern)
            values, (low, high) = _value(found), found.interval
            chance = chance_of_uniform(length, causal) if detector == "uniform" else float(_value(measure(random)))
            columns["member"] += grid[:, 0].tolist()
            columns["candidate"] += [names[index] for index in grid[:, 1].tolist()]
            columns["head"] += grid[:, 2].tolist()
            columns["layer"] += [layer] * len(grid)
            columns["detector"] += [detector] * len(grid)
            columns["offset"] += (
                found.best.flatten().tolist() if isinstance(found, OffsetScores) else [None] * len(grid)
            )
            columns["value"] += values.flatten().tolist()
            columns["chance"] += [chance] * len(grid)
            columns["low"] += low.flatten().tolist()
            columns["high"] += high.flatten().tolist()
            columns["fires"] += (values > threshold(chance)).flatten().tolist()
    frame = polars.DataFrame(columns, schema_overrides={"offset": polars.Int64})
    return frame if record.candidates is not None else frame.drop("candidate")


def describe(found: "polars.DataFrame") -> "polars.DataFrame":
    """Return one row per member, (candidate,) layer and head of a table of `detect`, with the head's `label`.

    Labels are `shift 1`, `self`, `next`, `uniform`, `induction`, `matching`, `broadcast from anchor+1`,
    `broadcast from anchor`, `broadcast from source`, `position 0`, or `-` if no detector fires. If several fire, the
    one with the largest (value - chance) / (1 - chance), rounded to hundredths, names the head; of equals, the first
    in this list.
    """
    import polars

    heads = [name for name in ("member", "candidate", "layer", "head") if name in found.columns]
    labels = [
        _label(detector, offset) if fires else "-"
        for detector, offset, fires in found.select("detector", "offset", "fires").iter_rows()
    ]
    way = ((polars.col("value") - polars.col("chance")) / (1 - polars.col("chance"))).round(2)
    # In most tasks keys are neighbours of anchors; a head that broadcasts from both is named by the anchor.
    by_anchor = (polars.col("fires") & (polars.col("detector") == "broadcast_profile")).any().over(heads)
    named = polars.col("fires") & ~(by_anchor & (polars.col("detector") == "broadcast"))
    rank = polars.col("detector").replace_strict(list(_LABELS), list(range(len(_LABELS))))
    return (
        found.with_columns(polars.Series("label", labels), way=polars.when(named).then(way).otherwise(-1), rank=rank)
        .group_by(heads, maintain_order=True)
        .agg(polars.col("label").sort_by("way", "rank", descending=[True, False]).first())
    )


def _first(batch: Batch, latent: str) -> Int[Tensor, "batch"] | None:
    """The first anchor or key of each sequence; None where the batch has none, or lacks it in some sequence."""
    positions = batch.latents.get(latent)
    if positions is None or positions.shape[1] == 0 or bool((positions[:, 0] < 0).any()):
        return None
    return positions[:, 0]


def _detectors(
    length: int, causal: bool, inputs: Tensor, anchors: Tensor | None, keys: Tensor | None
) -> dict[str, Callable[[Tensor], HeadScores | OffsetScores]]:
    """The detectors that apply, by name; each takes a pattern `[... batch head query key]`."""
    found: dict[str, Callable[[Tensor], HeadScores | OffsetScores]] = {
        "shift": per_sequence.shift_profile,
        "previous_token": partial(per_sequence.shift, k=1),
        "self_attending": partial(per_sequence.shift, k=0),
        "uniform": partial(per_sequence.uniform, causal=causal),
        "fixed_position": per_sequence.fixed_position_profile,
    }
    if not causal:
        found["next_token"] = per_sequence.next_token
        found["fixed_position"] = partial(per_sequence.fixed_position_profile, largest=length - 1, queries="all")
    if not inputs.is_floating_point() and bool((inputs.sort(dim=-1).values.diff(dim=-1) == 0).any()):
        found["induction"] = partial(per_sequence.induction, tokens=inputs)
        found["matching"] = partial(per_sequence.matching, tokens=inputs)
    if anchors is not None:
        found["anchor_attending"] = partial(per_sequence.anchor_attending, anchors=anchors)
        found["broadcast_profile"] = partial(per_sequence.broadcast_profile, anchors=anchors)
    if keys is not None:
        found["broadcast"] = partial(per_sequence.broadcast, sources=keys)
    return found


def _value(found: HeadScores | OffsetScores) -> Float[Tensor, "*lead head"]:
    return found.value if isinstance(found, OffsetScores) else found.mean


def _label(detector: str, offset: int | None) -> str:
    if offset == 0 and detector in _LABELS_AT_ZERO:
        return _LABELS_AT_ZERO[detector]
    return _LABELS[detector].format(offset)
