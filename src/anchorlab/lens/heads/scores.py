"""Scores of heads by sequence, with their mean over the sequences and its confidence interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class HeadScores:
    """A score in [0, 1] for each sequence and head, and the weight of each sequence in their mean.

    Shapes
        values: `[... batch head]`; in `OffsetScores` the last leading axis is `offset`
        weights: `[batch]`, or `[offset batch]` in `OffsetScores`; not negative, 0 leaves a sequence out
    """

    values: Float[Tensor, "*lead batch head"]
    weights: Float[Tensor, "*offset batch"]

    @cached_property
    def mean(self) -> Float[Tensor, "*lead head"]:
        """The weighted mean over the sequences; 0 if all weights are 0."""
        return torch.einsum("...bh,...b->...h", self.values, self._shares)

    @cached_property
    def standard_error(self) -> Float[Tensor, "*lead head"]:
        """The standard error of the mean; infinite for fewer than two sequences of nonzero weight.

        sqrt(N / (N - 1) * sum over b of s_b^2 (v_b - mean)^2), for the values v_b of the N sequences of nonzero weight
        and their shares s_b of the total weight. With equal weights this is the standard deviation over sqrt(N).
        Weights that vary are treated as drawn together with the sequences.
        """
        count = self._count.unsqueeze(-1)
        squares = (self.values - self.mean.unsqueeze(-2)).square()
        variance = torch.einsum("...bh,...b->...h", squares, self._shares.square())
        error = (variance * count / (count - 1).clamp(min=1)).sqrt()
        return torch.where(count > 1, error, torch.inf)

    @cached_property
    def interval(self) -> tuple[Float[Tensor, "*lead head"], Float[Tensor, "*lead head"]]:
        """The lower and upper end of the mean's 95 % confidence interval, within [0, 1].

        Student's interval, mean -+ t * `standard_error`. Its width is 0 if all sequences score the same, as for a head
        that attends by position only. It is [0, 1] for fewer than two sequences of nonzero weight. It is too narrow for
        scores that are almost always at one end of their range.
        """
        reach = student(self._count - 1).unsqueeze(-1) * self.standard_error
        return (self.mean - reach).clamp(min=0), (self.mean + reach).clamp(max=1)

    @classmethod
    def join(cls, parts: Sequence["HeadScores"]) -> "HeadScores":
        """Join the scores of consecutive parts of a batch into the scores of all sequences."""
        values, weights = [part.values for part in parts], [part.weights for part in parts]
        return cls(torch.cat(values, dim=-2), torch.cat(weights, dim=-1))

    @property
    def _count(self) -> Tensor:
        return (self.weights > 0).sum(dim=-1)

    @property
    def _shares(self) -> Tensor:
        total = self.weights.sum(dim=-1, keepdim=True)
        return self.weights / torch.where(total > 0, total, 1)


@dataclass(frozen=True)
class OffsetScores:
    """Scores of each head at several offsets or positions.

    A sequence that does not contain the source has weight 0. An offset at which fewer than half of the sequences count
    has mass 0, so that a few sequences cannot make it the best offset.

    Shapes
        offsets: `[offset]`, the offsets or positions
        scores: values `[... offset batch head]`, weights `[offset batch]`
    """

    offsets: Int[Tensor, "offset"]
    scores: HeadScores

    @cached_property
    def mass(self) -> Float[Tensor, "*lead head offset"]:
        """The mean score of each head at each offset; 0 where fewer than half of the sequences count."""
        counting = self.scores.weights > 0
        common = 2 * counting.sum(dim=-1) >= counting.shape[-1]
        return self.scores.mean.transpose(-1, -2) * common

    @property
    def best(self) -> Int[Tensor, "*lead head"]:
        """The offset with the largest mean score, per head."""
        return self.offsets[self.mass.argmax(dim=-1)]

    @property
    def value(self) -> Float[Tensor, "*lead head"]:
        """The largest mean score over the offsets, per head."""
        return self.mass.amax(dim=-1)

    @property
    def interval(self) -> tuple[Float[Tensor, "*lead head"], Float[Tensor, "*lead head"]]:
        """The ends of the score's confidence interval at the best offset, per head (`HeadScores.interval`).

        The interval ignores that the offset was chosen by its score. So it lies slightly too high if several offsets
        score almost equally.
        """
        at = self.mass.argmax(dim=-1, keepdim=True)
        low, high = (end.transpose(-1, -2).gather(-1, at).squeeze(-1) for end in self.scores.interval)
        return low, high

    @classmethod
    def join(cls, parts: Sequence["OffsetScores"]) -> "OffsetScores":
        """Join the scores of consecutive parts of a batch; all parts must have the same offsets."""
        return cls(parts[0].offsets, HeadScores.join([part.scores for part in parts]))


def student(freedom: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the 97.5 % quantile of Student's distribution for each number of degrees of freedom, 1 in place of 0."""
    from scipy.special import stdtrit

    quantiles = stdtrit(freedom.clamp(min=1).cpu().numpy(), 0.975)
    return torch.as_tensor(quantiles, device=freedom.device, dtype=torch.get_default_dtype())
