"""The detectors that apply to a part of a batch, and the scores of a random head on it."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor

from anchorlab.lens.heads import per_sequence
from anchorlab.lens.heads.chance import chance_of_uniform, uniform_attention
from anchorlab.lens.heads.scores import HeadScores, OffsetScores

Scores = HeadScores | OffsetScores
"""The result of a detector: a score for each sequence and head, at one offset or at several."""


class Part:
    """The sequences of a part of a batch, with their anchors, keys and lengths, `[batch]`, or None if unknown."""

    def __init__(self, inputs: Tensor, anchors: Tensor | None, keys: Tensor | None, lengths: Tensor | None) -> None:
        self.inputs, self.anchors, self.keys, self.lengths = inputs, anchors, keys, lengths
        self._chance: dict[bool, dict[str, Scores]] = {}

    def detectors(self, length: int, causal: bool) -> dict[str, Callable[[Tensor], Scores]]:
        """The detectors that apply, by name; each takes a pattern `[... batch head query key]`."""
        lengths = self.lengths
        found: dict[str, Callable[[Tensor], Scores]] = {
            "shift": partial(per_sequence.shift_profile, lengths=lengths),
            "previous_token": partial(per_sequence.shift, k=1, lengths=lengths),
            "self_attending": partial(per_sequence.shift, k=0, lengths=lengths),
            "uniform": partial(per_sequence.uniform, causal=causal, lengths=lengths),
            "first_token": partial(per_sequence.first_token, lengths=lengths),
        }
        position = partial(per_sequence.fixed_position_profile, lengths=lengths)
        found["fixed_position"] = position if causal else partial(position, largest=length - 1, queries="all")
        if not causal:
            found["next_token"] = partial(per_sequence.next_token, lengths=lengths)
        if not self.inputs.is_floating_point():
            recurrence = partial(per_sequence.recurrence, tokens=self.inputs, lengths=lengths)
            found["induction"] = partial(recurrence, wanted="followers")
            found["matching"] = partial(recurrence, wanted="copies")
        if self.anchors is not None:
            attending = partial(per_sequence.anchor_attending, anchors=self.anchors, lengths=lengths)
            profile = partial(per_sequence.broadcast_profile, anchors=self.anchors, lengths=lengths)
            found |= {"anchor_attending": attending, "broadcast_profile": profile}
        if self.keys is not None:
            found["broadcast"] = partial(per_sequence.broadcast, sources=self.keys, lengths=lengths)
        return found

    def chance(self, length: int, causal: bool) -> dict[str, Scores]:
        """Return the expected scores of a random head, by detector."""
        if causal not in self._chance:
            whole = torch.full((len(self.inputs),), length)
            lengths = whole if self.lengths is None else self.lengths
            uniform = uniform_attention(length, causal, lengths.cpu()).unsqueeze(1)
            found = {name: measure(uniform) for name, measure in self.detectors(length, causal).items()}
            found["uniform"] = _uniform_by_chance(lengths, causal)
            self._chance[causal] = found
        return self._chance[causal]


def _uniform_by_chance(lengths: Int[Tensor, "batch"], causal: bool) -> HeadScores:
    """Return `chance_of_uniform` for each sequence; sequences that leave a head no choice have weight 0."""
    known = {n: chance_of_uniform(n, causal) for n in set(lengths.tolist()) if n > 1 or not causal}
    values = torch.tensor([known.get(n, 0.0) for n in lengths.tolist()], dtype=torch.float64)
    return HeadScores(values.unsqueeze(-1), torch.tensor([float(n in known) for n in lengths.tolist()]).double())
