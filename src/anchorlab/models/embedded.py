"""Keep embedded sequences as sums of table rows, so that linear maps can act on the tables, not on every position."""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional


class Embedded(NamedTuple):
    """The stream `tokens[inputs] + places`, kept as its parts.

    Fields
        inputs: the token ids
        tokens: the token embedding
        places: the position embedding, or None
    """

    inputs: Int[Tensor, "batch position"]
    tokens: Float[Tensor, "token width"]
    places: Float[Tensor, "position width"] | None

    @property
    def pays(self) -> bool:
        """Whether mapping the tables is less work than mapping the stream: they have fewer rows than it has."""
        rows = len(self.tokens) + (0 if self.places is None else len(self.places))
        return rows < self.inputs.numel()

    def through(self, *weights: Float[Tensor, "input output"]) -> Float[Tensor, "batch position output"]:
        """Return the stream multiplied by each of `weights` in turn."""
        tokens, places = self.tokens, self.places
        for weight in weights:
            tokens = tokens @ weight
            places = None if places is None else places @ weight
        mapped = functional.embedding(self.inputs, tokens)
        return mapped if places is None else mapped + places
