"""Statistical labels: mostly the answer, sometimes another token, in exact proportions or at random."""

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.random import Generator
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.spec import Spec
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.batch import Batch
from anchorlab.tasks.metrics import correct, probability

CHANGED = "changed"
"""The rival of a batch that holds the changed label."""


class Labels(Spec):
    """Replace a share of the labels by another token, the result of `change` on the answer.

    copies: the number of times that every sequence is repeated in a row; the last `changed` copies get the changed
        label (the paper's first kind). None: each label is changed with probability `probability` (the paper's second
        kind)
    targets: `label` trains on one token; `distribution` trains on both tokens with their probabilities

    An answer whose change would leave the vocabulary keeps its label.
    Source: anchor functions, section 4.8.
    """

    change: Operation = Operation((("+", 1),))
    copies: int | None = Field(None, ge=2, le=10_000)
    changed: int = Field(1, ge=1)
    probability: float = Field(0.2, gt=0, lt=1)
    targets: Literal["label", "distribution"] = "label"

    @model_validator(mode="after")
    def _of_one_kind(self) -> "Labels":
        if self.copies is None and self.changed > 1:
            raise SpecError("changed", "counts copies, and there are none", "give copies, or a probability alone")
        if self.copies is not None and self.probability != type(self).model_fields["probability"].default:
            raise SpecError("probability", "is given together with copies", 'give one of them, as in kind = "second"')
        if self.copies is not None and self.changed >= self.copies:
            raise SpecError("changed", f"{self.changed} of {self.copies} copies leaves none unchanged", "change fewer")
        return self

    @property
    def share(self) -> float:
        """The probability of the changed label."""
        return self.probability if self.copies is None else self.changed / self.copies

    def changed_rows(self, rows: int, random: Generator) -> Bool[np.ndarray, "row"]:
        """Return, for each of `rows` rows, whether it gets the changed label."""
        if self.copies is None:
            return random.random(rows) < self.probability
        return np.arange(rows) % self.copies >= self.copies - self.changed

    def distribution(self, answers: Int[Tensor, "batch scored"], size: int) -> Float[Tensor, "batch scored output"]:
        """Return the true distribution over `size` tokens for each answer."""
        kept = torch.nn.functional.one_hot(answers, size).float()
        other = torch.nn.functional.one_hot(self._other(answers, size), size)
        return (1 - self.share) * kept + self.share * other

    def _other(self, answers: Int[Tensor, "batch scored"], size: int) -> Int[Tensor, "batch scored"]:
        """Return the changed label of each answer; the answer itself if `change` leaves the vocabulary."""
        other = torch.from_numpy(self.change.results(size))[answers]
        return other.where(other >= 0, answers)

    def applied(self, batch: Batch, n: int, random: Generator, size: int, by_label: bool) -> Batch:
        """Return `n` rows: the batch's sequences with their copies and changed labels.

        `n` is at most `copies` times the number of sequences in the batch; `size` is the number of tokens. The rivals
        gain the changed label of every row; with `by_label` the groups are `unchanged` and `changed`.
        """
        rows = torch.arange(n) // (self.copies or 1)
        changed = torch.from_numpy(self.changed_rows(n, random))
        answers = batch.answers[rows]
        other = self._other(answers, size)
        targets = torch.where(changed[:, None], other, answers)
        if self.targets == "distribution":
            targets = answers = self.distribution(answers, size)
        return replace(
            batch,
            inputs=batch.inputs[rows],
            targets=targets,
            answers=answers,
            group=changed.long() if by_label else None if batch.group is None else batch.group[rows],
            groups=("unchanged", "changed") if by_label else batch.groups,
            latents={name: value[rows] for name, value in batch.latents.items()},
            rivals={**{name: value[rows] for name, value in batch.rivals.items()}, CHANGED: other},
        )

    def metrics(
        self, outputs: Float[Tensor, "batch scored output"], batch: Batch
    ) -> dict[str, Float[Tensor, "batch scored"]]:
        """Return accuracy against answers and labels, the probabilities of both tokens, and the total variation.

        The total variation from the true distribution is half the sum over tokens of |p - q|.
        """
        soft = self.targets == "distribution"
        answers = batch.answers.argmax(dim=-1) if soft else batch.answers
        kept, other = probability(outputs, answers), probability(outputs, batch.rivals[CHANGED])
        changes = (batch.rivals[CHANGED] != answers).to(kept.dtype)  # 0 where the change would leave the vocabulary
        share, second = self.share * changes, other * changes
        elsewhere = 1 - kept - second
        return {
            "accuracy": correct(outputs, answers),
            "label accuracy": correct(outputs, batch.targets.argmax(dim=-1) if soft else batch.targets),
            "probability of answer": kept,
            "probability of changed": other,
            "total variation": ((kept - 1 + share).abs() + (second - share).abs() + elsewhere) / 2,
        }
