"""A `HookedTransformer` of TransformerLens 3 with the weights of a member."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformer_lens.components.bert_block import BertBlock

from anchorlab.errors import SpecError
from anchorlab.interop.weights import sizes
from anchorlab.models.block import Block


def hooked_transformer(weights: Mapping[str, Float[Tensor, "..."]], layers: Sequence[Block]) -> HookedTransformer:
    """Return a model with the weights of `transformer_lens_weights`, whose blocks have the form of `layers`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "HookedTransformer", DeprecationWarning)  # the version is known to be 3
        hooked = HookedTransformer(HookedTransformerConfig(**sizes(weights, layers), normalization_type=None))
    device = weights["embed.W_E"].device
    for layer, block in enumerate(layers):
        if block.ln1 is not None:
            hooked.blocks[layer] = BertBlock(hooked.cfg).to(device)
            hooked.blocks[layer].register_forward_pre_hook(_stream_alone, with_kwargs=True)
    hooked.setup()  # gives the replaced blocks' hooks their names
    hooked.load_state_dict({**dict(hooked.named_buffers()), **weights})
    return hooked


def _stream_alone(block: nn.Module, streams: tuple[Tensor, ...], options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Drop the arguments that a `HookedTransformer` passes to its blocks and a `BertBlock` does not accept."""
    if given := [name for name, value in options.items() if value is not None]:
        raise SpecError(
            given[0], "blocks with layer norms after the sums do not accept it", "pass whole sequences only"
        )
    return streams, {}
