"""Mapping sequences: the changes of a model's output from position to position after the key."""

import torch
from jaxtyping import Int
from torch import Tensor

from anchorlab.errors import SpecError


def mapping_sequences(
    inputs: Int[Tensor, "batch position"],
    outputs: Int[Tensor, "*lead batch position"],
    key_positions: Int[Tensor, "batch"],
) -> Int[Tensor, "*lead batch move"]:
    """Return the mapping sequence of each input, padded with zeros to `position - 1` moves.

    With the key x_i and the output token f at each position, the moves are f(x_i+1) - x_i, then f(x_i+2) - f(x_i+1),
    and so on. By definition a mapping sequence ends at its last change. So two inputs have the same mapping sequence if
    and only if their rows are equal, even if their keys are followed by different numbers of positions.

        key 30, outputs after it 40, 36, 36, 36 -> 10, -4, 0, 0

    Source: anchor functions, Definition 1.
    """
    length = inputs.shape[-1]
    if bool(((key_positions < 0) | (key_positions > length - 2)).any()):
        raise SpecError("key_positions", "hold a position that no output follows", f"keep them within 0..{length - 2}")
    keys = inputs.gather(-1, key_positions[:, None])
    steps = torch.arange(1, length, device=inputs.device)
    # Past the end the last output is repeated, so that the moves there are 0.
    places = (key_positions[:, None] + steps).clamp(max=length - 1)
    after = outputs.gather(-1, places.expand(*outputs.shape[:-1], length - 1))
    start = keys.expand(*after.shape[:-1], 1)
    return torch.cat([start, after], dim=-1).diff(dim=-1)


def distinct_counts(sequences: Int[Tensor, "batch move"]) -> Int[Tensor, "sequence"]:
    """Return the number of inputs with each distinct mapping sequence, the most common first."""
    if len(sequences) == 0:
        return torch.zeros(0, dtype=torch.int64)
    counts: Tensor = torch.unique(sequences, dim=0, return_counts=True)[1]
    return counts.sort(descending=True).values
