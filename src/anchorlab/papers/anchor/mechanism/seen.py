"""All that is read of a two-layer model on the identity anchor function: its parts, layer 1's maps, its last row.

Source: anchor functions, section 5.1 and appendix B.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.lens import Intervention, Operand, look
from anchorlab.papers.anchor.mechanism import measures
from anchorlab.papers.anchor.mechanism.measures import LOOKED_AT, rows_apart
from anchorlab.studies.readings import Reading, first_at_end, of_first, reading, sampled
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble

Value = TypeVar("Value")

_PATTERN = "blocks.1.attn.hook_pattern"
_ROWS, _SUM = "blocks.1.hook_resid_pre", "blocks.1.hook_resid_mid"


@dataclass(frozen=True)
class AnchorMaps:
    """How layer 1's map follows the anchor; the map of a position is the mean over sequences with the anchor there."""

    positions: Int[Tensor, "place"]  # of the anchor
    maps: Float[Tensor, "member place query key"]
    explained: Float[Tensor, "member"]  # share of the variance between sequences that lies between those positions
    own_apart: Float[Tensor, "member"]  # total variation between a sequence's rows and its position's map
    other_apart: Float[Tensor, "member"]  # the same for the maps of all other positions, their mean


def anchor_maps(ensemble: Ensemble, batch: Batch) -> AnchorMaps:
    """Read the maps of layer 1's only head on test sequences."""
    pattern = look(ensemble, batch.inputs, record=[_PATTERN])[_PATTERN][:, :, 0]
    return read_anchor_maps(pattern, batch.latents["anchor_positions"][:, 0])


def read_anchor_maps(pattern: Float[Tensor, "member batch query key"], anchors: Int[Tensor, "batch"]) -> AnchorMaps:
    """Group one head's maps by the position of the anchor, which differs between sequences."""
    positions = torch.bincount(anchors).nonzero()[:, 0]
    held = (anchors.unsqueeze(-1) == positions).float()  # [batch place]
    counts = held.sum(dim=0)
    maps = torch.einsum("mbqk,bp->mpqk", pattern, held / counts)
    centre = pattern.mean(dim=1, keepdim=True)
    between = ((maps - centre).square().sum(dim=(2, 3)) * counts).sum(dim=1)
    whole = (pattern - centre).square().sum(dim=(1, 2, 3))
    apart = torch.stack([rows_apart(pattern, maps[:, [place]]).mean(dim=-1) for place in range(len(positions))], dim=-1)
    own = (apart * held).sum(dim=-1)
    return AnchorMaps(
        positions=positions,
        maps=maps,
        explained=(between / whole).where(whole > 0, torch.zeros(())),
        own_apart=own.mean(dim=-1),
        other_apart=((apart.sum(dim=-1) - own) / (len(positions) - 1)).mean(dim=-1),
    )


@dataclass(frozen=True)
class LastRow:
    """Accuracy with a last row made by hand (appendix B.5), on sequences whose key is before the last position."""

    made: Float[Tensor, "member"]  # alpha_0 + beta_0 W_V W_O in place of the sum that layer 1's first layer norm reads
    without_key: Float[Tensor, "member"]  # the sequence's own last row there, to which attention has added nothing


def last_row(ensemble: Ensemble, batch: Batch) -> LastRow:
    """Measure how many test sequences LayerNorm(alpha_0 + beta_0 W_V W_O) as the last row answers correctly.

    alpha_0 is one vector for all sequences, the mean of the rows without a key that enter layer 1; beta_0 is the row of
    each sequence's key.
    """
    keys = batch.latents["key_positions"][:, 0]
    elsewhere = keys < batch.inputs.shape[1] - 1
    inputs, keys = batch.inputs[elsewhere], keys[elsewhere]
    answers = inputs[torch.arange(len(keys)), keys]
    rows = look(ensemble, inputs, record=[_ROWS])[_ROWS]
    weights = ensemble.weights
    made = sum_by_hand(rows, weights["blocks.1.attn.W_V"] @ weights["blocks.1.attn.W_O"], keys)
    changed = look(
        ensemble, inputs, candidates={"made": _last_replaced(made), "without key": _last_replaced(rows[:, :, -1])}
    )
    return LastRow(
        made=_right(changed.candidate("made")["output"][:, :, -1], answers),
        without_key=_right(changed.candidate("without key")["output"][:, :, -1], answers),
    )


def sum_by_hand(
    rows: Float[Tensor, "member batch position width"],
    values: Float[Tensor, "member width width"],
    keys: Int[Tensor, "batch"],
) -> Float[Tensor, "member batch width"]:
    """Return alpha_0 + beta_0 W for each sequence: the mean of all rows without a key, and the key's row through W."""
    each = torch.arange(len(keys))
    key_rows = rows[:, each, keys]
    others = rows[:, torch.arange(rows.shape[2]) != keys.unsqueeze(-1)]
    return others.mean(dim=1, keepdim=True) + key_rows @ values


def _last_replaced(row: Float[Tensor, "member batch width"]) -> list[Intervention]:
    operand = Operand(values=row.unsqueeze(2), axes=("member", "batch", "position", "width"))
    where = {"position": -1}
    return [Intervention(site=_SUM, where=where, rule="replace", operand=operand, may_do_nothing=True)]


def _right(logits: Float[Tensor, "member batch output"], answers: Int[Tensor, "batch"]) -> Float[Tensor, "member"]:
    return (logits.argmax(dim=-1) == answers).float().mean(dim=-1)


def _on_tests(measure: Callable[[Ensemble, Batch], Value]) -> cached_property[Value]:
    return reading(lambda seen: measure(seen.ensemble, seen.batch))


class Mechanism(Reading):
    """Measurements of all parts of the model at the end of training, with its test accuracy."""

    accuracy = first_at_end("test", "accuracy")
    batch = sampled("test", LOOKED_AT)
    ensemble = of_first(lambda run: run.ensemble())
    first_attention = _on_tests(measures.first_attention)
    stages = _on_tests(measures.follow_stages)  # by input to the feed-forward network
    second_attention = _on_tests(measures.second_attention)
    by_anchor = _on_tests(anchor_maps)
    projection = _on_tests(measures.project_others)
    replaced_row = _on_tests(last_row)
