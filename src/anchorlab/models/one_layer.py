"""The one-layer model of the truncated-weights paper's theory."""

from typing import Literal

import torch
from pydantic import PositiveInt
from torch import nn

from anchorlab.axes import TaskShape
from anchorlab.models.attention import MergedAttention
from anchorlab.models.block import Block
from anchorlab.models.embedding import TokenEmbedding, Unembedding
from anchorlab.models.feedforward import LinearFeedForward
from anchorlab.models.initialisation import Embeddings, draw_unit_embeddings, require_room
from anchorlab.models.model import ModelSpec, register_model
from anchorlab.models.transformer import Transformer, require_inputs

Start = Literal["zero", "normal"]
"""How the trained matrices start: at zero, or drawn from N(0, 1 / width)."""


@register_model("recall-one-layer")
class OneLayerSpec(ModelSpec):
    """Attention and a linear feed-forward layer in parallel, then `W_U` (section 4.1, equation 1).

    Computes `ξ = (sum over t of softmax(x_T W_KQ x_tᵀ)_t x_t W_V + x_T W_F) W_U` with `x_t = W_E[z_t]`: no residual
    path, no positions, unscaled scores. The summands are the paper's ξ_attn and ξ_ff: `blocks.0.hook_attn_out` and
    `blocks.0.hook_mlp_out`, each times `W_U`. Vectors are rows here, so matrices are the transposes of the paper's.

    `W_KQ`, `W_V` and `W_F` start at zero, or with `start = "normal"` as N(0, 1 / width) times the members'
    `initialisation_scale`. Rows of `W_E` and columns of `W_U` are unit vectors, drawn once per member and not trained:
    two orthonormal families (assumption D.1), or independent and uniform on the sphere. The default width is the one
    used in the paper's experiments.
    """

    kind: Literal["recall-one-layer"] = "recall-one-layer"
    width: PositiveInt = 256
    embeddings: Embeddings = "orthonormal"
    start: Start = "zero"

    def build(self, shape: TaskShape) -> Transformer:
        """Build a member for token tasks.

        Errors: `SpecError` for vector inputs, and for more orthonormal vectors than fit in the width.
        """
        require_inputs(self, shape, "tokens")
        require_room(self.embeddings, self.width, shape)
        attention = MergedAttention("blocks.0.attn", self.width, scaled=False)
        return Transformer(
            embed=TokenEmbedding(shape.input_size, self.width).requires_grad_(False),
            pos_embed=None,
            blocks=[Block("blocks.0", attention, LinearFeedForward(self.width), residual=False, parallel=True)],
            ln_final=None,
            unembed=Unembedding(self.width, shape.output_size, bias=False).requires_grad_(False),
            draw=self._draw,
        )

    def _draw(self, model: nn.Module, generator: torch.Generator) -> None:
        """Draw unit embeddings, the same for both starts, and the trained matrices according to `start`."""
        draw_unit_embeddings(model, generator, self.embeddings)
        for weight in model.parameters():
            if self.start == "zero" and weight.requires_grad:
                weight.zero_()
