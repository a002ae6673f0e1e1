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
    """Two blocks `x + h + F(x + h)` with one head, a merged key-query matrix, no layer norm (section 4, appendix A.4).

    `h_t = sum over s <= t of softmax(x_t W_KQ x_sᵀ / sqrt(width))_s x_s W_V` with `x_t = W_E[z_t] + p_t`; the
    predictions are `x W_U`. Embeddings, positions and `W_U` are drawn once and not trained. `feed_forward_1` and
    `feed_forward_2` are the paper's F_1 and F_2: a two-layer ReLU perceptron, one matrix, or nothing.
    `factored_values` makes the value map a product `W_V W_O`.

    Dividing by sqrt(width) follows the authors' code; without `scale_scores`, scores are `x_t W_KQ x_sᵀ`, as printed.
    With `learned_positions` the p_t are trained too.
    """

    kind: Literal["recall"] = "recall"
    width: PositiveInt = 256
    hidden: PositiveInt | None = Field(default=None, description="neurons per feed-forward layer; 4 x width when unset")
    feed_forward_1: FeedForwardKind = "mlp"
    feed_forward_2: FeedForwardKind = "mlp"
    factored_values: bool = False
    scale_scores: bool = True
    learned_positions: bool = False

    def build(self, shape: TaskShape) -> Transformer:
        """Build a member for token tasks. Errors: `SpecError` for vector inputs."""
        require_inputs(self, shape, "tokens")
        kinds = (self.feed_forward_1, self.feed_forward_2)
        return Transformer(
            embed=TokenEmbedding(shape.input_size, self.width).requires_grad_(False),
            pos_embed=PositionEmbedding(shape.length, self.width).requires_grad_(self.learned_positions),
            blocks=[self._block(f"blocks.{layer}", kind) for layer, kind in enumerate(kinds)],
            ln_final=None,
            unembed=Unembedding(self.width, shape.output_size, bias=False).requires_grad_(False),
            draw=draw_torch_default,
        )

    def _block(self, name: str, kind: FeedForwardKind) -> Block:
        feed_forward: FeedForward | LinearFeedForward | None = None
        if kind == "mlp":
            feed_forward = FeedForward(f"{name}.mlp", self.width, self.hidden or 4 * self.width)
        elif kind == "linear":
            feed_forward = LinearFeedForward(self.width)
        attention = MergedAttention(f"{name}.attn", self.width, factored=self.factored_values, scaled=self.scale_scores)
        return Block(name, attention, feed_forward)
