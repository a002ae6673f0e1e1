"""The retrieval paper's pre-layer-norm transformer on vectors."""

import math
from functools import partial
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.models.attention import Attention
from anchorlab.models.block import Block, LayerNorm
from anchorlab.models.embedding import Unembedding, VectorEmbedding
from anchorlab.models.feedforward import FeedForward
from anchorlab.models.initialisation import draw_gpt2
from anchorlab.models.model import ModelSpec, register_model
from anchorlab.models.transformer import Transformer, require_inputs


@register_model("vectors")
class VectorSpec(ModelSpec):
    """A GPT-2 transformer on vectors (retrieval, sections 6 to 8): `x + Attn(LN(x))`, then `x + MLP(LN(x))`.

    All maps have biases, the activation is GELU, and a layer norm precedes the output map. Inputs contain their
    positions, so no position embedding is added. Weights start as N(0, `initial_scale`²); weights that write into the
    stream are divided by sqrt(2 layers) unless `residual_scaling` is off. With `keys_like_queries` (not in the paper),
    key maps start as copies of the query maps. The defaults are the deepest model of the paper's layer study.
    """

    kind: Literal["vectors"] = "vectors"
    layers: int = Field(default=8, gt=0, le=1024)
    heads: PositiveInt = 8
    width: PositiveInt = 128
    head_width: PositiveInt | None = Field(default=None, description="width / heads when unset")
    hidden: PositiveInt | None = Field(default=None, description="neurons per feed-forward layer; 4 x width when unset")
    feed_forward: bool = True
    mask: bool = True
    initial_scale: PositiveFloat = 0.02
    residual_scaling: bool = True
    keys_like_queries: bool = False

    @model_validator(mode="after")
    def _heads_fit(self) -> "VectorSpec":
        if self.head_width is None and self.width % self.heads:
            problem = f"{self.heads} heads do not divide the width {self.width}"
            raise SpecError("heads", problem, "choose a divisor or set head_width")
        return self

    def build(self, shape: TaskShape) -> Transformer:
        """Build a member for vector tasks. Errors: `SpecError` for token inputs."""
        require_inputs(self, shape, "vectors")
        return Transformer(
            embed=VectorEmbedding(shape.input_size, self.width),
            pos_embed=None,
            blocks=[self._block(f"blocks.{layer}") for layer in range(self.layers)],
            ln_final=LayerNorm("ln_final", self.width),
            unembed=Unembedding(self.width, shape.output_size, bias=True),
            draw=partial(
                draw_gpt2,
                scale=self.initial_scale,
                into_stream=1 / math.sqrt(2 * self.layers) if self.residual_scaling else 1.0,
                keys_like_queries=self.keys_like_queries,
            ),
        )

    def _block(self, name: str) -> Block:
        head_width = self.head_width or self.width // self.heads
        mlp = FeedForward(f"{name}.mlp", self.width, self.hidden or 4 * self.width, "gelu", biases=True)
        return Block(
            name,
            Attention(f"{name}.attn", self.width, self.heads, head_width, biases=True),
            mlp if self.feed_forward else None,
            norm_width=self.width,
            norm_first=True,
            causal=self.mask,
        )
