"""Broadcasting from an unknown source: find the position of each sequence that a head attends to most."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.lens.heads.per_sequence import AttentionPattern


def best_source(
    pattern: AttentionPattern, besides_first: bool
) -> tuple[Float[Tensor, "*lead batch head"], Int[Tensor, "*lead batch head"]]:
    """Return each sequence's largest score of broadcasting from one position, and that position.

    The source s ranges over the positions up to the middle, so that at least about half of the queries come after it.
    The score is the summed attention of the queries q > s to s, divided by all their attention. With `besides_first`,
    their attention to the first token is left out of the divisor, and the first token is excluded as a source. This is
    for language models: their idle heads attend mostly to the first token, which would look like a broadcast.
    """
    length = pattern.shape[-1]
    first = 1 if besides_first else 0
    later = torch.ones(length, length, dtype=pattern.dtype, device=pattern.device).tril(-1)[:, first : length // 2 + 1]
    given = torch.einsum("...qs,qs->...s", pattern[..., first : length // 2 + 1], later)
    may = 1 - pattern[..., 0] if besides_first else torch.ones_like(pattern[..., 0])
    share = given / torch.einsum("...q,qs->...s", may, later).clamp(min=torch.finfo(pattern.dtype).tiny)
    best = share.max(dim=-1)
    return best.values.clamp(max=1), best.indices + first
