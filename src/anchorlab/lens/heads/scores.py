"""Scores: one number per sequence and head, their mean over the sequences, and how sure that mean is."""

from dataclasses import dataclass
from functools import cached_property
from math import pi, tan

import torch
from jaxtyping import Float, Int
from torch import Tensor

_NORMAL = 1.959963984540054  # 95 % of a normal law lie within so many standard deviations


@dataclass(frozen=True)
class Scores:
    """One number in [0, 1] per sequence and head, and how much each sequence counts.

    Shapes
        values: `[... batch head]`; in a profile the last of the leading axes is the offset
        weights: `[batch]`, or `[offset batch]` in a profile, at least 0; a sequence of weight 0 is left out
    """

    values: Float[Tensor, "*lead batch head"]
    weights: Float[Tensor, "*offset batch"]

    @cached_property
    def mean(self) -> Float[Tensor, "*lead head"]:
        """The weighted mean over the sequences; 0 where no sequence counts."""
        return torch.einsum("...bh,...b->...h", self.values, self._shares)

    @cached_property
    def standard_error(self) -> Float[Tensor, "*lead head"]:
        """By how much the mean would vary over other draws of as many sequences; infinite where fewer than two count.

        sqrt(N / (N - 1) * sum over b of s_b^2 (v_b - mean)^2), for the values v_b of the N sequences that count and
        their shares s_b of the weight: with equal weights the standard deviation over sqrt(N). Where the weights vary,
        they count as drawn with the sequences.
        """
        count = self._count.unsqueeze(-1)
        squares = (self.values - self.mean.unsqueeze(-2)).square()
        variance = torch.einsum("...bh,...b->...h", squares, self._shares.square())
        error = (variance * count / (count - 1).clamp(min=1)).sqrt()
        return torch.where(count > 1, error, torch.inf)

    @cached_property
    def interval(self) -> tuple[Float[Tensor, "*lead head"], Float[Tensor, "*lead head"]]:
        """Lowest and highest mean that the sequences allow at 95 %, within [0, 1].

        Student's interval, mean -+ t * `standard_error`. It has no width where all sequences score the same, as for a
        head that attends by position alone, and is all of [0, 1] where fewer than two sequences count. It is too short
        for scores that are nearly always at one end and seldom elsewhere.
        """
        reach = student(self._count - 1).unsqueeze(-1) * self.standard_error
        return (self.mean - reach).clamp(min=0), (self.mean + reach).clamp(max=1)

    @property
    def _count(self) -> Tensor:
        return (self.weights > 0).sum(dim=-1)

    @property
    def _shares(self) -> Tensor:
        total = self.weights.sum(dim=-1, keepdim=True)
        return self.weights / torch.where(total > 0, total, 1)


@dataclass(frozen=True)
class Profile:
    """Scores of each head for each of several offsets, or positions.

    Shapes
        offsets: `[offset]`, the offsets that were tried
        scores: values `[... offset batch head]`, weights `[offset batch]`
    """

    offsets: Int[Tensor, "offset"]
    scores: Scores

    @cached_property
    def mass(self) -> Float[Tensor, "*lead head offset"]:
        """The mean score of each head for each offset; 0 where no sequence counts."""
        return self.scores.mean.transpose(-1, -2)

    @property
    def best(self) -> Int[Tensor, "*lead head"]:
        """The offset with the greatest mean, per head."""
        return self.offsets[self.mass.argmax(dim=-1)]

    @property
    def value(self) -> Float[Tensor, "*lead head"]:
        """The greatest mean, per head."""
        return self.mass.amax(dim=-1)

    @property
    def interval(self) -> tuple[Float[Tensor, "*lead head"], Float[Tensor, "*lead head"]]:
        """The interval of the score at the best offset, per head, as `Scores.interval` has it.

        The offset is taken as given: where several come close, the greatest of them is a little too high.
        """
        at = self.mass.argmax(dim=-1, keepdim=True)
        low, high = (end.transpose(-1, -2).gather(-1, at).squeeze(-1) for end in self.scores.interval)
        return low, high


def student(freedom: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Within how many standard errors 95 % of Student's law lie, for each number of degrees of freedom.

    Exact for one degree; else by the expansion about the normal law (Abramowitz and Stegun, 26.7.5), which is 0.8 % low
    for two degrees, and right to four digits from five on.
    """
    z = _NORMAL
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    degrees = freedom.clamp(min=1).to(torch.get_default_dtype())
    many = z + sum(term / degrees**power for power, term in enumerate(terms, start=1))
    return torch.where(freedom > 1, many, tan(0.475 * pi))
