"""Hooks on Hugging Face's modules that visit the sites outside attention."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from anchorlab.language.architectures import Architecture
from anchorlab.language.attention import Pass, current_pass
from anchorlab.models.sites import Site

_STREAM = ("batch", "position", "width")
_HIDDEN = ("batch", "position", "hidden")
_PER_PAIR = ("batch", "head", "query", "key")


def sites(architecture: Architecture, layers: int, grouped: bool, parallel: bool) -> list[Site]:
    """Return the sites of a model in the order of visits.

    Args:
        architecture: its table
        layers: the number of blocks
        grouped: whether several query heads share a key and value head
        parallel: whether both layers of a block read the stream that enters it
    """
    found = [Site("hook_embed", _STREAM)]
    found += [Site("hook_pos_embed", _STREAM)] if architecture.pos_embed else []
    for layer in range(layers):
        found += _block_sites(architecture, f"blocks.{layer}", grouped, parallel)
    return [*found, Site("ln_final.hook_normalized", _STREAM), Site("hook_logits", ("batch", "position", "output"))]


def install(architecture: Architecture, base: nn.Module, heads: int, parallel: bool) -> None:
    """Add the hooks to a base model; they do nothing outside a pass.

    The hooks hold only names and no tensors, so a copy of the module can share them.
    """
    _tap_output(base.get_submodule(architecture.embed), "hook_embed")
    if architecture.pos_embed is not None:
        base.get_submodule(architecture.pos_embed).register_forward_hook(_visit_positions)
    blocks = base.get_submodule(architecture.layers)
    assert isinstance(blocks, nn.ModuleList)
    for layer, block in enumerate(blocks):
        _install_block(architecture, block, layer, heads, parallel)
    _tap_output(base.get_submodule(architecture.final_norm), "ln_final.hook_normalized")


def _block_sites(architecture: Architecture, block: str, grouped: bool, parallel: bool) -> list[Site]:
    per_head = ("batch", "position", "head", "head_width")
    per_key_head = ("batch", "position", "key_value_head", "head_width") if grouped else per_head
    found: list[tuple[str, tuple[str, ...]]] = [("hook_resid_pre", _STREAM), ("ln1.hook_normalized", _STREAM)]
    found += [("attn.hook_q", per_head), ("attn.hook_k", per_key_head)]
    if architecture.rotary:
        found += [("attn.hook_rot_q", per_head), ("attn.hook_rot_k", per_key_head)]
    found += [("attn.hook_v", per_key_head), ("attn.hook_attn_scores_unmasked", _PER_PAIR)]
    found += [("attn.hook_attn_scores", _PER_PAIR), ("attn.hook_pattern", _PER_PAIR), ("attn.hook_z", per_head)]
    found += [("hook_attn_out", _STREAM)]
    found += [] if parallel else [("hook_resid_mid", _STREAM)]
    found += [("ln2.hook_normalized", _STREAM), ("mlp.hook_pre", _HIDDEN)]
    found += [] if architecture.gate is None else [("mlp.hook_pre_linear", _HIDDEN)]
    found += [("mlp.hook_post", _HIDDEN), ("hook_mlp_out", _STREAM), ("hook_resid_post", _STREAM)]
    return [Site(f"{block}.{name}", axes) for name, axes in found]


def _install_block(architecture: Architecture, block: nn.Module, layer: int, heads: int, parallel: bool) -> None:
    name = f"blocks.{layer}"

    def part(path: str) -> nn.Module:
        return block.get_submodule(path)

    block.register_forward_pre_hook(_enter_block(layer), with_kwargs=True)
    _tap_output(part(architecture.attention_norm), f"{name}.ln1.hook_normalized")
    if architecture.rotary:
        _tap_before_rotation(architecture, block, f"{name}.attn", heads)
    _tap_output(part(architecture.attention_added or architecture.attention_out), f"{name}.hook_attn_out")
    if not parallel:
        part(architecture.feed_forward_norm).register_forward_pre_hook(_visit_middle(layer))
    _tap_output(part(architecture.feed_forward_norm), f"{name}.ln2.hook_normalized")
    _tap_output(part(architecture.gate or architecture.feed_forward_in), f"{name}.mlp.hook_pre")
    if architecture.gate is not None:
        _tap_output(part(architecture.feed_forward_in), f"{name}.mlp.hook_pre_linear")
    part(architecture.feed_forward_out).register_forward_pre_hook(_visit_input(f"{name}.mlp.hook_post"))
    part(architecture.feed_forward_added or architecture.feed_forward_out).register_forward_hook(_visit_added(layer))
    block.register_forward_hook(_leave_block(layer))


def _tap_output(module: nn.Module, site: str, split: Callable[[Tensor], Tensor] | None = None) -> None:
    """Visit a module's output as a site; `split` views the last axis of the output as the site's last two axes."""

    def hook(_: nn.Module, inputs: Any, output: Tensor) -> Tensor | None:
        this = current_pass()
        if this is None:
            return None
        value = output if split is None else split(output)
        after = this.tap(site, value)
        if after is value:
            return None
        return after if split is None else after.flatten(-2)

    module.register_forward_hook(hook)


def _tap_before_rotation(architecture: Architecture, block: nn.Module, attention: str, heads: int) -> None:
    """Visit queries and keys at the outputs of their maps, before rotation; a fused map returns both, head by head."""
    if architecture.query is not None and architecture.key is not None:
        head_width = block.get_submodule(architecture.query).get_parameter("weight").shape[0] // heads

        def by_head(value: Tensor) -> Tensor:
            return torch.unflatten(value, -1, (-1, head_width))

        _tap_output(block.get_submodule(architecture.query), f"{attention}.hook_q", by_head)
        _tap_output(block.get_submodule(architecture.key), f"{attention}.hook_k", by_head)
        return
    assert architecture.fused is not None

    def hook(_: nn.Module, inputs: Any, output: Tensor) -> Tensor | None:
        this = current_pass()
        if this is None:
            return None
        query, key, value = torch.unflatten(output, -1, (heads, 3, -1)).unbind(-2)
        new_query, new_key = this.tap(f"{attention}.hook_q", query), this.tap(f"{attention}.hook_k", key)
        if new_query is query and new_key is key:
            return None
        return torch.stack([new_query, new_key, value.expand_as(new_query)], dim=-2).flatten(-3)

    block.get_submodule(architecture.fused[0]).register_forward_hook(hook)


def _visit_positions(_: nn.Module, inputs: Any, output: Tensor) -> Tensor | None:
    this = current_pass()
    if this is None:
        return None
    value = output.expand(this.batch, -1, -1)
    after = this.tap("hook_pos_embed", value)
    return None if after is value else after


def _enter_block(layer: int) -> Callable[..., Any]:
    site = f"blocks.{layer}.hook_resid_pre"

    def hook(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        this = current_pass()
        if this is None:
            return arguments, named
        by_name = not arguments
        stream = named["hidden_states"] if by_name else arguments[0]
        if this.entering is not None and this.entering[0] == layer:
            stream = this.entering[1]
        stream = this.tap(site, stream)
        if by_name:
            return arguments, {**named, "hidden_states": stream}
        return (stream, *arguments[1:]), named

    return hook


def _visit_middle(layer: int) -> Callable[..., Any]:
    """Visit the stream between attention and feed-forward layer, and store a changed stream in the pass.

    Hugging Face's module adds the unchanged stream at its residual connection: the change made here reaches only the
    feed-forward branch. Therefore the hook after the block repeats the sum with the stored stream.
    """
    site = f"blocks.{layer}.hook_resid_mid"

    def hook(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        this = current_pass()
        if this is None:
            return None
        after = this.tap(site, arguments[0])
        if after is arguments[0]:
            return None
        this.middles[layer] = after
        return (after, *arguments[1:])

    return hook


def _visit_input(site: str) -> Callable[..., Any]:
    def hook(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        this = current_pass()
        if this is None:
            return None
        after = this.tap(site, arguments[0])
        return None if after is arguments[0] else (after, *arguments[1:])

    return hook


def _visit_added(layer: int) -> Callable[..., Any]:
    site = f"blocks.{layer}.hook_mlp_out"

    def hook(_: nn.Module, inputs: Any, output: Tensor) -> Tensor | None:
        this = current_pass()
        if this is None:
            return None
        after = this.tap(site, output)
        if layer in this.middles:
            this.added[layer] = after
        return None if after is output else after

    return hook


def _leave_block(layer: int) -> Callable[..., Any]:
    site = f"blocks.{layer}.hook_resid_post"

    def hook(_: nn.Module, inputs: Any, output: Tensor) -> Tensor | None:
        this = current_pass()
        if this is None:
            return None
        stream = output if layer not in this.middles else _summed(this, layer)
        after = this.tap(site, stream)
        return None if after is output else after

    return hook


def _summed(this: Pass, layer: int) -> Tensor:
    return this.middles.pop(layer) + this.added.pop(layer)
