"""Models whose layers carry a state of fixed size: Mamba's selective state space, and gated linear attention.

The recurrences run position by position, in plain PyTorch: slower than the authors' kernels, and the same equations.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn import functional

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.models.attention import affine
from anchorlab.models.block import RMSNorm
from anchorlab.models.embedding import TokenEmbedding, Unembedding
from anchorlab.models.feedforward import FeedForward
from anchorlab.models.model import Model, ModelSpec, gather_positions, register_model
from anchorlab.models.sites import HIDDEN, LOGITS, STREAM, Positions, Site, Tap, by_name, identity_tap
from anchorlab.models.transformer import require_inputs

_SLOWEST, _FASTEST = 0.001, 0.1  # the range of a neuron's initial step in time
_SLOW_GATE = 16.0  # forget gates are this root of a sigmoid, so that states are forgotten slowly


@register_model("mamba")
class MambaSpec(ModelSpec):
    """Embedding, layers `x + Mamba(RMSNorm(x))` with selective state spaces, a last norm, projection.

    Each of `expand * width` neurons carries `state` numbers h. With the input u, and a step Δ, B and C computed from
    it, `h_t = exp(Δ_t A) h_{t-1} + Δ_t B_t u_t` and `y_t = C_t h_t + D u_t`. Before that, u passes a causal
    convolution over `convolution` positions and SiLU; after it, y is multiplied by SiLU of a gate. There are no
    position embeddings.

    Initial weights are as in the authors' code: embeddings N(0, 0.02²), A from -1 to -`state`, steps from 0.001 to 0.1.
    Source: Gu and Dao, Mamba: Linear-Time Sequence Modeling with Selective State Spaces (2023), section 3, algorithm 2.
    """

    kind: Literal["mamba"] = "mamba"
    layers: int = Field(default=2, gt=0, le=1024)
    width: PositiveInt = 64
    state: PositiveInt = Field(default=16, description="numbers that each neuron carries")
    expand: PositiveInt = Field(default=2, description="neurons of a layer, as a multiple of the width")
    convolution: PositiveInt = Field(default=4, description="positions that the convolution reads, up to its own")

    def build(self, shape: TaskShape) -> "Recurrent":
        """Build a member for token tasks. Errors: `SpecError` for vector inputs."""
        require_inputs(self, shape, "tokens")
        mixers = [
            StateSpace(f"blocks.{layer}.mixer", self.width, self.expand * self.width, self.state, self.convolution)
            for layer in range(self.layers)
        ]
        return Recurrent(shape, self.width, [Layer(mixer, self.width, None) for mixer in mixers])


@register_model("gated-linear-attention")
class GatedLinearAttentionSpec(ModelSpec):
    """Embedding, layers `x + GLA(RMSNorm(x))` then `x + MLP(RMSNorm(x))`, a last norm, projection.

    Each head carries a matrix S of `key_width` rows: `S_t = diag(α_t) S_{t-1} + k_tᵀ v_t` and
    `o_t = q_t S_t / sqrt(key_width)`, with gates α in (0, 1) computed from the input. The output is normalised, times
    SiLU of a gate, and mapped by `W_O`. There are no position embeddings. Without gates this is linear attention, as
    `DecoderSpec(attention="linear")` has it. With few rows, q_t S_t can be near 0 early in a sequence; the norm then
    divides by a small number, and training amplifies rounding.

    Initial weights: embeddings N(0, 0.02²), maps as `torch.nn.Linear`, the maps into the stream divided by
    sqrt(2 `layers`), or sqrt(`layers`) without feed-forward layers.
    Source: Yang et al., Gated Linear Attention Transformers with Hardware-Efficient Training (2023), sections 4.1, 4.4.
    """

    kind: Literal["gated-linear-attention"] = "gated-linear-attention"
    layers: int = Field(default=2, gt=0, le=1024)
    width: PositiveInt = 64
    heads: PositiveInt = 1
    key_width: PositiveInt | None = Field(
        default=None, description="rows of a head's state; width / heads / 2 if unset"
    )
    gate_rank: PositiveInt = Field(default=16, description="rank of the map from the stream to the gates")
    feed_forward: bool = Field(default=True, description="a gated feed-forward layer (SwiGLU) after each recurrence")
    hidden: PositiveInt | None = Field(default=None, description="neurons per feed-forward layer; 3 x width when unset")

    @model_validator(mode="after")
    def _fits(self) -> "GatedLinearAttentionSpec":
        if self.width % self.heads:
            raise SpecError("heads", f"{self.heads} does not divide the width, {self.width}", "choose a divisor")
        if self.hidden is not None and not self.feed_forward:
            raise SpecError("hidden", "is given without feed-forward layers", "leave it out or use feed_forward=True")
        return self

    def build(self, shape: TaskShape) -> "Recurrent":
        """Build a member for token tasks. Errors: `SpecError` for vector inputs."""
        require_inputs(self, shape, "tokens")
        keys = self.key_width or max(1, self.width // self.heads // 2)
        layers = []
        for layer in range(self.layers):
            name = f"blocks.{layer}"
            mixer = GatedAttention(f"{name}.mixer", self.width, self.heads, keys, self.gate_rank)
            mlp = FeedForward(f"{name}.mlp", self.width, self.hidden or 3 * self.width, "swiglu")
            layers.append(Layer(mixer, self.width, mlp if self.feed_forward else None))
        return Recurrent(shape, self.width, layers)


class Recurrent(Model):
    """Embedding, recurrent layers with residual paths, last norm and output map."""

    def __init__(self, shape: TaskShape, width: int, layers: "Sequence[Layer]") -> None:
        super().__init__()
        self.embed = TokenEmbedding(shape.input_size, width)
        self.blocks = nn.ModuleList(layers)
        self.ln_final = RMSNorm("ln_final", width)
        self.unembed = Unembedding(width, shape.output_size, bias=False)
        inner = [site for layer in layers for site in layer.sites]
        self.sites = by_name([Site("hook_embed", STREAM), *inner, *self.ln_final.sites, LOGITS])

    def forward(
        self, inputs: Int[Tensor, "batch position"], positions: Positions = None, tap: Tap = identity_tap
    ) -> Float[Tensor, "batch scored output"]:
        """Return predictions at `positions` (`[scored]` or `[batch scored]`), or everywhere when None.

        With `positions`, sites after the last layer's `hook_state` have `scored` rows. A change at a `hook_state`
        reaches what is read of the state at that position, but not the recurrence; a change at `hook_decay` reaches
        both.
        """
        x = tap("hook_embed", self.embed(inputs))
        for layer in self.blocks[:-1]:
            x = layer(x, None, tap)
        x = self.ln_final(self.blocks[-1](x, positions, tap), tap)
        return tap("hook_logits", self.unembed(x))

    def _draw(self, model: nn.Module, generator: torch.Generator) -> None:
        into_stream = sum(1 if layer.mlp is None else 2 for layer in self.blocks) ** -0.5
        for path, weight in self.named_parameters():
            name = path.rpartition(".")[2]
            if name == "W_E":
                nn.init.normal_(weight, std=0.02, generator=generator)
            elif weight.ndim == 2:
                # a convolution's rows are neurons, each with as many inputs as it reads positions
                bound = (weight.shape[1] if name == "W_conv" else weight.shape[0]) ** -0.5
                nn.init.uniform_(weight, -bound, bound, generator=generator)
                if name in ("W_out", "W_O"):
                    weight.mul_(into_stream)
            else:
                nn.init.constant_(weight, 1.0 if name in ("w", "D") else 0.0)
        for layer in self.blocks:
            if isinstance(layer.mixer, StateSpace):
                layer.mixer.draw_times(generator)


class Layer(nn.Module):
    """A recurrence and, if it has one, a feed-forward layer, each after a norm and added to the stream."""

    def __init__(self, mixer: "StateSpace | GatedAttention", width: int, feed_forward: FeedForward | None) -> None:
        super().__init__()
        self.name = mixer.name.removesuffix(".mixer")
        self.ln1, self.mixer, self.mlp = RMSNorm(f"{self.name}.ln1", width), mixer, feed_forward
        self.ln2 = None if feed_forward is None else RMSNorm(f"{self.name}.ln2", width)

    @property
    def sites(self) -> list[Site]:
        """The sites, in the order of visits."""
        stream = {hook: Site(f"{self.name}.hook_{hook}", STREAM) for hook in ("resid_pre", "mixer_out", "resid_post")}
        sites = [stream["resid_pre"], *self.ln1.sites, *self.mixer.sites, stream["mixer_out"]]
        if self.mlp is not None and self.ln2 is not None:
            mlp = Site(f"{self.name}.hook_mlp_out", STREAM)
            sites += [Site(f"{self.name}.hook_resid_mid", STREAM), *self.ln2.sites, *self.mlp.sites, mlp]
        return [*sites, stream["resid_post"]]

    def forward(
        self, x: Float[Tensor, "batch position width"], positions: Positions, tap: Tap
    ) -> Float[Tensor, "batch scored width"]:
        """Return the stream after the layer at `positions`, or everywhere."""
        x = tap(f"{self.name}.hook_resid_pre", x)
        mixed = self.mixer(self.ln1(x, tap), positions, tap)
        x = gather_positions(x, positions) + tap(f"{self.name}.hook_mixer_out", mixed)
        if self.mlp is not None and self.ln2 is not None:
            x = tap(f"{self.name}.hook_resid_mid", x)
            x = x + tap(f"{self.name}.hook_mlp_out", self.mlp(self.ln2(x, tap), tap))
        return tap(f"{self.name}.hook_resid_post", x)


class StateSpace(nn.Module):
    """Mamba's mixer of positions: a causal convolution, a selective state space, and a gate (see `MambaSpec`)."""

    def __init__(self, name: str, width: int, hidden: int, state: int, convolution: int) -> None:
        super().__init__()
        self.name, self.state, self.rank = name, state, math.ceil(width / 16)
        self.W_in = nn.Parameter(torch.empty(width, 2 * hidden))
        self.W_conv = nn.Parameter(torch.empty(hidden, convolution))
        self.b_conv = nn.Parameter(torch.empty(hidden))
        self.W_x = nn.Parameter(torch.empty(hidden, self.rank + 2 * state))
        self.W_dt = nn.Parameter(torch.empty(self.rank, hidden))
        self.b_dt = nn.Parameter(torch.empty(hidden))
        # log(-A), the rate of each number of each neuron's state; a vector, so that it is not drawn as a map
        self.A_log = nn.Parameter(torch.empty(hidden * state))
        self.D = nn.Parameter(torch.empty(hidden))
        self.W_out = nn.Parameter(torch.empty(hidden, width))

    @property
    def sites(self) -> list[Site]:
        """The sites, in the order of visits: the factor by which a state decays, the state, and what `W_out` reads."""
        axes = (*HIDDEN, "state")
        return [
            Site(f"{self.name}.hook_decay", axes),
            Site(f"{self.name}.hook_state", axes),
            Site(f"{self.name}.hook_post", HIDDEN),
        ]

    def forward(
        self, x: Float[Tensor, "batch position width"], positions: Positions, tap: Tap
    ) -> Float[Tensor, "batch scored width"]:
        """Return the layer's output at `positions`, or everywhere."""
        entering, gate = affine(x, self.W_in).chunk(2, dim=-1)
        u = functional.silu(_convolved(entering, self.W_conv) + self.b_conv)
        low, B, C = torch.split(affine(u, self.W_x), [self.rank, self.state, self.state], dim=-1)
        step = functional.softplus(affine(low, self.W_dt, self.b_dt))
        A = -self.A_log.view(-1, self.state).exp()
        decay = tap(f"{self.name}.hook_decay", (step.unsqueeze(-1) * A).exp())
        states = _states(decay, (step * u).unsqueeze(-1) * B.unsqueeze(-2))
        states = gather_positions(tap(f"{self.name}.hook_state", states), positions)
        C, u, gate = (gather_positions(one, positions) for one in (C, u, gate))
        y = (states * C.unsqueeze(-2)).sum(dim=-1) + self.D * u
        return affine(tap(f"{self.name}.hook_post", y * functional.silu(gate)), self.W_out)

    def draw_times(self, generator: torch.Generator) -> None:
        """Draw the neurons' initial steps, log-uniform from 0.001 to 0.1, and set the rates to 1, 2, 3 and so on."""
        nn.init.uniform_(self.b_dt, math.log(_SLOWEST), math.log(_FASTEST), generator=generator)
        self.b_dt.exp_().expm1_().log_()  # the inverse of softplus
        self.A_log.view(-1, self.state).copy_(torch.arange(1, self.state + 1).log())


class GatedAttention(nn.Module):
    """Linear attention whose state is forgotten by gates (see `GatedLinearAttentionSpec`)."""

    def __init__(self, name: str, width: int, heads: int, key_width: int, gate_rank: int) -> None:
        super().__init__()
        self.name, self.heads, self.key_width = name, heads, key_width
        keys = heads * key_width
        self.W_Q = nn.Parameter(torch.empty(width, keys))
        self.W_K = nn.Parameter(torch.empty(width, keys))
        self.W_V = nn.Parameter(torch.empty(width, width))
        self.W_low = nn.Parameter(torch.empty(width, gate_rank))
        self.W_decay = nn.Parameter(torch.empty(gate_rank, keys))
        self.b_decay = nn.Parameter(torch.empty(keys))
        self.norm = RMSNorm(f"{name}.norm", width // heads)
        self.W_gate = nn.Parameter(torch.empty(width, width))
        self.W_O = nn.Parameter(torch.empty(width, width))

    @property
    def sites(self) -> list[Site]:
        """The sites, in the order of visits: the gates, the state, what a head reads of it, and what `W_O` reads."""
        each = ("batch", "position", "head")
        return [
            Site(f"{self.name}.hook_decay", (*each, "state")),
            Site(f"{self.name}.hook_state", (*each, "state", "head_width")),
            Site(f"{self.name}.norm.hook_normalized", (*each, "head_width")),
            Site(f"{self.name}.hook_post", STREAM),
        ]

    def forward(
        self, x: Float[Tensor, "batch position width"], positions: Positions, tap: Tap
    ) -> Float[Tensor, "batch scored width"]:
        """Return the layer's output at `positions`, or everywhere."""
        k, v = (self._by_head(affine(x, weight)) for weight in (self.W_K, self.W_V))
        asked = gather_positions(x, positions)
        q = self._by_head(affine(asked, self.W_Q)) / math.sqrt(self.key_width)
        gates = functional.logsigmoid(affine(affine(x, self.W_low), self.W_decay, self.b_decay)) / _SLOW_GATE
        decay = tap(f"{self.name}.hook_decay", self._by_head(gates.exp()))
        states = _states(decay.unsqueeze(-1), k.unsqueeze(-1) * v.unsqueeze(-2))
        states = gather_positions(tap(f"{self.name}.hook_state", states), positions)
        read = self.norm((q.unsqueeze(-1) * states).sum(dim=-2), tap).flatten(2)
        return affine(tap(f"{self.name}.hook_post", read * functional.silu(affine(asked, self.W_gate))), self.W_O)

    def _by_head(self, x: Float[Tensor, "batch position inner"]) -> Float[Tensor, "batch position head part"]:
        return torch.unflatten(x, -1, (self.heads, -1))


def _states(
    decay: Float[Tensor, "batch position *#state"], entering: Float[Tensor, "batch position *state"]
) -> Float[Tensor, "batch position *state"]:
    """Return `h_t = decay_t h_{t-1} + entering_t` at every position, with `h_{-1} = 0`."""
    kept, (state, *later) = decay.unbind(1)[1:], entering.unbind(1)
    states = [state]
    for factor, new in zip(kept, later, strict=True):
        state = factor * state + new
        states.append(state)
    return torch.stack(states, dim=1)


def _convolved(
    x: Float[Tensor, "batch position hidden"], weight: Float[Tensor, "hidden offset"]
) -> Float[Tensor, "batch position hidden"]:
    """Return each neuron's weighted sum over its last positions; the last weight is for the position itself."""
    length, reach = x.shape[1], weight.shape[1]
    padded = functional.pad(x, (0, 0, reach - 1, 0))
    return sum(
        (padded[:, at : at + length] * weight[:, at] for at in range(1, reach)), padded[:, :length] * weight[:, 0]
    )
