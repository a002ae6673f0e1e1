"""All detectors at once: what every head of every member does, as a table."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from anchorlab.errors import SiteError
from anchorlab.lens import detectors
from anchorlab.lens.record import Record

if TYPE_CHECKING:
    import polars

_PATTERN_AXES = ("batch", "head", "query", "key")


def detect(
    record: Record, anchors: Int[Tensor, "batch"] | None = None, sources: Int[Tensor, "batch"] | None = None
) -> "polars.DataFrame":
    """One row per member, (candidate,) layer, head and detector, for all attention patterns of a record.

    | detector | offset | value |
    |---|---|---|
    | `shift` | by how much the head shifts best | `shift` at this offset |
    | `previous_token` | | `shift(1)` |
    | `uniform` | | `uniform` |
    | `induction` | | `induction`, where the inputs are tokens and some token occurs twice in a sequence |
    | `anchor_attending` | | `anchor_attending`, where `anchors` are given |
    | `broadcast_profile` | from where it broadcasts best, after the anchor | `broadcast` from there, with `anchors` |
    | `broadcast` | | `broadcast` from `sources`, such as the keys, where they are given |

    A layer is the first number in a site's name, or its place among the patterns of the record.

    Errors: `SiteError` where the record holds no site with the axes batch, head, query and key; those of the detectors.
    """
    import polars

    patterns = [site for site in record if record.axes(site)[-4:] == _PATTERN_AXES]
    sites = [site for site in patterns if not site.endswith("hook_attn_scores")]  # the same axes, before the softmax
    if not sites:
        raise SiteError("the record holds no attention pattern; record a site such as 'blocks.*.attn.hook_pattern'")
    columns: dict[str, list[object]] = {name: [] for name in ("member", "candidate", "layer", "head")}
    columns |= {name: [] for name in ("detector", "offset", "value")}
    for place, site in enumerate(sites):
        number = re.search(r"\d+", site)
        layer = int(number.group()) if number else place
        pattern = record[site] if record.candidates is not None else record[site].unsqueeze(1)
        for detector, offsets, values in _measured(pattern, record.inputs, anchors, sources):
            members, candidates, heads = values.shape
            grid = torch.cartesian_prod(*(torch.arange(size) for size in (members, candidates, heads))).reshape(-1, 3)
            names = record.candidates or ("",)
            columns["member"] += grid[:, 0].tolist()
            columns["candidate"] += [names[index] for index in grid[:, 1].tolist()]
            columns["head"] += grid[:, 2].tolist()
            columns["layer"] += [layer] * len(grid)
            columns["detector"] += [detector] * len(grid)
            columns["offset"] += [None] * len(grid) if offsets is None else offsets.flatten().tolist()
            columns["value"] += values.flatten().tolist()
    frame = polars.DataFrame(columns, schema_overrides={"offset": polars.Int64})
    return frame if record.candidates is not None else frame.drop("candidate")


def _measured(
    pattern: Tensor, inputs: Tensor, anchors: Tensor | None, sources: Tensor | None
) -> Iterator[tuple[str, Tensor | None, Tensor]]:
    shifts = detectors.shift_profile(pattern)
    yield "shift", shifts.best, shifts.value
    yield "previous_token", None, detectors.previous_token(pattern)
    causal = not bool(pattern.triu(1).any())
    yield "uniform", None, detectors.uniform(pattern, causal)
    if not inputs.is_floating_point() and bool((inputs.sort(dim=-1).values.diff(dim=-1) == 0).any()):
        yield "induction", None, detectors.induction(pattern, inputs)
    if anchors is not None:
        yield "anchor_attending", None, detectors.anchor_attending(pattern, anchors)
        profile = detectors.broadcast_profile(pattern, anchors)
        yield "broadcast_profile", profile.best, profile.value
    if sources is not None:
        yield "broadcast", None, detectors.broadcast(pattern, sources)
