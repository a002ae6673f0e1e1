"""Convert weights between Hugging Face's layout and ours, `[input output]` under our names, without loss."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Shaped
from torch import Tensor

from anchorlab.language.architectures import Architecture
from anchorlab.models.model import Weights

BASE, HEAD = "base", "head"
"""The names of the base model and of the output map within the module that runs them."""

_QKV = "QKV"


@dataclass(frozen=True)
class Entry:
    """One of Hugging Face's weights, our names for it, and the conversions in both directions.

    Fields
        theirs: the name below `base` or `head`
        ours: our name; three names for fused queries, keys and values
        split: converts Hugging Face's tensor to ours, in the order of `ours`; the results are views if possible
        join: the inverse of `split`
    """

    theirs: str
    ours: tuple[str, ...]
    split: Callable[[Tensor], Sequence[Tensor]]
    join: Callable[[Sequence[Tensor]], Tensor]


def layout(architecture: Architecture, weights: Weights, layers: int, heads: int) -> list[Entry]:
    """Return the entries of a model; every one of Hugging Face's weights is in exactly one entry.

    Args:
        architecture: the table of the model's architecture
        weights: Hugging Face's weights by their names below `base` and `head`
        layers: the number of blocks
        heads: the number of query heads, by which a fused map is divided

    Errors: `KeyError` with up to three names of weights that the table does not cover, or that the model lacks.
    """
    found = [_same("embed.W_E", f"{BASE}.{architecture.embed}.weight")]
    if architecture.pos_embed is not None:
        found.append(_same("pos_embed.W_pos", f"{BASE}.{architecture.pos_embed}.weight"))
    for layer in range(layers):
        found += _block(architecture, f"blocks.{layer}", f"{BASE}.{architecture.layers}.{layer}", heads)
    found += _norm("ln_final", f"{BASE}.{architecture.final_norm}")
    found += _map(HEAD, "unembed", "U", stored_as_inputs=False)
    kept = [entry for entry in found if entry.theirs in weights]
    covered = {entry.theirs for entry in kept}
    needed = {entry.theirs for entry in found if entry.theirs.endswith(".weight")}
    if strange := sorted((set(weights) - covered) | (needed - covered)):
        raise KeyError(", ".join(strange[:3]))
    return kept


def split_all(entries: Sequence[Entry], weights: Weights) -> dict[str, Shaped[Tensor, "..."]]:
    """Return our weights by name from Hugging Face's."""
    return {
        name: part
        for entry in entries
        for name, part in zip(entry.ours, entry.split(weights[entry.theirs]), strict=True)
    }


def join_all(entries: Sequence[Entry], weights: Weights) -> dict[str, Shaped[Tensor, "..."]]:
    """Return Hugging Face's weights by name from ours."""
    return {entry.theirs: entry.join([weights[name] for name in entry.ours]) for entry in entries}


def _block(architecture: Architecture, ours: str, theirs: str, heads: int) -> list[Entry]:
    stored = architecture.stored_as_inputs
    found = _norm(f"{ours}.ln1", f"{theirs}.{architecture.attention_norm}")
    found += _norm(f"{ours}.ln2", f"{theirs}.{architecture.feed_forward_norm}")
    if architecture.fused is not None:
        path, fusion = architecture.fused
        found += _fused(f"{theirs}.{path}", f"{ours}.attn", heads, by_head=fusion == "heads", stored_as_inputs=stored)
    for letter, path_of in zip(_QKV, (architecture.query, architecture.key, architecture.value), strict=True):
        if path_of is not None:
            found += _map(f"{theirs}.{path_of}", f"{ours}.attn", letter, stored)
    found += _map(f"{theirs}.{architecture.attention_out}", f"{ours}.attn", "O", stored)
    found += _map(f"{theirs}.{architecture.feed_forward_in}", f"{ours}.mlp", "in", stored)
    if architecture.gate is not None:
        found += _map(f"{theirs}.{architecture.gate}", f"{ours}.mlp", "gate", stored)
    found += _map(f"{theirs}.{architecture.feed_forward_out}", f"{ours}.mlp", "out", stored)
    return found + [_same(f"{ours}.{name}", f"{theirs}.{path}") for name, path in architecture.further.items()]


def _same(ours: str, theirs: str) -> Entry:
    return Entry(theirs, (ours,), lambda value: (value,), lambda parts: parts[0])


def _norm(ours: str, theirs: str) -> list[Entry]:
    return [_same(f"{ours}.w", f"{theirs}.weight"), _same(f"{ours}.b", f"{theirs}.bias")]


def _map(theirs: str, ours: str, letter: str, stored_as_inputs: bool) -> list[Entry]:
    name, weight = f"{ours}.W_{letter}", f"{theirs}.weight"
    turned = Entry(weight, (name,), lambda value: (value.T,), lambda parts: parts[0].T)
    return [_same(name, weight) if stored_as_inputs else turned, _same(f"{ours}.b_{letter}", f"{theirs}.bias")]


def _fused(theirs: str, ours: str, heads: int, by_head: bool, stored_as_inputs: bool) -> list[Entry]:
    """Return the entries of a fused map with outputs `[head 3 head_width]` if `by_head`, else `[3 head head_width]`."""
    sizes, three = ((heads, 3, -1), 1) if by_head else ((3, heads, -1), 0)

    def split(value: Tensor, dim: int) -> list[Tensor]:
        return [part.flatten(dim, dim + 1) for part in torch.unflatten(value, dim, sizes).unbind(dim + three)]

    def join(parts: Sequence[Tensor], dim: int) -> Tensor:
        each = [torch.unflatten(part, dim, (heads, -1)) for part in parts]
        return torch.stack(each, dim + three).flatten(dim, dim + 2)

    def split_map(value: Tensor) -> list[Tensor]:
        return split(value, 1) if stored_as_inputs else [part.T for part in split(value, 0)]

    def join_map(parts: Sequence[Tensor]) -> Tensor:
        return join(parts, 1) if stored_as_inputs else join([part.T for part in parts], 0)

    maps = tuple(f"{ours}.W_{letter}" for letter in _QKV)
    biases = tuple(f"{ours}.b_{letter}" for letter in _QKV)
    return [
        Entry(f"{theirs}.weight", maps, split_map, join_map),
        Entry(f"{theirs}.bias", biases, lambda value: split(value, 0), lambda parts: join(parts, 0)),
    ]
