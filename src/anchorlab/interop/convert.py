"""Convert a trained member to a model of TransformerLens 4."""

from typing import TYPE_CHECKING

from torch import nn

from anchorlab.errors import SpecError
from anchorlab.interop.weights import transformer_lens_weights
from anchorlab.lens.look.inputs import as_ensemble
from anchorlab.lens.vectors.attribution import blocks, transformer
from anchorlab.training.ensemble import Ensemble

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge


def to_transformer_lens(model: Ensemble | nn.Module, member: int = 0) -> "TransformerBridge":
    """Copy one member into a `TransformerBridge`, which computes the same values at the same hooks.

    The copy keeps the weights' device and precision. A hook has the name of the site here, such as
    `blocks.0.attn.hook_pattern`, with these exceptions:

    - `hook_logits` is called `unembed.hook_out`;
    - the scores have no hook, neither before the mask nor after it;
    - a layer norm's `hook_normalized` is its value before weight and bias.

    Norms after the sums, unscaled scores and an unmasked pattern are kept. `transformer_lens_weights` lists what is
    filled in.

    Errors: `SpecError` for a part that is not converted (see `transformer_lens_weights`), for a member that does not
    exist, and if version 4 of the library is not installed.
    """
    weights = transformer_lens_weights(model, member)
    layers = blocks(transformer(as_ensemble(model)))
    try:
        from anchorlab.interop.bridge import transformer_bridge
    except ImportError as error:
        raise SpecError(
            "transformer-lens", "version 4 is not installed", "run pip install 'anchorlab[interop]'"
        ) from error
    return transformer_bridge(weights, layers)
