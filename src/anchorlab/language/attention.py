"""Eager attention that replaces the implementation in transformers and shows every value to the current pass."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from anchorlab.errors import SpecError
from anchorlab.models.sites import Tap

ATTENTION = "anchorlab"
"""The name under which the attention and its mask are registered with transformers."""

# Arguments that change nothing here: the mask already holds the window, and no cache is read beyond the keys given.
_HARMLESS = frozenset(
    {
        "cache_position",
        "is_causal",
        "layer_past",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "past_key_values",
        "position_embeddings",
        "position_ids",
        "sliding_window",
        "use_cache",
    }
)


@dataclass
class Pass:
    """The state of one forward pass, shared by its hooks.

    Fields
        tap: called at every site
        batch: the number of sequences
        rotary: whether queries and keys reach the attention rotated
        float32_softmax: whether attention weights are computed in float32 at any precision
        entering: the first block to run and the stream that enters it; None: all blocks run
        middles: by block, the stream between attention and feed-forward layer, if the tap changed it
        added: by block, the output of the feed-forward layer, kept if the tap changed the stream in `middles`
    """

    tap: Tap
    batch: int
    rotary: bool
    float32_softmax: bool
    entering: tuple[int, Tensor] | None = None
    middles: dict[int, Tensor] = field(default_factory=dict)
    added: dict[int, Tensor] = field(default_factory=dict)


_CURRENT: ContextVar[Pass | None] = ContextVar("anchorlab_pass", default=None)


def current_pass() -> Pass | None:
    """Return this thread's current pass; None if Hugging Face's model is called directly."""
    return _CURRENT.get()


@contextmanager
def passing(this: Pass) -> Iterator[None]:
    """Make `this` the pass of all hooks within `with`."""
    token = _CURRENT.set(this)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def register() -> None:
    """Register the attention with transformers, and a causal mask, without which queries would see later tokens."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(ATTENTION, attend)
    AttentionMaskInterface.register(ATTENTION, eager_mask)


def attend(
    module: nn.Module,
    query: Float[Tensor, "batch head query head_width"],
    key: Float[Tensor, "batch key_value_head key head_width"],
    value: Float[Tensor, "batch key_value_head key head_width"],
    attention_mask: Float[Tensor, "..."] | None,
    scaling: float,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Float[Tensor, "batch query head head_width"], Float[Tensor, "batch head query key"]]:
    """Return each head's weighted sum of values and its pattern, exactly as transformers' eager attention does.

    Errors: `SpecError` for an argument that changes the scores in a way that this function does not compute.
    """
    refuse_unknown(others)
    this = current_pass()
    name = f"blocks.{module.layer_idx}.attn"

    def visit(hook: str, seen: Tensor) -> Tensor:
        return seen if this is None else this.tap(f"{name}.{hook}", seen)

    def by_position(hook: str, seen: Tensor) -> Tensor:
        """Visit a site with the axes `[batch position head ...]`; return the same tensor if the tap changed nothing."""
        if this is None:
            return seen
        before = seen.transpose(1, 2)
        after = visit(hook, before)
        return seen if after is before else after.transpose(1, 2)

    rotated = "rot_" if this is not None and this.rotary else ""
    query, key = by_position(f"hook_{rotated}q", query), by_position(f"hook_{rotated}k", key)
    value = by_position("hook_v", value)
    key, value = (_for_each_head(shared, query.shape[1]) for shared in (key, value))
    scores = visit("hook_attn_scores_unmasked", torch.matmul(query, key.transpose(2, 3)) * scaling)
    if attention_mask is not None:
        scores = scores + attention_mask
    scores = visit("hook_attn_scores", scores)
    in_float32 = this is None or this.float32_softmax
    pattern = functional.softmax(scores, dim=-1, dtype=torch.float32 if in_float32 else None).to(query.dtype)
    pattern = visit("hook_pattern", functional.dropout(pattern, p=dropout, training=module.training))
    mixed = visit("hook_z", torch.matmul(pattern, value).transpose(1, 2))
    return mixed.contiguous(), pattern


def _for_each_head(
    shared: Float[Tensor, "batch key_value_head key head_width"], heads: int
) -> Float[Tensor, "batch head key head_width"]:
    """Return the keys or values of each query head.

    As in transformers, a single key-value head is expanded as a view, because rounding depends on the memory layout.
    """
    batch, groups, *rest = shared.shape
    return shared.unsqueeze(2).expand(-1, -1, heads // groups, -1, -1).reshape(batch, heads, *rest)


def refuse_unknown(others: Mapping[str, Any]) -> None:
    """Raise `SpecError` for an attention argument that is not supported, such as a soft cap or sinks."""
    for argument, given in others.items():
        if argument not in _HARMLESS and given is not None and given is not False:
            problem = f"its attention takes {argument!r}, which the sites would not show"
            raise SpecError("model", problem, "open a model without it")
