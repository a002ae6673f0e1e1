"""All detectors at once: what every head of every member does, as a table, and in a word."""

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from anchorlab.errors import SiteError
from anchorlab.lens.heads import per_sequence
from anchorlab.lens.heads.chance import chance_of_uniform, threshold, uniform_attention
from anchorlab.lens.heads.scores import Profile, Scores
from anchorlab.lens.look.record import Record

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
"""What a head is called for which a detector fires; of equals the first one names it."""

_LABELS_AT_ZERO = {"shift": "self", "broadcast_profile": "broadcast from anchor"}


def detect(
    record: Record, anchors: Int[Tensor, "batch"] | None = None, sources: Int[Tensor, "batch"] | None = None
) -> "polars.DataFrame":
    """One row per member, (candidate,) layer, head and detector, for all attention patterns of a record.

    | detector | offset | value |
    |---|---|---|
    | `shift` | by how much the head shifts best | `shift` at this offset |
    | `previous_token` | | `shift(1)` |
    | `self_attending` | | `shift(0)` |
    | `next_token` | | `next_token`, where the pattern is not causal |
    | `uniform` | | `uniform` |
    | `induction` | | `induction`, where the inputs are tokens and some token occurs twice in a sequence |
    | `matching` | | `matching`, where `induction` is |
    | `fixed_position` | the position, from 0, that it attends to most | `fixed_position` there |
    | `anchor_attending` | | `anchor_attending`, where `anchors` are given |
    | `broadcast_profile` | from where it broadcasts best, after the anchor | `broadcast` from there, with `anchors` |
    | `broadcast` | | `broadcast` from `sources`, such as the keys, where they are given |

    Beside each value stand

    | column | |
    |---|---|
    | `chance` | what a head scores that attends at random, on the same inputs and under the same mask |
    | `low`, `high` | the ends of the value's 95 % interval over draws of as many sequences (`Scores.interval`) |
    | `fires` | whether the value is above `threshold(chance)`, halfway from chance to 1: the head does this |

    For a detector that takes the best of several offsets, `chance` is the greatest of a random head's scores at them.
    It is an expected score: of a single short sequence, or where all sequences have the same pattern, a random head can
    be well above it.

    A layer is the first number in a site's name, or its place among the patterns of the record.

    Errors: `SiteError` where the record holds no site with the axes batch, head, query and key; those of the detectors.
    """
    import polars

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
        for detector, measure in _detectors(length, causal, record.inputs, anchors, sources).items():
            found = measure(pattern)
            values, (low, high) = _value(found), found.interval
            chance = chance_of_uniform(length, causal) if detector == "uniform" else float(_value(measure(random)))
            columns["member"] += grid[:, 0].tolist()
            columns["candidate"] += [names[index] for index in grid[:, 1].tolist()]
            columns["head"] += grid[:, 2].tolist()
            columns["layer"] += [layer] * len(grid)
            columns["detector"] += [detector] * len(grid)
            columns["offset"] += found.best.flatten().tolist() if isinstance(found, Profile) else [None] * len(grid)
            columns["value"] += values.flatten().tolist()
            columns["chance"] += [chance] * len(grid)
            columns["low"] += low.flatten().tolist()
            columns["high"] += high.flatten().tolist()
            columns["fires"] += (values > threshold(chance)).flatten().tolist()
    frame = polars.DataFrame(columns, schema_overrides={"offset": polars.Int64})
    return frame if record.candidates is not None else frame.drop("candidate")


def describe(found: "polars.DataFrame") -> "polars.DataFrame":
    """What each head is, in a word: the `label` of each member, (candidate,) layer and head of a table of `detect`.

    `shift 1`, `self`, `next`, `uniform`, `induction`, `matching`, `broadcast from anchor+1`, `broadcast from source`,
    `position 0`, or `-` where no detector fires. Of several that fire, the one furthest on the way from chance to 1
    names the head; within a hundredth of the way, the one named first here.
    """
    import polars

    heads = [name for name in ("member", "candidate", "layer", "head") if name in found.columns]
    labels = [
        _label(detector, offset) if fires else "-"
        for detector, offset, fires in found.select("detector", "offset", "fires").iter_rows()
    ]
    way = ((polars.col("value") - polars.col("chance")) / (1 - polars.col("chance"))).round(2)
    # the sources are the anchors' neighbours in most tasks; a head that broadcasts from both is named by the anchor
    by_anchor = (polars.col("fires") & (polars.col("detector") == "broadcast_profile")).any().over(heads)
    named = polars.col("fires") & ~(by_anchor & (polars.col("detector") == "broadcast"))
    rank = polars.col("detector").replace_strict(list(_LABELS), list(range(len(_LABELS))))
    return (
        found.with_columns(polars.Series("label", labels), way=polars.when(named).then(way).otherwise(-1), rank=rank)
        .group_by(heads, maintain_order=True)
        .agg(polars.col("label").sort_by("way", "rank", descending=[True, False]).first())
    )


def _detectors(
    length: int, causal: bool, inputs: Tensor, anchors: Tensor | None, sources: Tensor | None
) -> dict[str, Callable[[Tensor], Scores | Profile]]:
    """The detectors that apply, by name."""
    found: dict[str, Callable[[Tensor], Scores | Profile]] = {
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
    if sources is not None:
        found["broadcast"] = partial(per_sequence.broadcast, sources=sources)
    return found


def _value(found: Scores | Profile) -> Tensor:
    return found.value if isinstance(found, Profile) else found.mean


def _label(detector: str, offset: int | None) -> str:
    return (
        _LABELS_AT_ZERO[detector] if offset == 0 and detector in _LABELS_AT_ZERO else _LABELS[detector].format(offset)
    )
