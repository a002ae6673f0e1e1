"""What the last row after layer 1's attention is made of, on the identity anchor function.

Source: anchor functions, appendix B.5.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.lens import Intervention, Operand, look
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble

_ROWS, _SUM = "blocks.1.hook_resid_pre", "blocks.1.hook_resid_mid"


@dataclass(frozen=True)
class LastRow:
    """Share of right answers from a last row made by hand, on sequences whose key is before the last position."""

    made: Float[Tensor, "member"]  # alpha_0 + beta_0 W_V W_O in place of the sum that layer 1's first layer norm reads
    without_key: Float[Tensor, "member"]  # the sequence's own last row there, to which attention has added nothing


def last_row(ensemble: Ensemble, batch: Batch) -> LastRow:
    """Answer test sequences from LayerNorm(alpha_0 + beta_0 W_V W_O).

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
