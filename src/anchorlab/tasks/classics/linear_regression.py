"""In-context linear regression: predict the value of each point from the pairs of point and value before it."""

from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks.batch import Answer, Batch, TraceStep
from anchorlab.tasks.metrics import LossKind
from anchorlab.tasks.registry import register_task
from anchorlab.tasks.task import Task


@register_task("classics/linear-regression")
class LinearRegression(Task):
    """The value of a linear function at a new point; each sequence has its own function, given only by examples.

        x1 y1 x2 y2 .. xk yk  with  y = w . x + noise,  w ~ N(0, 1/d), x ~ N(0, 1) in each coordinate

    dimension: the number d of coordinates
    examples: the number k of pairs; the answer is scored at every x, with the pairs before it as its context
    noise: the standard deviation of the noise added to values

    A position is a vector: the d coordinates of a point, or d zeros; a value, or zero; then a one-hot vector of the
    position, since vector models add no position embedding. The right answer is w . x, known once there are d + 1
    noiseless pairs. Both splits have the same distribution: `separated` is false. `w` has variance 1/d, so that values
    have variance 1.
    Source: Garg et al., What can transformers learn in-context? A case study of simple function classes, 2022.
    """

    family: Literal["linear-regression"] = "linear-regression"
    dimension: int = Field(5, ge=1, le=256)
    examples: int = Field(11, ge=2, le=512)
    noise: float = Field(0.0, ge=0, le=100, allow_inf_nan=False)

    separated: ClassVar[bool] = False
    loss: ClassVar[LossKind] = "mean_squared_error"

    @property
    def shape(self) -> TaskShape:
        """Points, values and positions in, a value out."""
        length = 2 * self.examples
        return TaskShape("vectors", length, self.dimension + 1 + length, 1)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """Draw `n` functions with their pairs; only targets include the noise. Latents: `w`, `[batch feature]`."""
        self.check_draw(split, n, seed)
        random, d, k = generator(seed, "sequences", split), self.dimension, self.examples
        w = random.standard_normal((n, d)) / np.sqrt(d)
        x = random.standard_normal((n, k, d)).astype(np.float32)
        y = np.einsum("nkd,nd->nk", x.astype(np.float64), w)
        seen = y + self.noise * random.standard_normal((n, k))
        inputs = torch.zeros((n, 2 * k, self.shape.input_size))
        inputs[:, 0::2, :d] = torch.from_numpy(x)
        inputs[:, 1::2, d] = torch.from_numpy(seen).float()
        inputs[:, :, d + 1 :] = torch.eye(2 * k)
        answers, targets = (torch.from_numpy(values).float().unsqueeze(-1) for values in (y, seen))
        latents = {"w": torch.from_numpy(w).float()}
        return Batch(inputs, targets, answers, torch.arange(0, 2 * k, 2), split, latents=latents)

    def oracle(self, inputs: Float[Tensor, "batch position feature"]) -> Answer:
        """Return the values of the linear function fitted to all pairs of the sequence by least squares.

        The answers at all points are known if the pairs determine w: at least d + 1 of them lie on one linear function.
        """
        x, seen = self.pairs(inputs)
        finite = x.isfinite().all(dim=2).all(dim=1) & seen.isfinite().all(dim=1)
        x, seen = x.where(finite[:, None, None], 0.0), seen.where(finite[:, None], 0.0)
        answers = x @ torch.linalg.lstsq(x, seen.unsqueeze(-1)).solution
        exact = (answers.squeeze(-1) - seen).abs().amax(dim=1) < 1e-4 * (1 + seen.abs().amax(dim=1))
        determined = finite & exact & (torch.linalg.matrix_rank(x) == self.dimension) & (self.examples > self.dimension)
        last = 2 * self.examples - 1
        step = TraceStep("last value", torch.where(self.split_of(inputs) == 0, last, -1), seen[:, -1].float())
        return Answer(answers.float(), determined.unsqueeze(1).expand(len(x), self.examples), (step,))

    def pairs(
        self, inputs: Float[Tensor, "batch position feature"]
    ) -> tuple[Float[Tensor, "batch example coordinate"], Float[Tensor, "batch example"]]:
        """Return the points and the values of a sequence, in double precision. Errors: `SpecError` for other shapes."""
        if inputs.shape[1:] != (wanted := (self.shape.length, self.shape.input_size)):
            raise SpecError("inputs", f"have shape {tuple(inputs.shape)}", f"give [batch, {wanted[0]}, {wanted[1]}]")
        values = inputs.cpu().double()
        return values[:, 0::2, : self.dimension], values[:, 1::2, self.dimension]

    def split_of(self, inputs: Float[Tensor, "batch position feature"]) -> Int[Tensor, "batch"]:
        """Return 0 for a sequence of points and values at their positions, -1 for anything else."""
        d = self.dimension
        placed = (inputs[:, :, d + 1 :] == torch.eye(2 * self.examples)).all(dim=2).all(dim=1)
        alone = (inputs[:, 1::2, :d] == 0).all(dim=2).all(dim=1) & (inputs[:, 0::2, d] == 0).all(dim=1)
        return (placed & alone).long() - 1

    def ideal(self, inputs: Float[Tensor, "batch position feature"]) -> Float[Tensor, "batch scored output"]:
        """Return each value's posterior mean given the pairs before it: ridge regression with penalty d noise².

        No prediction has a smaller squared error. With few noiseless pairs it is the least-norm solution.
        Errors: `SpecError` for points and values that are not finite.
        """
        x, seen = self.pairs(inputs)
        if not (x.isfinite().all() and seen.isfinite().all()):
            raise SpecError("inputs", "are not finite", "give finite points and values")
        d = self.dimension
        found = torch.zeros_like(seen)
        for count in range(1, self.examples):
            known, values = x[:, :count], seen[:, :count, None]
            kernel = known @ known.transpose(1, 2) + d * self.noise**2 * torch.eye(count, dtype=torch.float64)
            w = known.transpose(1, 2) @ torch.linalg.pinv(kernel, hermitian=True) @ values
            found[:, count] = (x[:, count, None, :] @ w).reshape(-1)
        return found.float().unsqueeze(-1)
