"""The positions at which predictions are scored, and the further positions that training scores."""

from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field

from anchorlab.errors import SpecError
from anchorlab.spec import Spec
from anchorlab.tasks.batch import Batch


class Scoring(Spec):
    """The scored positions; negative ones count from the end.

    positions: the positions at which the answer is scored; by default only the last
    every_token: whether the training loss also scores, at every other position, the token that follows it (next-token
        prediction). Evaluation, including its loss, scores only the answer

    Source: anchor functions, section 3.4; every_token: Lin et al., Reasoning Bias of Next Token Prediction Training
    (2025).
    """

    later: ClassVar[frozenset[str]] = frozenset({"every_token"})

    positions: tuple[int, ...] = Field((-1,), min_length=1, max_length=4096)
    every_token: bool = False

    def within(self, length: int) -> tuple[int, ...]:
        """Return the positions counted from 0 in a sequence of this length.

        Errors: `SpecError` for a position outside the sequence, and for a position named twice.
        """
        for position in self.positions:
            if not -length <= position < length:
                raise SpecError("positions", f"{position} is outside the {length} positions", "use -1 for the last")
        found = tuple(position % length for position in self.positions)
        if len(set(found)) < len(found):
            raise SpecError("positions", f"{list(self.positions)} names one twice", "name each position once")
        return found

    def for_training(self, batch: Batch, size: int) -> Batch:
        """Return a batch of `size` tokens as the training loss scores it.

        With `every_token`, the positions without an answer come first, each with its following token as target and
        answer; rival rules have no answer there. The last position has no following token.
        """
        if not self.every_token:
            return batch
        length = batch.inputs.shape[1]
        others = torch.tensor(sorted({*range(length - 1)} - {*self.within(length)}), dtype=torch.int64)
        following = batch.inputs[:, others + 1]
        nothing = torch.full_like(following, -1)
        if batch.targets.is_floating_point():
            following = torch.nn.functional.one_hot(following, size).to(batch.targets.dtype)
        return replace(
            batch,
            targets=torch.cat([following, batch.targets], dim=1),
            answers=torch.cat([following, batch.answers], dim=1),
            positions=torch.cat([others, batch.positions]),
            rivals={name: torch.cat([nothing, value], dim=1) for name, value in batch.rivals.items()},
        )
