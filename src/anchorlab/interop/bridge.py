"""A `TransformerBridge` around TransformerLens's own small model, with the weights of a member."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.architecture_adapter import ArchitectureAdapter
from transformer_lens.model_bridge.generalized_components import BlockBridge, NormalizationBridge
from transformer_lens.model_bridge.generalized_components.base import GeneralizedComponent
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module
from transformer_lens.model_bridge.sources.native import NativeAttention, NativeMLP, NativeModel
from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint

from anchorlab.interop.weights import scaled, sizes
from anchorlab.models.block import Block

_ALIASES = {"hook_resid_mid": "ln1.hook_in", "hook_resid_post": "ln2.hook_in"}  # the sums, before their norms


def transformer_bridge(weights: Mapping[str, Float[Tensor, "..."]], layers: Sequence[Block]) -> TransformerBridge:
    """Return a bridge with the weights of `transformer_lens_weights`, whose blocks have the form of `layers`."""
    embedding = weights["embed.W_E"]
    config = TransformerBridgeConfig(
        **sizes(weights, layers),
        normalization_type="LN" if any(block.ln1 is not None for block in layers) else None,
        positional_embedding_type="standard",
        architecture="TransformerLensNative",
    )
    with torch.random.fork_rng(devices=[]):  # the library draws weights, which are replaced below
        native = NativeModel(config)
        native.head = nn.Linear(config.d_model, config.d_vocab_out)  # the library's own has no bias
        native.ln_out = nn.Identity()
        native.layers = nn.ModuleList([_SumsThenNorms(config, block) for block in layers])
    bridge = build_bridge_from_module(
        native.to(embedding),
        "TransformerLensNative",
        tl_config=config,
        model_name="anchorlab",
        post_adapter_hook=_norms_after_sums,
    )
    bridge.load_state_dict(convert_tl_checkpoint(dict(weights), config), strict=True)
    return bridge.eval()


class _Attention(NativeAttention):  # type: ignore[misc] # the library is optional and not typed here
    def forward(self, *inputs: Any, **options: Any) -> tuple[Float[Tensor, "batch position width"]]:
        """Return the output alone: the bridge would pass a pattern on as `hook_attn_scores`."""
        alone: tuple[Tensor] = super().forward(*inputs, **options)[:1]
        return alone


class _SumsThenNorms(nn.Module):
    """A block whose norms, or identities in their places, follow the sums of the residual stream."""

    def __init__(self, config: TransformerBridgeConfig, block: Block) -> None:
        super().__init__()
        width = config.d_model
        self.attn = _Attention(config)
        if not scaled(block):
            self.attn.scale = 1.0
        self.ln1 = nn.Identity() if block.ln1 is None else nn.LayerNorm(width, eps=block.ln1.epsilon)
        if not config.attn_only:
            self.mlp = NativeMLP(config)
            self.ln2 = nn.Identity() if block.ln2 is None else nn.LayerNorm(width, eps=block.ln2.epsilon)

    def forward(
        self, hidden_states: Float[Tensor, "batch position width"], **options: Any
    ) -> tuple[Float[Tensor, "batch position width"]]:
        """Return the stream after the block."""
        (attended,) = self.attn(hidden_states, **options)
        stream = self.ln1(hidden_states + attended)
        return (self.ln2(stream + self.mlp(stream)) if hasattr(self, "mlp") else stream,)


class _Norm(NormalizationBridge):  # type: ignore[misc]
    def forward(self, hidden_states: Float[Tensor, "batch position width"], **options: Any) -> Tensor:
        """Return the normalised stream, or the stream itself in the place of a missing norm."""
        missing = isinstance(self.original_component, nn.Identity)
        normed: Tensor = (
            self.hook_out(self.hook_in(hidden_states)) if missing else super().forward(hidden_states, **options)
        )
        return normed


def _norms_after_sums(adapter: ArchitectureAdapter) -> None:
    """Put the norms of an adapter's blocks after the sums; in the library's own model they come before the layers."""
    theirs, config = adapter.component_mapping["blocks"], adapter.cfg
    norms = {name: _Norm(name, config) for name in ("ln1", "ln2") if name in theirs.submodules}
    blocks = BlockBridge(
        theirs.name, config, {**theirs.submodules, **norms}, _ALIASES, mlp_reads_resid_directly="ln2" in norms
    )
    if "ln2" not in norms:
        blocks.hook_aliases |= {"hook_resid_post": "hook_out"}
        del blocks.hook_aliases["hook_mlp_out"]
    adapter.component_mapping |= {"blocks": blocks, "ln_final": GeneralizedComponent("ln_out", config)}
    adapter.supports_fold_ln = adapter.supports_center_writing_weights = False
