"""Modular arithmetic, on which networks generalise long after they memorise (grokking)."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Int
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks.batch import Answer, Batch, TraceStep
from anchorlab.tasks.registry import register_task
from anchorlab.tasks.task import Proof, Task

Operation = Literal["+", "-", "*", "/", "x2+y2", "x2+xy+y2"]

_FORMULAS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "+": lambda x, y, inverse: x + y,
    "-": lambda x, y, inverse: x - y,
    "*": lambda x, y, inverse: x * y,
    "/": lambda x, y, inverse: x * inverse[y],
    "x2+y2": lambda x, y, inverse: x * x + y * y,
    "x2+xy+y2": lambda x, y, inverse: x * x + x * y + y * y,
}

_OUTER = {"+": np.add, "-": np.subtract, "*": np.multiply}


@register_task("classics/modular-arithmetic")
class ModularArithmetic(Task):
    """The result of an operation on two numbers modulo a prime: the answer to `x op y =` is x op y mod p.

    prime: p; the tokens are the numbers below p, the operation p, and the equals sign p + 1
    operation: `/` multiplies by the inverse of y and excludes y = 0
    fraction: the share of all pairs in training; the rest is the test split
    pairs_seed: the seed that selects the pairs in training

    Sequences come in runs that contain every pair of the split once, in random order: a sample of `training_pairs`
    sequences is the whole training set, as in the source.
    Baseline: if the operation is commutative, a share `fraction` of the test pairs are training pairs in the reverse
    order, which have the same answer.
    Source: Power et al., Grokking: generalization beyond overfitting on small algorithmic datasets, 2022, appendix A.1.
    """

    nested: ClassVar[bool] = True

    family: Literal["modular-arithmetic"] = "modular-arithmetic"
    prime: int = Field(97, ge=3, le=997)
    operation: Operation = "+"
    fraction: float = Field(0.5, gt=0, lt=1)
    pairs_seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _fits(self) -> "ModularArithmetic":
        if any(self.prime % divisor == 0 for divisor in range(2, int(self.prime**0.5) + 1)):
            raise SpecError("prime", f"{self.prime} is not a prime", "use 97 or another prime")
        if min(self.training_pairs, len(self._pairs) - self.training_pairs) < 1:
            raise SpecError("fraction", f"{self.fraction} leaves a split empty", "choose a share nearer to a half")
        return self

    @property
    def shape(self) -> TaskShape:
        """`x op y =`, and the numbers below p as outputs."""
        return TaskShape("tokens", 4, self.prime + 2, self.prime)

    @cached_property
    def _pairs(self) -> Int[Tensor, "pair two"]:
        """All pairs, the training pairs first."""
        first = int(self.operation == "/")
        grid = torch.cartesian_prod(torch.arange(self.prime), torch.arange(first, self.prime))
        return grid[torch.from_numpy(generator(self.pairs_seed, "pairs").permutation(len(grid)))]

    @property
    def training_pairs(self) -> int:
        """The number of pairs in training."""
        return round(self.fraction * len(self._pairs))

    @cached_property
    def _side(self) -> Int[Tensor, "first second"]:
        """The split of every pair; -1 for pairs that the operation leaves out."""
        table = torch.full((self.prime, self.prime), -1)
        table[self._pairs[:, 0], self._pairs[:, 1]] = (torch.arange(len(self._pairs)) >= self.training_pairs).long()
        return table

    @cached_property
    def _inverse(self) -> Int[Tensor, "number"]:
        return torch.tensor([pow(number, -1, self.prime) if number else 0 for number in range(self.prime)])

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """Draw `n` pairs of a split, in runs that contain each pair once. Latents: `x` and `y`, `[batch]`."""
        self.check_draw(split, n, seed)
        own = self._pairs[: self.training_pairs] if split == "train" else self._pairs[self.training_pairs :]
        runs = np.tile(np.arange(len(own)), (-(-n // len(own)), 1))
        x, y = own[torch.from_numpy(generator(seed, "sequences", split).permuted(runs, axis=1).reshape(-1)[:n])].T
        answers = self._table[x, y].unsqueeze(1)
        return Batch(self._sequences(x, y), answers, answers, torch.tensor([3]), split, latents={"x": x, "y": y})

    def _sequences(self, x: Int[Tensor, "*pair"], y: Int[Tensor, "*pair"]) -> Int[Tensor, "*pair position"]:
        return torch.stack([x, torch.full_like(x, self.prime), y, torch.full_like(x, self.prime + 1)], dim=-1)

    def cyclic_pairs(self) -> Int[Tensor, "first second position"] | None:
        """Return the sequences of pairs in cyclic order: the answer at `[i, j]` depends on i + j modulo their count.

        In this order Fourier analysis applies, as in `anchorlab.lens.frequency_norms`. Sums and differences go around
        the numbers below p; products and quotients, without 0, around the powers of a generator of the multiplicative
        group. None for the two polynomials, which have no such order.
        """
        numbers = torch.arange(self.prime)
        if self.operation in "*/":
            powers = (
                [pow(root, index, self.prime) for index in range(self.prime - 1)] for root in range(2, self.prime)
            )
            numbers = torch.tensor(next(each for each in powers if len({*each}) == len(each)))
        elif self.operation not in "+-":
            return None
        # going around backwards gives the inverse of each number
        second = numbers.flip(0).roll(1) if self.operation in "-/" else numbers
        return self._sequences(*torch.meshgrid(numbers, second, indexing="ij"))

    @cached_property
    def _table(self) -> Int[Tensor, "first second"]:
        """The result of every pair, by outer products; the oracle computes each from the inputs."""
        numbers = np.arange(self.prime)
        if self.operation == "/":  # the quotient q is found where q y = x
            found = np.zeros((self.prime, self.prime), dtype=np.int64)
            for y in range(1, self.prime):
                found[numbers * y % self.prime, y] = numbers
        elif self.operation in _OUTER:
            found = _OUTER[self.operation].outer(numbers, numbers)
        else:
            found = np.add.outer(numbers**2, numbers**2)
            if self.operation == "x2+xy+y2":
                found = found + np.multiply.outer(numbers, numbers)
        return torch.from_numpy(found % self.prime)

    def oracle(self, inputs: Int[Tensor, "batch position"]) -> Answer:
        """Return x op y mod p, with both numbers as the trace; unknown for anything but `x op y =`."""
        fits = self._well_formed(inputs)
        x, y = (inputs[:, place].where(fits, 1) for place in (0, 2))
        answers = (_FORMULAS[self.operation](x, y, self._inverse) % self.prime).unsqueeze(1)
        trace = tuple(
            TraceStep(name, torch.where(fits, place, -1), value) for name, place, value in (("x", 0, x), ("y", 2, y))
        )
        return Answer(answers, fits.unsqueeze(1), trace)

    def _well_formed(self, tokens: Int[Tensor, "batch position"]) -> Bool[Tensor, "batch"]:
        numbers = tokens[:, [0, 2]]
        signs = (tokens[:, 1] == self.prime) & (tokens[:, 3] == self.prime + 1)
        inside = ((numbers >= 0) & (numbers < self.prime)).all(dim=1)
        return signs & inside & ((numbers[:, 1] > 0) | (self.operation != "/"))

    def split_of(self, inputs: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """Return 0 for training pairs, 1 for test pairs, -1 for anything else."""
        fits = self._well_formed(inputs)
        x, y = (inputs[:, place].where(fits, 0) for place in (0, 2))
        return torch.where(fits, self._side[x, y], -1)

    def proof(self) -> Proof:
        """Return a proof by enumeration: every pair is in exactly one split, and both splits have the right size."""
        x, y = self._pairs.T
        sides = self._side[x, y]
        sizes = [int((sides == side).sum()) for side in (0, 1)]
        first = int(self.operation == "/")
        holds = sizes == [self.training_pairs, self.prime * (self.prime - first) - self.training_pairs]
        words = (
            f"Of all {sum(sizes):,} pairs {sizes[0]:,} are in training and {sizes[1]:,} in the test, none in both.",
        )
        return Proof("enumeration", holds, words, {"train": sizes[0], "test": sizes[1]})

    def text_of(self, token: int) -> str:
        """Return a token as text: a number, the operation's sign or `=`."""
        return {self.prime: self.operation, self.prime + 1: "="}.get(token, str(token))
