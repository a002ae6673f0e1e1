"""Noisy associative memory: each input has its own output, sometimes replaced by noise."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks.batch import Answer, Batch, Example, Token, TraceStep
from anchorlab.tasks.metrics import correct, probability
from anchorlab.tasks.registry import register_task
from anchorlab.tasks.task import Task


@register_task("associative/noisy")
class NoisyAssociative(Task):
    """The output that belongs to the input, sometimes replaced by one common noise output.

    An input x is one of n equally frequent tokens. Its output is x with probability 1 - alpha, and the noise, output n
    (the paper's c = n + 1), with probability alpha:

        p(y | x) = (1 - alpha) 1{y = x} + alpha 1{y = n}

    inputs: the number n of inputs
    alpha: the probability of noise in training; the split `clean` has alpha = 0, and its loss is the pure-label loss

    The targets are the distributions, not draws from them. Sequences come in runs of n that contain every input once,
    in random order. So a batch of n is the whole population, and its loss is exact. Training on a fixed sample of n in
    batches of n is gradient descent on the exact loss.

    The right answer for x is output x for any alpha; for alpha < 0.5 it is also the most probable output.
    Both splits have the same inputs, so `separated` is false.
    Source: truncated weights, section 5, equation (4).
    """

    family: Literal["associative"] = "associative"
    inputs: int = Field(3, ge=2, le=1024)
    alpha: float = Field(0.03, ge=0, le=1, allow_inf_nan=False)

    separated: ClassVar[bool] = False

    @property
    def splits(self) -> tuple[str, ...]:
        """`train`, and `clean` without noise."""
        return ("train", "clean")

    @property
    def shape(self) -> TaskShape:
        """One token in, one of n + 1 outputs out."""
        return TaskShape("tokens", 1, self.inputs, self.inputs + 1)

    @property
    def noise_output(self) -> int:
        """The id of the noise output."""
        return self.inputs

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """Draw `n` inputs x. Targets are p(y | x), `[batch 1 output]`; answers give output x probability 1."""
        self.check_draw(split, n, seed)
        populations = np.tile(np.arange(self.inputs), (-(-n // self.inputs), 1))
        drawn = generator(seed, "sequences", split).permuted(populations, axis=1).reshape(-1, 1)[:n]
        inputs = torch.from_numpy(drawn)
        targets = self._law(inputs, self.alpha if split == "train" else 0.0)
        return Batch(inputs, targets, self._law(inputs, 0.0), torch.tensor([0]), split)

    def _law(self, inputs: Int[Tensor, "batch position"], alpha: float) -> Float[Tensor, "batch position output"]:
        """Return p(y | x) for each input."""
        law = (1 - alpha) * functional.one_hot(inputs, self.inputs + 1).float()
        law[..., self.noise_output] += alpha
        return law

    def oracle(self, inputs: Int[Tensor, "batch position"]) -> Answer:
        """Return output x as the answer to each input x; unknown for tokens that are not inputs."""
        known = self.split_of(inputs) >= 0
        tokens = torch.where(known, inputs[:, 0], 0).unsqueeze(1)
        found = TraceStep("input", known.long() - 1, tokens[:, 0])
        return Answer(self._law(tokens, 0.0), known.unsqueeze(1), (found,))

    def ideal(self, inputs: Int[Tensor, "batch position"]) -> Float[Tensor, "batch scored output"]:
        """Return p(y | x) under the training noise. Errors: `SpecError` for tokens that are not inputs."""
        return self._law(self._checked(inputs), self.alpha)

    def _checked(self, inputs: Int[Tensor, "batch position"]) -> Int[Tensor, "batch position"]:
        """Return the inputs. Errors: `SpecError` for tokens that are not inputs."""
        if (self.split_of(inputs) < 0).any():
            raise SpecError("inputs", "are not single tokens below n", f"give [batch 1], from 0 to {self.inputs - 1}")
        return inputs

    def split_of(self, inputs: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """Return 0 for a single token below n, which both splits could draw, and -1 for anything else."""
        return torch.zeros(len(inputs), dtype=torch.int64)

    def metrics(
        self, outputs: Float[Tensor, "batch scored output"], batch: Batch
    ) -> dict[str, Float[Tensor, "batch scored"]]:
        """Return the probabilities of output x (`right`) and noise (`noise`), and `accuracy`: x is most probable."""
        right = batch.answers.argmax(dim=-1)
        return {
            "right": probability(outputs, right),
            "noise": torch.softmax(outputs, dim=-1)[..., self.noise_output],
            "accuracy": correct(outputs, right),
        }

    def render(self, inputs: Int[Tensor, "batch position"]) -> Sequence[Example]:
        """Return each input with its output."""
        return [
            Example(
                (Token(str(token), "input"),),
                (f"output {token} with probability {1 - self.alpha:g}, noise with probability {self.alpha:g}",),
                str(token),
                self.splits[0],
            )
            for token in self._checked(inputs)[:, 0].tolist()
        ]
