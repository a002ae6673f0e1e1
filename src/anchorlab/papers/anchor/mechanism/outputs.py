"""The output of the model for some rows: rows without the key through the projection, and a last row made by hand.

Source: anchor functions, appendix B.5, Figure 27.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.findings import LineFigure
from anchorlab.lens import Intervention, Operand, look, unembed
from anchorlab.papers.anchor.mechanism.rows import PerMember, key_positions
from anchorlab.papers.anchor.settings import ITEMS
from anchorlab.studies.kit import curves_against
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble

_ROWS, _SUM = "blocks.1.hook_resid_pre", "blocks.1.hook_resid_mid"


@dataclass(frozen=True)
class Projection:
    """The output of the projection for rows without the key (appendix B.5)."""

    probabilities: Float[Tensor, "member output"]  # mean over rows
    favour: PerMember  # share of pairs of an item and another token in which the item is likelier
    evenness: PerMember  # entropy over the items, divided by its greatest value


def project_others(ensemble: Ensemble, batch: Batch) -> Projection:
    """Measure the probabilities that the projection gives for layer 0's rows without the key."""
    rows = look(ensemble, batch.inputs, record=[_ROWS])[_ROWS]
    chosen = rows[:, torch.arange(rows.shape[2]) != key_positions(batch).unsqueeze(-1)]
    probabilities = torch.softmax(unembed(ensemble, chosen), dim=-1)
    on_items = probabilities[..., ITEMS.start : ITEMS.stop]
    others = torch.cat([probabilities[..., : ITEMS.start], probabilities[..., ITEMS.stop :]], dim=-1)
    entropy = torch.special.entr(on_items / on_items.sum(dim=-1, keepdim=True)).sum(dim=-1)
    return Projection(
        probabilities=probabilities.mean(dim=1),
        favour=share_greater(on_items, others).mean(dim=-1),
        evenness=(entropy / torch.log(torch.tensor(float(len(ITEMS))))).mean(dim=-1),
    )


def share_greater(left: Float[Tensor, "*lead one"], right: Float[Tensor, "*lead other"]) -> Float[Tensor, "*lead"]:
    """Return the share of pairs of a left and a right value in which the left value is greater.

    Equal values count half.
    """
    ordered = right.sort(dim=-1).values
    below, up_to = (torch.searchsorted(ordered, left.contiguous(), right=equal) for equal in (False, True))
    return (below + up_to).float().mean(dim=-1) / 2 / right.shape[-1]


@dataclass(frozen=True)
class LastRow:
    """Accuracy with a last row made by hand (appendix B.5), on sequences whose key is before the last position."""

    made: Float[Tensor, "member"]  # alpha_0 + beta_0 W_V W_O in place of the sum that layer 1's first layer norm reads
    without_key: Float[Tensor, "member"]  # the sequence's own last row there, before attention adds to it


def last_row(ensemble: Ensemble, batch: Batch) -> LastRow:
    """Measure the accuracy with LayerNorm(alpha_0 + beta_0 W_V W_O) as the last row, and with the row without the key.

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


def projected(found: Projection) -> LineFigure:
    """Draw the probability of every token at positions without the key."""
    return curves_against(
        "What a position without the key puts out (Fig 27)",
        range(found.probabilities.shape[1]),
        {"without the key": found.probabilities},
        x_label="token",
        y_label="probability",
        caption="Probability of every token when the row of such a position, as layer 0 leaves it, goes through "
        "the projection. Mean over positions, sequences and seeds; the band reaches from the lowest to the highest "
        "seed.",
    )
