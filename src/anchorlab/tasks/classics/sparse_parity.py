"""Sparse parity: the exclusive or of a few hidden bits."""

from typing import Literal

import torch
from jaxtyping import Int
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.tasks.batch import Answer, Batch, TraceStep
from anchorlab.tasks.classics.drawing import draw_split, side
from anchorlab.tasks.numbers import Numbers
from anchorlab.tasks.registry import register_task
from anchorlab.tasks.task import Task


@register_task("classics/sparse-parity")
class SparseParity(Task):
    """The parity of the bits at a few fixed positions among many: 1 if an odd number of them is 1.

    length: the number n of bits
    relevant: the positions that count; the model has to find them

    A sequence is the n bits; the answer is scored at the last. The answer is independent of any proper subset of the
    relevant bits. One sequence in five is a test sequence, chosen by a hash of its bits.
    Baseline: a guess is right half of the time. With few bits, however, training can show about four fifths of all
    2^n sequences, and nearly all sequences that differ from a test sequence in one bit are among them.
    Source: Barak et al., Hidden progress in deep learning: SGD learns parities near the computational limit, 2022.
    """

    family: Literal["sparse-parity"] = "sparse-parity"
    length: int = Field(20, ge=2, le=512)
    relevant: Numbers = (3, 8, 14)

    @model_validator(mode="after")
    def _fits(self) -> "SparseParity":
        if not self.relevant or len(set(self.relevant)) < len(self.relevant):
            raise SpecError("relevant", f"{list(self.relevant)} is empty or names a position twice", "give 3,8,14")
        if not all(0 <= place < self.length for place in self.relevant):
            raise SpecError("relevant", f"{list(self.relevant)} leaves 0 to {self.length - 1}", "name positions in it")
        return self

    @property
    def shape(self) -> TaskShape:
        """n bits in, one bit out."""
        return TaskShape("tokens", self.length, 2, 2)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """Draw `n` sequences of fair bits."""
        inputs = draw_split(self, split, n, seed, lambda random, count: random.integers(0, 2, (count, self.length)))
        answers = (inputs[:, list(self.relevant)].sum(dim=1, keepdim=True)) % 2
        return Batch(inputs, answers, answers, torch.tensor([self.length - 1]), split)

    def oracle(self, inputs: Int[Tensor, "batch position"]) -> Answer:
        """Return the parity; the trace has a step for each relevant bit."""
        fits = self.split_of(inputs) >= 0
        parity, trace = torch.zeros(len(inputs), dtype=torch.bool), []
        for place in self.relevant:
            bit = inputs[:, place]
            parity = parity ^ (bit == 1)
            trace.append(TraceStep(f"bit {place}", torch.where(fits, place, -1), bit))
        return Answer(parity.long().unsqueeze(1), fits.unsqueeze(1), tuple(trace))

    def split_of(self, inputs: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """Return the split by the hash of the bits; -1 for anything but n bits."""
        return side(inputs)
