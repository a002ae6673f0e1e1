"""The anchor paper's decoder, with a switch for every component."""

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.models.attention import Attention
from anchorlab.models.block import Block
from anchorlab.models.embedding import PositionEmbedding, TokenEmbedding, Unembedding
from anchorlab.models.feedforward import FeedForward
from anchorlab.models.initialisation import DRAWS, Initialisation
from anchorlab.models.model import ModelSpec, register_model
from anchorlab.models.transformer import Transformer, require_inputs

PerBlock = bool | tuple[bool, ...]
"""One switch for all blocks, or one for each block."""


@register_model("decoder")
class DecoderSpec(ModelSpec):
    """The anchor paper's post-layer-norm decoder (appendix A and B.1), with a switch for every component (Figure 15).

    The defaults are the paper's model: 5.65 M parameters on its vocabulary of 201. A block computes
    `y = LN(x + Attn(x) W_O)`, then `LN(y + ReLU(y W_in) W_out)`, without biases; the projection `W_U` has one.
    `residual`, `output_linear`, `layer_norm`, `feed_forward` and `mask` apply to all blocks or are given per block.

    Without `output_linear` the concatenated heads are the layer's output, so `heads * head_width` must equal `width`.
    Without `projection` the stream is the prediction, so `width` must equal the number of outputs. `shift_values = 1`
    gives position s the value of position s + 1 (Figure 15, last experiment), which lets a query see one position
    beyond the mask. `initialisation = "gamma"` uses `draw_gamma`; `Members.gamma` sets a member's γ.
    """

    kind: Literal["decoder"] = "decoder"
    layers: int = Field(default=4, gt=0, le=1024)
    heads: PositiveInt = 4
    width: PositiveInt = 400
    head_width: PositiveInt = 64
    hidden: PositiveInt | None = Field(default=None, description="neurons per feed-forward layer; 3 x width when unset")
    residual: PerBlock = True
    output_linear: PerBlock = True
    layer_norm: PerBlock = True
    feed_forward: PerBlock = True
    projection: bool = True
    mask: PerBlock = True
    shift_values: int = 0
    initialisation: Initialisation = "torch"

    @model_validator(mode="after")
    def _widths_fit(self) -> "DecoderSpec":
        for name in ("residual", "output_linear", "layer_norm", "feed_forward", "mask"):
            switch = getattr(self, name)
            if not isinstance(switch, bool) and len(switch) != self.layers:
                problem = f"{len(switch)} switches for {self.layers} blocks"
                raise SpecError(name, problem, "give one for all blocks or one for each")
        if not all(self._switches(self.output_linear)) and self.heads * self.head_width != self.width:
            product = f"{self.heads} x {self.head_width} is not {self.width}"
            problem = f"without output_linear, heads x head_width must be the width: {product}"
            raise SpecError("head_width", problem, f"use heads=1 and head_width={self.width}")
        return self

    def _switches(self, switch: PerBlock) -> tuple[bool, ...]:
        return (switch,) * self.layers if isinstance(switch, bool) else switch

    def build(self, shape: TaskShape) -> Transformer:
        """Build a member for token tasks.

        Errors: `SpecError` for vector inputs, and for a width that is not the number of outputs without `projection`.
        """
        require_inputs(self, shape, "tokens")
        if not self.projection and self.width != shape.output_size:
            problem = f"without projection, the width must be the number of outputs: {self.width} is not "
            raise SpecError("width", f"{problem}{shape.output_size}", f"use width={shape.output_size}")
        components = (self.residual, self.output_linear, self.layer_norm, self.feed_forward, self.mask)
        switches = zip(*map(self._switches, components), strict=True)
        return Transformer(
            embed=TokenEmbedding(shape.input_size, self.width),
            pos_embed=PositionEmbedding(shape.length, self.width),
            blocks=[self._block(f"blocks.{layer}", *each) for layer, each in enumerate(switches)],
            ln_final=None,
            unembed=Unembedding(self.width, shape.output_size, bias=True) if self.projection else None,
            draw=DRAWS[self.initialisation],
        )

    def _block(
        self, name: str, residual: bool, output_linear: bool, layer_norm: bool, feed_forward: bool, mask: bool
    ) -> Block:
        return Block(
            name,
            Attention(
                f"{name}.attn",
                self.width,
                self.heads,
                self.head_width,
                output_linear=output_linear,
                shift_values=self.shift_values,
            ),
            FeedForward(f"{name}.mlp", self.width, self.hidden or 3 * self.width) if feed_forward else None,
            norm_width=self.width if layer_norm else None,
            residual=residual,
            causal=mask,
        )
