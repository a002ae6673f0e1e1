"""Passes of all members at once that record every unit's output, and may give every input a stream of its own."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.func import functional_call, vmap

from anchorlab.lens.vectors.attribution import blocks
from anchorlab.models.attention import Attention, MergedAttention, causal_mask
from anchorlab.models.block import Block
from anchorlab.models.model import gather_positions
from anchorlab.models.sites import Tap, identity_tap
from anchorlab.models.stack import Stack, StackedBlock, StackedNorm
from anchorlab.models.transformer import Transformer
from anchorlab.training.ensemble import Ensemble

ENTERING = "blocks.0.hook_resid_pre"
"""The site of the unit `embed`: tokens and positions together."""

Values = dict[str, Shaped[Tensor, "..."]]
"""What the units write, by site, in their order: `[(member) batch position *unit]`; the axes `unit` differ by site."""


def mapped(
    ensemble: Ensemble, function: Callable[..., Any], stacked: Sequence[Any] = (), shared: Sequence[Any] = ()
) -> Any:
    """Return `function(template, *stacked, *shared)` for all members at once, stacked along a first axis.

    `stacked` have a member axis, and `shared` are the same for all members; either may hold None.
    """
    held = _Held(ensemble.template)

    def one(weights: dict[str, Tensor], *arguments: Any) -> Any:
        placed = {f"model.{name}": value for name, value in weights.items()}
        return functional_call(held, placed, (function, *arguments, *shared))

    axes = (0, *(None if each is None else 0 for each in stacked))
    return vmap(one, in_dims=axes)(dict(ensemble.weights), *stacked)


class _Held(nn.Module):
    """A module that calls a function with a model, so that `functional_call` gives the model its weights."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(self.model, *arguments)


def embedded(model: Stack, inputs: Shaped[Tensor, "batch position *feature"]) -> Float[Tensor, "batch position width"]:
    """Return the stream that enters block 0."""
    found: list[Tensor] = []

    def tap(site: str, value: Tensor) -> Tensor:
        if site == ENTERING:
            found.append(value)
            raise _EnteredError
        return value

    with suppress(_EnteredError):
        model(inputs, tap=tap)
    return found[0]


class _EnteredError(Exception):
    """Ends a pass at block 0."""


def run(
    model: Stack, stream: Float[Tensor, "batch position width"], tap: Tap, positions: Int[Tensor, "*batch scored"]
) -> Float[Tensor, "batch scored output"]:
    """Return the logits at some positions of a pass from a stream entering block 0; sites keep all positions."""
    unread = torch.zeros(stream.shape[:2], dtype=torch.int64, device=stream.device)
    if model.positions_narrow_sites:
        return gather_positions(model(unread, tap=tap, entering=(0, stream)), positions)
    return model(unread, positions, tap=tap, entering=(0, stream))


def plain_pass(
    model: Stack,
    stream: Float[Tensor, "batch position width"],
    positions: Int[Tensor, "*batch scored"],
    added: Values | None = None,
) -> tuple[Float[Tensor, "batch scored output"], Values]:
    """Return the logits at some positions of a pass, and what every unit writes at all positions, by site.

    Heads are recorded before their output map, at `hook_z`. `added` are changes of these values, by site.
    """
    values: Values = {}

    def tap(site: str, value: Tensor) -> Tensor:
        if site == ENTERING or site.endswith((".hook_z", ".hook_mlp_out")):
            values[site] = value = value if added is None else value + added[site]
        return value

    return run(model, stream, tap, positions), values


def no_change(model: Stack, stream: Float[Tensor, "batch position width"]) -> Values:
    """Return zeros in the shapes of the values of `plain_pass`."""
    zeros = {ENTERING: torch.zeros_like(stream)}
    for block in model.blocks:
        attention: Any = block.attn
        heads, inner = attention.heads, attention.W_V.shape[-1] if attention.W_O is None else len(attention.W_O)
        zeros[f"{attention.name}.hook_z"] = stream.new_zeros(*stream.shape[:2], heads, inner // heads)
        if block.mlp is not None:
            zeros[f"{block.name}.hook_mlp_out"] = torch.zeros_like(stream)
    return zeros


def unit_outputs(model: Stack, values: Values) -> Float[Tensor, "unit batch position width"]:
    """Return what each unit adds to the stream, given the values of `plain_pass` by site."""
    attending = {f"{block.attn.name}.hook_z": block for block in model.blocks}
    return torch.cat([
        written(attending[site], value) if site in attending else value.unsqueeze(0) for site, value in values.items()
    ])  # fmt: skip


def written(
    block: StackedBlock, z: Float[Tensor, "batch position head head_width"]
) -> Float[Tensor, "head batch position width"]:
    """Return what each head of a block adds to the stream, without the layer's bias.

    If the block normalises the sum of its heads first, each head's part is scaled as the sum is, and has an equal share
    of the bias. The parts then add up to what the block adds.
    """
    found: Tensor = block.attn.written(z)
    if not block.adds_normed:
        return found
    norm, after = cast(StackedNorm, block.ln1), cast(Any, block).ln1_post
    gain: Tensor = norm.offset + after.w
    bias = getattr(block.attn, "b_O", None)
    found = found if bias is None else found + bias / len(found)
    return found * norm_scale(norm, found.sum(dim=0)) * gain


def norm_scale(norm: StackedNorm, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch 1"]:
    """Return what a norm multiplies a stream by before its gain."""
    x = x - x.mean(dim=-1, keepdim=True) if norm.centred else x
    return torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + norm.epsilon)


def split_pass(
    model: Transformer,
    stream: Float[Tensor, "batch position width"],
    removed: Float[Tensor, "unit receiver"],
    others: Float[Tensor, "unit batch position width"],
    positions: Int[Tensor, "*batch scored"],
    changes: Float[Tensor, "unit batch position width"] | None = None,
) -> tuple[Float[Tensor, "batch scored output"], Float[Tensor, "unit batch position width"]]:
    """Return the logits, and what each unit writes, in a pass in which every receiver reads a stream of its own.

    A receiver reads, of each unit, the share `1 - removed` of its present output and the share `removed` of its output
    in `others`. With zeros it is a plain pass, and the derivative with respect to `removed` is the first-order effect
    of each edge. Norms after the sums normalise each stream by itself, so an edge passes all norms on its way.

    Args:
        stream: enters block 0.
        changes: used in place of `others` minus the present output, for the derivative along another direction.
    """
    # begin with one stream per receiver: queries, keys and values of all heads, feed-forward layers, and the logits
    streams = _Streams(removed, others, changes)
    x = streams.received(stream.unsqueeze(0))
    place = torch.arange(stream.shape[1], device=stream.device)
    mask = causal_mask(place, place, stream.dtype)
    for block in blocks(model):
        # `fork` hands a layer the streams of its own receivers; the taps then add its output to the later streams
        x = block(x, None, mask, partial(streams.tap, block), fork=streams.fork)
    return model.predictions(gather_positions(x[0], positions), identity_tap), torch.cat(streams.outputs)


class _Streams:
    """Gives each receiver that has not read yet a stream of its own, `[receiver batch position width]` in their order.

    `outputs` holds what the units have written, and `left` is the number of receivers that have not read yet.
    """

    def __init__(self, removed: Tensor, others: Tensor, changes: Tensor | None) -> None:
        self.removed, self.others, self.changes = removed, others, changes
        self.outputs: list[Tensor] = []
        self.left = removed.shape[1]

    def fork(self, layer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the streams that a layer reads, and the streams of the later receivers."""
        count = 3 * layer.heads if isinstance(layer, Attention | MergedAttention) else 1
        self.left = len(x) - count
        return x[:count] if count > 1 else x[0], x[count:]

    def tap(self, block: Block, site: str, value: Tensor) -> Tensor:
        """Return what each receiver gets of the outputs of a block's heads or feed-forward layer; elsewhere `value`."""
        if site == f"{block.name}.hook_attn_out":
            bias = getattr(block.attn, "b_O", None)
            return self.received(value) if bias is None else self.received(value) + bias
        return self.received(value.unsqueeze(0)) if site == f"{block.name}.hook_mlp_out" else value

    def received(self, outputs: Tensor) -> Tensor:
        """Return what each receiver gets of the outputs `[unit ...]` of the next units."""
        begin = sum(map(len, self.outputs))
        self.outputs.append(outputs)
        units = slice(begin, begin + len(outputs))
        # with `changes`, the derivative is taken along a fixed direction: the detached output cancels the present value
        others = self.others[units] if self.changes is None else outputs.detach() + self.changes[units]
        share = self.removed[units, -self.left :]
        # Two products rather than a difference: a removed edge then leaves no trace of rounding.
        mixed = [torch.einsum("ur,ubpw->rbpw", *each) for each in ((1 - share, outputs), (share, others))]
        return mixed[0] + mixed[1]
