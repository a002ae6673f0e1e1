"""Passes of a pretrained model with hooks that record the stream of every input, or give it a stream of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.func import vjp, vmap

from anchorlab.lens.scoring.passes import ENTERING, Values, norm_scale, run, written
from anchorlab.models.sites import identity_tap
from anchorlab.models.stack import Stack, StackedNorm

Norms = Literal["live", "frozen"]
"""Whether the norm before an input divides a changed stream by its own scale, or by the unchanged stream's scale."""


@dataclass(frozen=True)
class _Map:
    """What an input does with the normed stream: a map of its heads, or, with `weight` None, all that follows."""

    site: str
    heads: int = 1
    weight: Float[Tensor, "width inner"] | None = None
    bias: Float[Tensor, "inner"] | None = None

    @property
    def by_head(self) -> Float[Tensor, "width head head_width"]:
        assert self.weight is not None
        return self.weight.view(len(self.weight), self.heads, -1)


@dataclass(frozen=True)
class _Input:
    """A read of the stream: its site, the norm and what follows it, and the number of units that wrote before."""

    stream: str
    norm: StackedNorm
    maps: tuple[_Map, ...]
    units: int


def hooked_pass(
    model: Stack,
    stream: Float[Tensor, "batch position width"],
    removed: Float[Tensor, "unit receiver"],
    others: Float[Tensor, "unit batch position width"],
    positions: Int[Tensor, "*batch scored"],
    norms: Norms = "live",
) -> tuple[Float[Tensor, "batch scored output"], Float[Tensor, "unit batch position width"]]:
    """Return the logits, and what each unit writes, if every input of a pretrained model reads its own stream.

    As in `split_pass`, an input reads, of each unit, the share `1 - removed` of its present output and the share
    `removed` of its output in `others`.
    """
    seen, inputs = _Seen(model), _inputs(model)
    places = {each.site: (place, each) for place in inputs for each in place.maps}
    own: dict[str, Tensor] = {}  # the streams of the receivers of each map, by the map's site
    changes: list[Tensor] = []  # how a removal changes what units write, in the parts of `seen.written`

    def streams_of(read: str, stream: Tensor) -> None:
        """Compute the streams of the receivers that read at a site."""
        for done in seen.written[len(changes) :]:
            begin = sum(map(len, changes))
            changes.append(others[begin : begin + len(done)] - done)
        first = 0
        for place in inputs:
            count = sum(each.heads for each in place.maps)
            if place.stream == read:
                streams = stream.expand(count, *stream.shape).flatten(1)
                units = 0
                for change in changes:
                    share = removed[units : units + len(change), first : first + count]
                    streams = streams + share.mT @ change.flatten(1)
                    units += len(change)
                parts = torch.split(streams.view(count, *stream.shape), [each.heads for each in place.maps])
                own.update(zip((each.site for each in place.maps), parts, strict=True))
            first += count

    def tap(site: str, value: Tensor) -> Tensor:
        value = seen.tap(site, value)
        if site in seen.streams:
            streams_of(site, value)
        if site not in places:
            return value
        place, each = places[site]
        changed, read = own.pop(site), seen.streams[place.stream]
        normed = place.norm(changed, identity_tap) if norms == "live" else _at_scale_of(place.norm, changed, read)
        if each.weight is None:
            return normed[0]
        found = torch.einsum("hbpw,whe->bphe", normed, each.by_head)
        return found if each.bias is None else found + each.bias.view(each.heads, -1)

    output = run(model, stream, tap, positions)
    return output, torch.cat(seen.written)


def slopes(
    model: Stack,
    stream: Float[Tensor, "batch position width"],
    positions: Int[Tensor, "*batch scored"],
    measure: Callable[[Float[Tensor, "batch scored output"]], Float[Tensor, ""]],
    others: Float[Tensor, "unit batch position width"],
    changes: Float[Tensor, "unit batch position width"] | None,
) -> tuple[Float[Tensor, "unit receiver"], Float[Tensor, "unit batch position width"]]:
    """Return the derivative of a measure with respect to the removal of each edge, and what the units write.

    One backward pass gives the gradients after the norms of all inputs; those before the norms follow from them.

    Args:
        changes: how a removal changes what a unit writes; None: `others` minus the present output.
    """
    inputs = _inputs(model)

    def measured(added: Values) -> tuple[Tensor, tuple[Tensor, Values]]:
        seen = _Seen(model)

        def tap(site: str, value: Tensor) -> Tensor:
            value = seen.tap(site, value)
            return value + added[site] if site in added else value

        return measure(run(model, stream, tap, positions)), (torch.cat(seen.written), seen.streams)

    zeros = {
        each.site: torch.zeros_like(stream)
        if each.weight is None
        else stream.new_zeros(*stream.shape[:2], *each.by_head.shape[1:])
        for place in inputs
        for each in place.maps
    }
    gradients, (present, streams) = torch.func.grad(measured, has_aux=True)(zeros)
    changes = others - present if changes is None else changes
    columns = []
    for place in inputs:
        behind = [
            gradients[each.site].unsqueeze(0)
            if each.weight is None
            else torch.einsum("bphe,whe->hbpw", gradients[each.site], each.by_head)
            for each in place.maps
        ]
        pulled = vjp(partial(place.norm, tap=identity_tap), streams[place.stream])[1]
        (before,) = vmap(pulled)(torch.cat(behind))
        found = torch.einsum("ubpw,rbpw->ur", changes[: place.units], before)
        columns.append(torch.cat([found, found.new_zeros(len(changes) - place.units, found.shape[1])]))
    return torch.cat(columns, dim=1), present


class _Seen:
    """What a pass has shown so far: what the units wrote, in their order, and the streams before norms, by site."""

    def __init__(self, model: Stack) -> None:
        self.written: list[Float[Tensor, "unit batch position width"]] = []
        self.streams: Values = {}
        self._wanted = {place.stream for place in _inputs(model)}
        self._attending = {f"{block.attn.name}.hook_z": block for block in model.blocks}

    def tap(self, site: str, value: Tensor) -> Tensor:
        if site in self._wanted:
            self.streams[site] = value
        if site in self._attending:
            self.written.append(written(self._attending[site], value))
        elif site == ENTERING or site.endswith(".hook_mlp_out"):
            self.written.append(value.unsqueeze(0))
        return value


def _inputs(model: Stack) -> list[_Input]:
    """Return a pretrained model's inputs in the model's order; their maps follow the order of `Graph.receivers`."""
    found, units = [], 1
    for block in model.blocks:
        attention: Any = block.attn
        name, before = block.name, units
        maps = [
            _Map(
                f"{attention.name}.hook_{role}",
                attention.heads if role == "q" else attention.key_value_heads,
                getattr(attention, f"W_{role.upper()}"),
                getattr(attention, f"b_{role.upper()}", None),
            )
            for role in "qkv"
        ]
        assert block.ln1 is not None and block.ln2 is not None
        found.append(_Input(f"{name}.hook_resid_pre", block.ln1, tuple(maps), units))
        units += attention.heads
        stream, read = ("pre", before) if block.parallel else ("mid", units)
        found.append(_Input(f"{name}.hook_resid_{stream}", block.ln2, (_Map(f"{name}.ln2.hook_normalized"),), read))
        units += 1
    last = (_Map("ln_final.hook_normalized"),)
    return [*found, _Input(f"{model.blocks[-1].name}.hook_resid_post", model.ln_final, last, units)]


def _at_scale_of(norm: StackedNorm, x: Tensor, scaled: Tensor) -> Tensor:
    """Return a stream after a norm that divides by the scale of another stream."""
    of: Any = norm
    x = x - x.mean(dim=-1, keepdim=True) if norm.centred else x
    found: Tensor = x * norm_scale(norm, scaled) * (norm.offset + of.w)
    bias = getattr(of, "b", None)
    return found if bias is None else found + bias
