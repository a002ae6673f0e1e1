"""Write a program into the weights of a decoder."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.models import DecoderSpec
from anchorlab.theory.compiled.program import ANSWER, Head, Match, Move, Program

Weights = dict[str, Float[Tensor, "..."]]


def assemble(program: Program, sharpness: float, gap: float) -> tuple[DecoderSpec, Weights]:
    """Return the decoder that computes a program, and its weights in float64.

    Every layer has as many heads as the layer with the most; the heads that a layer does not need have zero weights.

    Args:
        program: the units
        sharpness: how far the score of the key that a head finds is above every other score, if the program's own
            scores differ by 1
        gap: how far the right logit is above every other
    """
    layers = range(program.layers)
    heads = [program.heads(layer) for layer in layers]
    layer_of = [program.feed_forward(layer) for layer in layers]
    every = [head for some in heads for head in some]
    spec = DecoderSpec(
        layers=program.layers,
        heads=max(map(len, heads)),
        width=sum(program.sizes.values()),
        head_width=max(_needed(parts) for head in every for parts in (head.matches, head.moves)),
        hidden=max([one.neurons for one in layer_of if one is not None], default=1),
        layer_norm=False,
        feed_forward=tuple(one is not None for one in layer_of),
    )
    ends = accumulate(program.sizes.values())
    slices = {block: slice(end - size, end) for (block, size), end in zip(program.sizes.items(), ends, strict=True)}
    module = spec.build(program.task.shape)
    weights = {name: torch.zeros(value.shape, dtype=torch.float64) for name, value in module.named_parameters()}
    for block, table in program.tokens.items():
        weights["embed.W_E"][:, slices[block]] = table
    for block, table in program.places.items():
        weights["pos_embed.W_pos"][:, slices[block]] = table
    weights["unembed.W_U"][slices[ANSWER]] = gap * program.outputs
    for layer in layers:
        for index, head in enumerate(heads[layer]):
            _write_head(weights, f"blocks.{layer}.attn", index * spec.head_width, head, slices)
        weights[f"blocks.{layer}.attn.W_Q"] *= sharpness * math.sqrt(spec.head_width)
        if (one := layer_of[layer]) is not None:
            neurons = slice(0, one.neurons)
            for block, table in one.reads.items():
                weights[f"blocks.{layer}.mlp.W_in"][slices[block], neurons] = table
            for block, table in one.writes.items():
                weights[f"blocks.{layer}.mlp.W_out"][neurons, slices[block]] = table
    return spec, weights


def _needed(parts: Sequence[Match | Move]) -> int:
    """Return the number of head coordinates that matches or moves need: the sum of their tables' smaller sides."""
    return sum(min(part.table.shape) for part in parts)


def _write_head(weights: Weights, name: str, start: int, head: Head, slices: Mapping[str, slice]) -> None:
    """Write a head into the coordinates of its layer from `start` on."""
    at = start
    for match in head.matches:
        into, out = _split(match.table)
        here = slice(at, at := at + into.shape[1])
        weights[f"{name}.W_Q"][slices[match.query], here] += into
        weights[f"{name}.W_K"][slices[match.key], here] += out.T
    at = start
    for move in head.moves:
        into, out = _split(move.table)
        here = slice(at, at := at + into.shape[1])
        weights[f"{name}.W_V"][slices[move.source], here] += into
        weights[f"{name}.W_O"][here, slices[move.target]] += out


def _split(table: Float[Tensor, "row column"]) -> tuple[Float[Tensor, "row inner"], Float[Tensor, "inner column"]]:
    """Split a table into two factors; the factor on its smaller side is the identity."""
    rows, columns = table.shape
    if rows <= columns:
        return torch.eye(rows, dtype=table.dtype), table
    return table, torch.eye(columns, dtype=table.dtype)
