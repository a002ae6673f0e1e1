"""Hooks on Hugging Face's modules that visit the sites outside attention."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from anchorlab.language.architectures import Architecture
from anchorlab.language.attention import Pass, current_pass
from anchorlab.models.attention import PER_HEAD, attention_sites
from anchorlab.models.sites import HIDDEN, LOGITS, STREAM, Site

Change = Callable[[Pass, Shaped[Tensor, "*axes"]], Shaped[Tensor, "*axes"]]
"""What a hook does to a value within a pass; it returns the same tensor to change nothing."""


def sites(architecture: Architecture, layers: int, grouped: bool, parallel: bool) -> list[Site]:
    """Return the sites of a model in the order of visits.

    Args:
        architecture: the table of the model's architecture
        layers: the number of blocks
        grouped: whether several query heads share a key and value head
        parallel: whether both layers of a block read the stream that enters it
    """
    found = [Site("hook_embed", STREAM)]
    found += [Site("hook_pos_embed", STREAM)] if architecture.pos_embed else []
    for layer in range(layers):
        found += _block_sites(architecture, f"blocks.{layer}", grouped, parallel)
    return [*found, Site("ln_final.hook_normalized", STREAM), LOGITS]


def install(architecture: Architecture, base: nn.Module, heads: int, parallel: bool) -> None:
    """Add the hooks to a base model; they do nothing outside a pass.

    The hooks hold only names and no tensors, so a copy of the module can share them. A base model that has them gets no
    second set, which would visit every site twice.
    """
    if "has_taps" in vars(base):
        return
    vars(base)["has_taps"] = True
    _on_output(base.get_submodule(architecture.embed), _visit("hook_embed"))
    if architecture.pos_embed is not None:
        _on_output(base.get_submodule(architecture.pos_embed), _visit_positions)
    for layer, block in enumerate(base.get_submodule(architecture.layers).children()):
        _install_block(architecture, block, layer, heads, parallel)
    _on_output(base.get_submodule(architecture.final_norm), _visit("ln_final.hook_normalized"))


def _block_sites(architecture: Architecture, block: str, grouped: bool, parallel: bool) -> list[Site]:
    keys = ("batch", "position", "key_value_head", "head_width") if grouped else PER_HEAD
    before, after = ("hook_resid_pre", "ln1.hook_normalized"), ("hook_mlp_out", "hook_resid_post")
    middle = ("hook_attn_out", *(() if parallel else ("hook_resid_mid",)), "ln2.hook_normalized")
    hidden = ("hook_pre", *(() if architecture.gate is None else ("hook_pre_linear",)), "hook_post")
    return [
        *(Site(f"{block}.{name}", STREAM) for name in before),
        *attention_sites(f"{block}.attn", architecture.rotary, keys),
        *(Site(f"{block}.{name}", STREAM) for name in middle),
        *(Site(f"{block}.mlp.{name}", HIDDEN) for name in hidden),
        *(Site(f"{block}.{name}", STREAM) for name in after),
    ]


def _install_block(architecture: Architecture, block: nn.Module, layer: int, heads: int, parallel: bool) -> None:
    name = f"blocks.{layer}"

    def part(path: str) -> nn.Module:
        return block.get_submodule(path)

    _enter_block(block, layer)
    _on_output(part(architecture.attention_norm), _visit(f"{name}.ln1.hook_normalized"))
    if architecture.rotary and architecture.fused is not None:
        _on_output(part(architecture.fused[0]), partial(_visit_fused, f"{name}.attn", heads))
    elif architecture.rotary:
        assert architecture.query is not None and architecture.key is not None
        head_width = part(architecture.query).get_parameter("weight").shape[0] // heads
        _on_output(part(architecture.query), partial(_visit_heads, f"{name}.attn.hook_q", head_width))
        _on_output(part(architecture.key), partial(_visit_heads, f"{name}.attn.hook_k", head_width))
    _on_output(part(architecture.attention_added or architecture.attention_out), _visit(f"{name}.hook_attn_out"))
    if not parallel:
        _on_input(part(architecture.feed_forward_norm), partial(_visit_middle, layer))
    _on_output(part(architecture.feed_forward_norm), _visit(f"{name}.ln2.hook_normalized"))
    _on_output(part(architecture.gate or architecture.feed_forward_in), _visit(f"{name}.mlp.hook_pre"))
    if architecture.gate is not None:
        _on_output(part(architecture.feed_forward_in), _visit(f"{name}.mlp.hook_pre_linear"))
    _on_input(part(architecture.feed_forward_out), _visit(f"{name}.mlp.hook_post"))
    _on_output(part(architecture.feed_forward_added or architecture.feed_forward_out), partial(_visit_added, layer))
    _on_output(block, partial(_leave_block, layer))


def _on_output(module: nn.Module, change: Change) -> None:
    """Within a pass, replace a module's output by `change` of it."""

    def hook(_: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        this = current_pass()
        return output if this is None else change(this, output)

    module.register_forward_hook(hook)


def _on_input(module: nn.Module, change: Change) -> None:
    """Within a pass, replace a module's first argument by `change` of it."""

    def hook(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        this = current_pass()
        return arguments if this is None else (change(this, arguments[0]), *arguments[1:])

    module.register_forward_pre_hook(hook)


def _enter_block(block: nn.Module, layer: int) -> None:
    """Visit the stream that enters a block, an argument by position or by name."""

    def hook(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        this = current_pass()
        if this is None:
            return arguments, named
        stream = arguments[0] if arguments else named["hidden_states"]
        if this.entering is not None and this.entering[0] == layer:
            stream = this.entering[1]
        stream = this.tap(f"blocks.{layer}.hook_resid_pre", stream)
        return ((stream, *arguments[1:]), named) if arguments else ((), {**named, "hidden_states": stream})

    block.register_forward_pre_hook(hook, with_kwargs=True)


def _visit(site: str) -> Change:
    return lambda this, value: this.tap(site, value)


def _visit_heads(site: str, head_width: int, this: Pass, value: Tensor) -> Tensor:
    """Visit a map's output before rotation, its last axis split into heads."""
    by_head = torch.unflatten(value, -1, (-1, head_width))
    after = this.tap(site, by_head)
    return value if after is by_head else after.flatten(-2)


def _visit_fused(attention: str, heads: int, this: Pass, value: Tensor) -> Tensor:
    """Visit queries and keys before rotation at the output of a fused map, which returns both, head by head."""
    query, key, others = torch.unflatten(value, -1, (heads, 3, -1)).unbind(-2)
    new_query, new_key = this.tap(f"{attention}.hook_q", query), this.tap(f"{attention}.hook_k", key)
    if new_query is query and new_key is key:
        return value
    return torch.stack([new_query, new_key, others.expand_as(new_query)], dim=-2).flatten(-3)


def _visit_positions(this: Pass, value: Tensor) -> Tensor:
    expanded = value.expand(this.batch, -1, -1)
    after = this.tap("hook_pos_embed", expanded)
    return value if after is expanded else after


def _visit_middle(layer: int, this: Pass, value: Tensor) -> Tensor:
    """Visit the stream between attention and feed-forward layer, and store a changed stream in the pass.

    Hugging Face's module adds the unchanged stream at its residual connection: the change made here reaches only the
    feed-forward branch. Therefore the hook after the block repeats the sum with the stored stream.
    """
    after = this.tap(f"blocks.{layer}.hook_resid_mid", value)
    if after is not value:
        this.middles[layer] = after
    return after


def _visit_added(layer: int, this: Pass, value: Tensor) -> Tensor:
    after = this.tap(f"blocks.{layer}.hook_mlp_out", value)
    if layer in this.middles:
        this.added[layer] = after
    return after


def _leave_block(layer: int, this: Pass, value: Tensor) -> Tensor:
    stream = this.middles.pop(layer) + this.added.pop(layer) if layer in this.middles else value
    return this.tap(f"blocks.{layer}.hook_resid_post", stream)
