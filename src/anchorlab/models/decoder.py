"""The anchor paper's decoder, with a switch for every component, up to the forms of GPT-2 and Llama."""

import math
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, ClassVar, Literal, TypeVar

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import nn

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.models.attention import Attention
from anchorlab.models.block import Block, LayerNorm, RMSNorm
from anchorlab.models.embedding import PositionEmbedding, TokenEmbedding, Unembedding
from anchorlab.models.feedforward import Activation, FeedForward
from anchorlab.models.initialisation import DRAWS, draw_gpt2
from anchorlab.models.model import ModelSpec, register_model
from anchorlab.models.transformer import Transformer, require_inputs
from anchorlab.spec import Typed

PerBlock = bool | tuple[bool, ...]
"""One switch for all blocks, or one for each block."""

AttentionKind = Literal["softmax", "linear", "uniform"]
"""Weights by a softmax of scores, the scores themselves, or equal weights."""

Each = TypeVar("Each", bool, AttentionKind)


def _whole(value: Any) -> int | None:
    """Return a number as an integer field would read it; None if it is no whole number."""
    try:
        number = float(value) if isinstance(value, Real | Typed) and not isinstance(value, bool) else None
    except ValueError:
        return None
    return int(number) if number is not None and number.is_integer() else None


@register_model("decoder")
class DecoderSpec(ModelSpec):
    """The anchor paper's post-layer-norm decoder (appendix A and B.1), with a switch for every component (Figure 15).

    The defaults are the paper's model: 5.65 M parameters on its vocabulary of 201. Where `width` or `heads` is given,
    `head_width` is `width / heads` unless it is given too. A block computes
    `y = LN(x + Attn(x) W_O)`, then `LN(y + ReLU(y W_in) W_out)`, without biases; the projection `W_U` has one.
    `residual`, `output_linear`, `layer_norm`, `feed_forward`, `mask` and `attention` apply to all blocks or are given
    per block.

    Without `output_linear` the concatenated heads are the layer's output, so `heads * head_width` must equal `width`.
    Without `projection` the stream is the prediction, so `width` must equal the number of outputs. `shift_values = 1`
    gives position s the value of position s + 1 (Figure 15, last experiment), which lets a query see one position
    beyond the mask. `initialisation = "gamma"` uses `draw_gamma`; `Members.gamma` sets a member's γ.

    With `attention = "linear"` a block has no softmax: its scores, divided by sqrt(head_width), are the weights. With
    "uniform" each position takes the mean over the positions that it sees: the query and key maps are zero and are not
    trained. In all three, a seed's other initial weights are the same.

    GPT-2's form is `norm="pre", activation="gelu", biases=True, tied=True`, and Llama's
    `norm="rms", positions="rotary", activation="swiglu"`, both with `initialisation="gpt2"`. A decoder whose norms come
    first has a last norm before the projection, unless its last block has no norms; its projection has no bias.
    """

    later: ClassVar[frozenset[str]] = frozenset({"norm", "positions", "activation", "biases", "tied", "attention"})

    kind: Literal["decoder"] = "decoder"
    layers: int = Field(default=4, gt=0, le=1024)
    heads: PositiveInt = 4
    width: PositiveInt = 400
    head_width: PositiveInt = Field(default=64, description="width / heads if only those are set")
    hidden: PositiveInt | None = Field(default=None, description="neurons per feed-forward layer; 3 x width when unset")
    residual: PerBlock = True
    output_linear: PerBlock = True
    layer_norm: PerBlock = True
    feed_forward: PerBlock = True
    projection: bool = True
    mask: PerBlock = True
    shift_values: int = 0
    initialisation: Literal["torch", "gamma", "gpt2"] = Field(
        default="torch",
        description="gpt2 draws every matrix from N(0, 0.02²), and divides the maps into the stream by sqrt(2 layers)",
    )
    norm: Literal["post", "pre", "rms"] = Field(
        default="post",
        description="layer norms after the sums, or layer norms or root-mean-square norms before the layers",
    )
    positions: Literal["learned", "rotary", "none"] = "learned"
    activation: Activation = Field(default="relu", description="swiglu adds a gate, a third matrix")
    biases: bool = Field(default=False, description="of the maps in attention and feed-forward layers")
    tied: bool = Field(default=False, description="the projection is the transposed token embedding")
    attention: AttentionKind | tuple[AttentionKind, ...] = Field(
        default="softmax", description="linear: scores as weights, without softmax; uniform: equal weights"
    )

    @model_validator(mode="before")
    @classmethod
    def _heads_share_the_width(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "head_width" in data or not data.keys() & {"width", "heads"}:
            return data
        width, heads = (_whole(data.get(name, cls.model_fields[name].default)) for name in ("width", "heads"))
        if width is None or heads is None or heads < 1:  # the fields' own errors say more
            return data
        if width % heads:
            problem = f"{heads} does not divide the width, {width}"
            raise SpecError("heads", problem, "choose a divisor or set head_width")
        return {**data, "head_width": width // heads}

    @model_validator(mode="after")
    def _widths_fit(self) -> "DecoderSpec":
        for name in ("residual", "output_linear", "layer_norm", "feed_forward", "mask", "attention"):
            switch = getattr(self, name)
            if isinstance(switch, tuple) and len(switch) != self.layers:
                problem = f"{len(switch)} switches for {self.layers} blocks"
                raise SpecError(name, problem, "give one for all blocks or one for each")
        if not all(self._switches(self.output_linear)) and self.heads * self.head_width != self.width:
            product = f"{self.heads} x {self.head_width} is not {self.width}"
            problem = f"without output_linear, heads x head_width must be the width: {product}"
            raise SpecError("head_width", problem, f"use heads=1 and head_width={self.width}")
        if self.positions == "rotary" and self.head_width % 2:
            raise SpecError("head_width", f"{self.head_width} is odd", "rotary positions turn pairs of coordinates")
        if self.tied and not self.projection:
            raise SpecError("tied", "there is no projection to tie", "use projection=True or tied=False")
        return self

    def __repr_args__(self) -> Iterable[tuple[str, Any]]:
        """Yield what a user would write: `head_width` only if it does not follow from width and heads."""
        apart = dict(super().__repr_args__())
        shared = apart.keys() & {"width", "heads"}
        follows = self.heads * self.head_width == self.width if shared else self.head_width == 64
        return {
            **{name: value for name, value in apart.items() if name != "head_width"},
            **({} if follows else {"head_width": self.head_width}),
        }.items()

    def _switches(self, switch: Each | tuple[Each, ...]) -> tuple[Each, ...]:
        return switch if isinstance(switch, tuple) else (switch,) * self.layers

    def build(self, shape: TaskShape) -> Transformer:
        """Build a member for token tasks.

        Errors: `SpecError` for vector inputs; without `projection`, for a width that is not the number of outputs; and
        with `tied`, for a number of tokens that is not the number of outputs.
        """
        require_inputs(self, shape, "tokens")
        if not self.projection and self.width != shape.output_size:
            problem = f"without projection, the width must be the number of outputs: {self.width} is not "
            raise SpecError("width", f"{problem}{shape.output_size}", f"use width={shape.output_size}")
        if self.tied and shape.input_size != shape.output_size:
            problem = f"the task has {shape.input_size} tokens and {shape.output_size} outputs"
            raise SpecError("tied", problem, "use tied=False")
        last = self.norm != "post" and self._switches(self.layer_norm)[-1]
        unembed = Unembedding(self.width, shape.output_size, bias=self.norm == "post")
        return Transformer(
            embed=TokenEmbedding(shape.input_size, self.width),
            pos_embed=PositionEmbedding(shape.length, self.width) if self.positions == "learned" else None,
            blocks=[self._block(layer) for layer in range(self.layers)],
            ln_final=self._norm("ln_final", self.width) if last else None,
            unembed=unembed if self.projection and not self.tied else None,
            draw=self._draw,
            tied=self.tied,
        )

    @property
    def _norm(self) -> type[LayerNorm] | type[RMSNorm]:
        return RMSNorm if self.norm == "rms" else LayerNorm

    def _draw(self, model: nn.Module, generator: torch.Generator) -> None:
        """Draw every weight; the query and key maps of uniform attention are zero."""
        if self.initialisation == "gpt2":
            draw_gpt2(model, generator, scale=0.02, into_stream=1 / math.sqrt(2 * self.layers))
        else:
            DRAWS[self.initialisation](model, generator)
        for layer, kind in enumerate(self._switches(self.attention)):
            for weight in _score_maps(model.get_submodule(f"blocks.{layer}.attn")) if kind == "uniform" else ():
                weight.zero_()

    def _block(self, layer: int) -> Block:
        name, kind = f"blocks.{layer}", self._switches(self.attention)[layer]
        attention = Attention(
            f"{name}.attn",
            self.width,
            self.heads,
            self.head_width,
            output_linear=self._switches(self.output_linear)[layer],
            biases=self.biases,
            shift_values=self.shift_values,
            rotary=self.positions == "rotary",
            softmax=kind != "linear",
        )
        for weight in _score_maps(attention) if kind == "uniform" else ():
            weight.requires_grad_(False)
        hidden = self.hidden or 3 * self.width
        mlp = FeedForward(f"{name}.mlp", self.width, hidden, self.activation, biases=self.biases)
        return Block(
            name,
            attention,
            mlp if self._switches(self.feed_forward)[layer] else None,
            norm_width=self.width if self._switches(self.layer_norm)[layer] else None,
            norm=self._norm,
            norm_first=self.norm != "post",
            residual=self._switches(self.residual)[layer],
            causal=self._switches(self.mask)[layer],
        )


def _score_maps(attention: nn.Module) -> list[nn.Parameter]:
    """Return the query and key maps and their biases; if these are zero, all scores are equal."""
    return [weight for name, weight in attention.named_parameters() if name[-1] in "QK"]
