"""The linear associative memory of the truncated-weights paper."""

from functools import partial
from typing import Literal

from jaxtyping import Float, Int
from pydantic import PositiveInt
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.models.embedding import TokenEmbedding, Unembedding
from anchorlab.models.feedforward import LinearFeedForward
from anchorlab.models.initialisation import Embeddings, draw_unit_embeddings, require_room
from anchorlab.models.model import Model, ModelSpec, gather_positions, register_model
from anchorlab.models.sites import LOGITS, STREAM, Positions, Site, Tap, by_name, identity_tap
from anchorlab.models.transformer import require_inputs


@register_model("associative")
class AssociativeSpec(ModelSpec):
    """One square matrix between fixed embeddings: the score of output j for input i is <u_j, W e_i> (equation 5).

    The e_i and the u_j are unit vectors of `width` coordinates, drawn once per member and not trained: independent and
    uniform on the sphere, or two independent orthonormal families. The trained matrix `memory.W_F` is the transpose of
    the paper's W, since vectors are rows here. It starts as N(0, 1 / width), times the members' `initialisation_scale`;
    a scale of 0 gives the zero initialisation of assumption C.2.
    """

    kind: Literal["associative"] = "associative"
    width: PositiveInt = 12
    embeddings: Embeddings = "sphere"

    def build(self, shape: TaskShape) -> "AssociativeMemory":
        """Build a member for token tasks.

        Errors: `SpecError` for vector inputs, and for more orthonormal vectors than fit in the width.
        """
        require_inputs(self, shape, "tokens")
        require_room(self.embeddings, self.width, shape)
        return AssociativeMemory(shape, self.width, self.embeddings)


class AssociativeMemory(Model):
    """Compute `W_E[x] W_F W_U` at every position; the rows of `W_E` are the e_i, the columns of `W_U` the u_j."""

    def __init__(self, shape: TaskShape, width: int, embeddings: Embeddings) -> None:
        super().__init__()
        self.embed = TokenEmbedding(shape.input_size, width)
        self.memory = LinearFeedForward(width)
        self.unembed = Unembedding(width, shape.output_size, bias=False)
        for fixed in (self.embed, self.unembed):
            fixed.requires_grad_(False)
        self._draw = partial(draw_unit_embeddings, embeddings=embeddings)
        self.sites = by_name([Site("hook_embed", STREAM), Site("hook_memory_out", STREAM), LOGITS])

    def forward(
        self, inputs: Int[Tensor, "batch position"], positions: Positions = None, tap: Tap = identity_tap
    ) -> Float[Tensor, "batch scored output"]:
        """Return predictions at `positions` (`[scored]` or `[batch scored]`), or everywhere when None."""
        x = tap("hook_embed", gather_positions(self.embed(inputs), positions))
        return tap("hook_logits", self.unembed(tap("hook_memory_out", self.memory(x, tap))))
