"""Passes of all members at once, in which every unit is seen, and every input may read a stream of its own."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.func import functional_call, vmap

from anchorlab.lens.scoring.graph import heads_of
from anchorlab.lens.vectors.attribution import blocks
from anchorlab.models.attention import Attention, MergedAttention, attend, causal_mask, shifted
from anchorlab.models.block import Block, LayerNorm, RMSNorm
from anchorlab.models.model import gather_positions
from anchorlab.models.sites import identity_tap
from anchorlab.models.transformer import Transformer
from anchorlab.training.ensemble import Ensemble

ENTERING = "blocks.0.hook_resid_pre"
"""The site of the unit `embed`: tokens and positions together."""

Values = dict[str, Shaped[Tensor, "batch position *unit"]]
"""What the units write, by site, in the order of the units."""


def mapped(
    ensemble: Ensemble, function: Callable[..., Any], stacked: Sequence[Any] = (), shared: Sequence[Any] = ()
) -> Any:
    """Return `function(template, *stacked, *shared)` of all members at once, stacked along a first axis.

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


def embedded(
    model: Transformer, inputs: Shaped[Tensor, "batch position *feature"]
) -> Float[Tensor, "batch position width"]:
    """Return the stream that enters block 0."""
    x: Tensor = model.embed(inputs)
    return x if model.pos_embed is None else x + model.pos_embed.W_pos[: x.shape[1]]


def plain_pass(
    model: Transformer, stream: Float[Tensor, "batch position width"], added: Values | None = None
) -> tuple[Float[Tensor, "batch position output"], Values]:
    """Return the logits of a pass that begins with a stream entering block 0, and what every unit writes, by site.

    Heads are recorded before their output map, at `hook_z`. `added` are changes of these values, by site.
    """
    values: Values = {}

    def tap(site: str, value: Tensor) -> Tensor:
        if site == ENTERING or site.endswith((".hook_z", ".hook_mlp_out")):
            values[site] = value = value if added is None else value + added[site]
        return value

    unread = torch.zeros(stream.shape[:2], dtype=torch.int64, device=stream.device)
    return model(unread, tap=tap, entering=(0, stream)), values


def no_change(model: Transformer, stream: Float[Tensor, "batch position width"]) -> Values:
    """Return zeros in the shapes of the values of `plain_pass`."""
    zeros = {ENTERING: torch.zeros_like(stream)}
    for block in blocks(model):
        heads, inner = heads_of(block.attn), block.attn.W_V.shape[-1]
        zeros[f"{block.attn.name}.hook_z"] = stream.new_zeros(*stream.shape[:2], heads, inner // heads)
        if block.mlp is not None:
            zeros[f"{block.name}.hook_mlp_out"] = torch.zeros_like(stream)
    return zeros


def unit_outputs(
    model: Transformer, stream: Float[Tensor, "batch position width"]
) -> Float[Tensor, "unit batch position width"]:
    """Return what each unit adds to the stream in a pass that begins with a stream entering block 0."""
    _, values = plain_pass(model, stream)
    attentions = {f"{block.attn.name}.hook_z": block.attn for block in blocks(model)}
    parts = [
        _written(attentions[site], value) if site in attentions else value.unsqueeze(0)
        for site, value in values.items()
    ]
    return torch.cat(parts)


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
    streams = _Streams(removed, others, changes)
    streams.write(stream.unsqueeze(0))
    place = torch.arange(stream.shape[1], device=stream.device)
    mask = causal_mask(place, place, stream.dtype)
    for block in blocks(model):
        _pass_block(block, streams, mask, place)
    x = gather_positions(streams.values[0], positions)
    if model.ln_final is not None:
        x = model.ln_final(x, identity_tap)
    if model.tied:
        return x @ model.embed.W_E.T, torch.cat(streams.outputs)
    return x if model.unembed is None else model.unembed(x), torch.cat(streams.outputs)


class _Streams:
    """The stream of every receiver that has not read yet, `[receiver batch position width]`, in their order."""

    def __init__(self, removed: Tensor, others: Tensor, changes: Tensor | None) -> None:
        self.removed, self.others, self.changes = removed, others, changes
        self.outputs: list[Tensor] = []
        self.values = others.new_zeros(removed.shape[1], *others.shape[1:])

    def read(self, count: int) -> Tensor:
        """Remove and return the streams of the next receivers."""
        first, self.values = self.values[:count], self.values[count:]
        return first

    def write(self, outputs: Tensor, keep: bool = True) -> None:
        """Add the outputs of the next units, `[unit ...]`, or replace the streams by them."""
        begin = sum(map(len, self.outputs))
        self.outputs.append(outputs)
        units = slice(begin, begin + len(outputs))
        others = self.others[units] if self.changes is None else outputs.detach() + self.changes[units]
        share = self.removed[units, self.removed.shape[1] - len(self.values) :]
        # Two products rather than a difference: a removed edge then leaves no trace of rounding.
        mixed = [torch.einsum("ur,ubpw->rbpw", *each) for each in ((1 - share, outputs), (share, others))]
        self.values = mixed[0] + mixed[1] + (self.values if keep else 0.0)

    def change(self, function: Callable[[Tensor], Tensor]) -> None:
        """Apply a function of a stream to all streams."""
        self.values = _each(function, self.values)


def _pass_block(block: Block, streams: _Streams, mask: Tensor, place: Tensor) -> None:
    attention, heads = block.attn, heads_of(block.attn)
    read = streams.read(3 * heads)
    if block.ln1 is not None and block.norm_first:
        read = _each(partial(_norm, block.ln1), read)
    q, k, v = (_projected(attention, role, x) for role, x in zip("QKV", torch.split(read, heads), strict=True))
    places = (place, place) if attention.rotary else None
    scale, name = attention.scale, attention.name
    z = attend(q, k, v, scale, mask if block.causal else None, name, identity_tap, places)
    feed_forward = None
    if block.mlp is not None and block.parallel:
        feed_forward = streams.read(1)[0]
    streams.write(_written(attention, z), keep=block.residual)
    bias = getattr(attention, "b_O", None)
    if bias is not None:
        streams.values = streams.values + bias
    if block.ln1 is not None and not block.norm_first:
        streams.change(partial(_norm, block.ln1))
    if block.mlp is not None:
        x = streams.read(1)[0] if feed_forward is None else feed_forward
        if block.ln2 is not None and block.norm_first:
            x = _norm(block.ln2, x)
        streams.write(block.mlp(x, identity_tap).unsqueeze(0), keep=block.residual or block.parallel)
    if block.ln2 is not None and not block.norm_first:
        streams.change(partial(_norm, block.ln2))


def _each(function: Callable[[Tensor], Tensor], streams: Tensor) -> Tensor:
    return function(streams.flatten(0, 1)).reshape(streams.shape)


def _norm(norm: LayerNorm | RMSNorm, x: Tensor) -> Tensor:
    normed: Tensor = norm(x, identity_tap)
    return normed


def _projected(attention: Attention | MergedAttention, role: str, x: Tensor) -> Tensor:
    """Return queries, keys or values `[batch position head head_width]` of heads that each read a stream of their own.

    `x` is `[head batch position width]`.
    """
    if isinstance(attention, MergedAttention):
        weights = {"Q": attention.W_KQ, "K": None, "V": attention.W_V}
        return (x if (weight := weights[role]) is None else x @ weight).movedim(0, 2)
    weight, bias = getattr(attention, f"W_{role}"), getattr(attention, f"b_{role}")
    found = torch.einsum("hbpw,whe->bphe", x, weight.view(len(weight), attention.heads, -1))
    found = found if bias is None else found + bias.view(attention.heads, -1)
    return shifted(found, attention.shift_values) if role == "V" and attention.shift_values else found


def _written(attention: Attention | MergedAttention, z: Tensor) -> Tensor:
    """Return what each head adds to the stream, `[head batch position width]`, without the layer's bias."""
    heads, inner = z.shape[-2], z.shape[-2] * z.shape[-1]
    weight = torch.eye(inner, dtype=z.dtype, device=z.device) if attention.W_O is None else attention.W_O
    return torch.einsum("bphe,hew->hbpw", z, weight.view(heads, z.shape[-1], -1))
