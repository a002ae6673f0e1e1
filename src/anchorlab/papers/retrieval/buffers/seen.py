"""What the claims of the study read."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.papers.retrieval.buffers.tokens import Buffers
from anchorlab.papers.retrieval.buffers.vectors import VectorBuffers

SOLVED = 0.9  # accuracy on training sequences, from which a model counts as solved


@dataclass(frozen=True)
class Chains:
    """The losses of the models on vectors at the end of training, what their buffers hold, and how far they match."""

    loss: Float[Tensor, "seed"]
    buffers: VectorBuffers
    matched: Float[Tensor, "seed"]


@dataclass(frozen=True)
class Read:
    """The accuracies of the models on two steps at the end of training, their buffers, and the models on vectors."""

    trained: Float[Tensor, "seed"]
    tested: Float[Tensor, "seed"]
    buffers: Buffers
    chains: Chains

    @property
    def solved(self) -> Bool[Tensor, "seed"]:
        """Which models on two steps answer the training sequences."""
        return self.trained >= SOLVED
