"""A block of a transformer: attention and feed-forward, with residual paths and layer norms."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from anchorlab.errors import SpecError
from anchorlab.models.attention import Attention, Embedded, MergedAttention
from anchorlab.models.feedforward import FeedForward, LinearFeedForward
from anchorlab.models.model import gather_positions
from anchorlab.models.sites import STREAM, Positions, Site, Tap

Stream = Float[Tensor, "*later batch position width"]

Fork = Callable[[nn.Module, Stream], tuple[Stream, Stream]]
"""A function of a layer and the stream before it; returns what the layer reads, and the stream that bypasses it."""


def shared(layer: nn.Module, x: Stream) -> tuple[Stream, Stream]:
    """Return the stream twice: the layer reads the same stream that bypasses it."""
    return x, x


class _Norm(nn.Module):
    """A norm with a gain; its output is the site `hook_normalized`."""

    offset = 0.0  # a field of `StackedNorm`, for which pretrained models have other values

    def __init__(self, name: str, width: int) -> None:
        super().__init__()
        self.name = name
        self.w = nn.Parameter(torch.empty(width))

    @property
    def sites(self) -> list[Site]:
        return [Site(f"{self.name}.hook_normalized", STREAM)]


class LayerNorm(_Norm):
    """`(x - mean) / sqrt(variance + 1e-5) * w + b` over the width; its output is the site `hook_normalized`."""

    centred, epsilon = True, 1e-5

    def __init__(self, name: str, width: int) -> None:
        super().__init__(name, width)
        self.b = nn.Parameter(torch.empty(width))

    def forward(self, x: Float[Tensor, "*batch position width"], tap: Tap) -> Float[Tensor, "*batch position width"]:
        """Return the normalised stream."""
        return tap(f"{self.name}.hook_normalized", functional.layer_norm(x, self.w.shape, self.w, self.b, self.epsilon))


class RMSNorm(_Norm):
    """`x / sqrt(mean(x²) + 1e-6) * w` over the width, as in Llama; its output is the site `hook_normalized`.

    Source: Zhang and Sennrich, Root Mean Square Layer Normalization (2019).
    """

    centred, epsilon = False, 1e-6

    def forward(self, x: Float[Tensor, "*batch position width"], tap: Tap) -> Float[Tensor, "*batch position width"]:
        """Return the normalised stream."""
        return tap(f"{self.name}.hook_normalized", functional.rms_norm(x, self.w.shape, self.w, self.epsilon))


class Block(nn.Module):
    """Attention and feed-forward around a residual stream; `ln1`, `ln2` and `mlp` are optional.

    Args:
        name: the prefix of the block's sites, such as `blocks.0`
        attention: the attention layer
        feed_forward: the feed-forward layer, or None
        norm_width: the width of the layer norms; None leaves them out
        norm: the class of the norms
        norm_first: normalise before each layer (GPT-2) rather than after each sum (the original transformer)
        residual: add each layer's output to the stream, rather than replace the stream by it
        causal: mask positions after the query
        parallel: let both layers read the stream that enters the block and sum their outputs. This is
            `x + Attn(ln1(x)) + MLP(ln2(x))`, Pythia's form and, with equal norms, GPT-J's; without `residual`,
            `Attn(x) + MLP(x)` (truncated weights, equation 1). A parallel block has no `hook_resid_mid`.

    Errors: `SpecError` for a parallel block with layer norms after the sums.
    """

    adds_normed = False  # whether a layer's output is normalised before it is added

    def __init__(
        self,
        name: str,
        attention: Attention | MergedAttention,
        feed_forward: FeedForward | LinearFeedForward | None,
        norm_width: int | None = None,
        *,
        norm: type[LayerNorm] | type[RMSNorm] = LayerNorm,
        norm_first: bool = False,
        residual: bool = True,
        causal: bool = True,
        parallel: bool = False,
    ) -> None:
        super().__init__()
        if parallel and norm_width is not None and not norm_first:
            problem = "has no sum between its layers to normalise"
            raise SpecError("parallel", problem, "put the norms first or leave them out")
        self.name, self.norm_first, self.residual, self.causal = name, norm_first, residual, causal
        self.attn, self.mlp, self.parallel = attention, feed_forward, parallel
        self.ln1 = None if norm_width is None else norm(f"{name}.ln1", norm_width)
        self.ln2 = None if norm_width is None or feed_forward is None else norm(f"{name}.ln2", norm_width)

    @property
    def sites(self) -> list[Site]:
        """The sites, in the order of visits."""
        ln1 = self.ln1.sites if self.ln1 else []
        ln2 = self.ln2.sites if self.ln2 else []
        sites = [
            Site(f"{self.name}.hook_resid_pre", STREAM),
            *(ln1 if self.norm_first else []),
            *self.attn.sites,
            Site(f"{self.name}.hook_attn_out", STREAM),
            *([] if self.parallel else [Site(f"{self.name}.hook_resid_mid", STREAM)]),
            *([] if self.norm_first else ln1),
        ]
        if self.mlp is not None:
            sites += [*(ln2 if self.norm_first else []), *self.mlp.sites, Site(f"{self.name}.hook_mlp_out", STREAM)]
        return [*sites, Site(f"{self.name}.hook_resid_post", STREAM), *([] if self.norm_first else ln2)]

    def forward(
        self,
        x: Float[Tensor, "*reader batch position width"],
        positions: Positions,
        mask: Float[Tensor, "..."],
        tap: Tap,
        embedded: Embedded | None = None,
        fork: Fork = shared,
    ) -> Float[Tensor, "*later batch query width"]:
        """Return the stream after the block at `positions`, or everywhere; keys and values come from all positions.

        `mask` comes from `causal_mask` and applies if the block is `causal`. `embedded` is x as a sum of table rows, if
        it is such a sum. With a `fork`, x holds one stream for each reader in this block and after it, and the
        attention reads its streams by `by_head`. At `hook_attn_out` and `hook_mlp_out`, `tap` then turns what each head
        or the feed-forward layer writes into what each later reader receives.
        """
        name, mask_here = self.name, mask if self.causal else None
        x = tap(f"{name}.hook_resid_pre", x)
        read, x = fork(self.attn, x)
        normed = self.ln1(read, tap) if self.ln1 is not None and self.norm_first else read
        if self.parallel and self.mlp is not None:
            read, x = fork(self.mlp, x)
        if fork is shared:
            tables = {"embedded": embedded} if isinstance(self.attn, MergedAttention) and normed is x else {}
            attended = self.attn(normed, positions, mask_here, tap, **tables)
        else:
            attended = self.attn.by_head(normed, mask_here, tap)
        attended = tap(f"{name}.hook_attn_out", attended)
        x = gather_positions(x, positions) + attended if self.residual else attended
        if not self.parallel:
            x = tap(f"{name}.hook_resid_mid", x)
        if self.ln1 is not None and not self.norm_first:
            x = self.ln1(x, tap)
        if self.mlp is not None:
            read, x = (gather_positions(read, positions), x) if self.parallel else fork(self.mlp, x)
            normed = self.ln2(read, tap) if self.ln2 is not None and self.norm_first else read
            output = tap(f"{name}.hook_mlp_out", self.mlp(normed, tap))
            x = x + output if self.residual or self.parallel else output
        x = tap(f"{name}.hook_resid_post", x)
        return self.ln2(x, tap) if self.ln2 is not None and not self.norm_first else x
