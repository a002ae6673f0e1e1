"""An embedded sequence as what it is made of, so that a linear map of it costs a table and not every position."""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional


class Embedded(NamedTuple):
    """The stream `tokens[inputs] + places`, not yet added up.

    Shapes
        inputs: `[batch position]`
        tokens: `[token width]`, the embedding
        places: `[position width]`, what each position adds; None where nothing is added
    """

    inputs: Int[Tensor, "batch position"]
    tokens: Float[Tensor, "token width"]
    places: Float[Tensor, "position width"] | None

    @property
    def pays(self) -> bool:
        """Whether the tables have fewer rows than there are positions in the batch."""
        rows = len(self.tokens) + (0 if self.places is None else len(self.places))
        return rows < self.inputs.numel()

    def through(self, *weights: Float[Tensor, "input output"]) -> Float[Tensor, "batch position output"]:
        """The stream times each of `weights` in turn: the sum of the rows of two tables that are made once."""
        tokens, places = self.tokens, self.places
        for weight in weights:
            tokens = tokens @ weight
            places = None if places is None else places @ weight
        mapped = functional.embedding(self.inputs, tokens)
        return mapped if places is None else mapped + places
