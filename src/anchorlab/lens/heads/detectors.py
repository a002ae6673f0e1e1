"""Detectors: how much each head does one thing, such as shift or broadcast, as a number.

Each detector takes attention patterns `[... batch head query key]`, whose rows sum to 1, and returns one score in
[0, 1] per head, `[... head]`: the mean over the batch of the score of the same name in `per_sequence`, which explains
it. Leading axes such as `member` are kept. With `lengths`, a sequence too short for a score is left out.

The functions that try several offsets return `OffsetScores`, which have intervals as well as means. `chance` has the
scores of random attention.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec

from jaxtyping import Float
from torch import Tensor

from anchorlab.lens.heads import per_sequence
from anchorlab.lens.heads.per_sequence import AttentionPattern, Lengths
from anchorlab.lens.heads.per_sequence import broadcast_profile as broadcast_profile
from anchorlab.lens.heads.per_sequence import fixed_position_profile as fixed_position_profile
from anchorlab.lens.heads.per_sequence import shift_profile as shift_profile
from anchorlab.lens.heads.scores import HeadScores

Given = ParamSpec("Given")

PerHead = Float[Tensor, "*lead head"]
"""One score per head, averaged over the batch."""


def _averaged(score: Callable[Given, HeadScores]) -> Callable[Given, PerHead]:
    """Return the detector that averages a score over the batch, with the name and the docstring of the score."""

    @wraps(score)
    def detector(*given: Given.args, **named: Given.kwargs) -> PerHead:
        return score(*given, **named).mean

    detector.__module__ = __name__
    detector.__annotations__ = {**score.__annotations__, "return": PerHead}
    detector.__signature__ = signature(score).replace(return_annotation=PerHead)  # type: ignore[attr-defined]
    return detector


shift = _averaged(per_sequence.shift)
next_token = _averaged(per_sequence.next_token)
broadcast = _averaged(per_sequence.broadcast)
first_token = _averaged(per_sequence.first_token)
fixed_position = _averaged(per_sequence.fixed_position)
anchor_attending = _averaged(per_sequence.anchor_attending)
uniform = _averaged(per_sequence.uniform)
induction = _averaged(per_sequence.induction)
matching = _averaged(per_sequence.matching)


def previous_token(pattern: AttentionPattern, lengths: Lengths = None) -> PerHead:
    """Score how much a head attends to the previous token: `shift(pattern, 1)`."""
    return shift(pattern, 1, lengths)


def self_attending(pattern: AttentionPattern, lengths: Lengths = None) -> PerHead:
    """Score how much a head attends to the current token: `shift(pattern, 0)`."""
    return shift(pattern, 0, lengths)
