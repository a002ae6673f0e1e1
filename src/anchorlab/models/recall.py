"""The two-layer recall transformer of the truncated-weights paper."""

from typing import Literal

from pydantic import Field, PositiveInt

from anchorlab.axes import TaskShape
from anchorlab.models.attention import MergedAttention
from anchorlab.models.block import Block
from anchorlab.models.embedding import PositionEmbedding, TokenEmbedding, Unembedding
from anchorlab.models.feedforward import FeedForward, LinearFeedForward
from anchorlab.models.initialisation import draw_torch_default
from anchorlab.models.model import ModelSpec, register_model
from anchorlab.models.transformer import Transformer, require_inputs

FeedForwardKind = Literal["mlp", "linear", "none"]


@register_model("recall")
class RecallSpec(ModelSpec):
    """Two blocks `x + h + F(x + h)` with one head and merged key-query matrix, no layer norm (section 4, appendix A.4).

    `h_t = sum over s <= t of softmax(x_t W_KQ x_sᵀ / sqrt(width))_s x_s W_V`; the predictions are `x W_U`. Embeddings,
    positions and `W_U` are drawn once and never trained. `feed_forward_1` and `feed_forward_2` are the paper's F_1 and
    F_2: a two-layer ReLU perceptron, one matrix, or nothing. `factored_values` writes the value map as `W_V W_O`.
    """

    kind: Literal["recall"] = "recall"
    width: PositiveInt = 256
    hidden: PositiveInt | None = Field(default=None, description="neurons per feed-forward layer; 4 x width when unset")
    feed_forward_1: FeedForwardKind = "mlp"
    feed_forward_2: FeedForwardKind = "mlp"
    factored_values: bool = False

    def build(self, shape: TaskShape) -> Transformer:
        """A member for token tasks.

        Errors: `SpecError` for vector inputs.
        """
        require_inputs(self, shape, "tokens")
        kinds = (self.feed_forward_1, self.feed_forward_2)
        model = Transformer(
            embed=TokenEmbedding(shape.input_size, self.width),
            pos_embed=PositionEmbedding(shape.length, self.width),
            blocks=[self._block(f"blocks.{layer}", kind) for layer, kind in enumerate(kinds)],
            ln_final=None,
            unembed=Unembedding(self.width, shape.output_size, bias=False),
            draw=draw_torch_default,
        )
        for fixed in (model.embed, model.pos_embed, model.unembed):
            if fixed is not None:
                fixed.requires_grad_(False)
        return model

    def _block(self, name: str, kind: FeedForwardKind) -> Block:
        feed_forward: FeedForward | LinearFeedForward | None = None
        if kind == "mlp":
            feed_forward = FeedForward(f"{name}.mlp", self.width, self.hidden or 4 * self.width)
        elif kind == "linear":
            feed_forward = LinearFeedForward(self.width)
        return Block(name, MergedAttention(f"{name}.attn", self.width, factored=self.factored_values), feed_forward)
