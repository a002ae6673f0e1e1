"""Random tokens repeated once: only the repetition predicts the second half, so induction heads stand out."""

from collections.abc import Collection

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.rng import generator


def repeated_tokens(
    vocabulary: int,
    sequences: int,
    half: int,
    seed: int = 0,
    excluded: Collection[int] = (),
    start: int | None = None,
) -> Int[Tensor, "batch position"]:
    """Draw sequences of `half` different random tokens followed by the same tokens again.

    A sequence is `x_1 .. x_half x_1 .. x_half`. No token occurs twice in a half. So an induction head at the second
    `x_i` has exactly one position to attend to, the first `x_(i+1)`, which is `half - 1` positions earlier.

    Args:
        vocabulary: the number of the tokenizer's tokens; a model's embedding may have further rows that no text uses
        sequences: the number of sequences
        half: the number of tokens before the repetition
        seed: the seed of the draw
        excluded: ids never drawn, such as the tokenizer's special tokens (`tokenizer.all_special_ids`)
        start: an id to put before each sequence, such as the beginning-of-text token, if the model was trained with it

    Errors: `SpecError` if fewer than `half` tokens are left, or nothing is to be drawn.
    """
    if sequences < 1 or half < 1:
        raise SpecError("half", f"{sequences} sequences with halves of {half} tokens", "choose at least 1 of each")
    allowed = np.setdiff1d(np.arange(vocabulary), np.array(sorted(excluded), dtype=np.int64))
    if len(allowed) < half:
        raise SpecError("half", f"{half} different tokens, but only {len(allowed)} may be drawn", "choose fewer")
    random = generator(seed, "language", "repeated tokens")
    drawn = torch.from_numpy(np.stack([random.choice(allowed, half, replace=False) for _ in range(sequences)]))
    begun = torch.full((sequences, 0 if start is None else 1), start or 0)
    return torch.cat([begun, drawn, drawn], dim=1)
