"""Convert a trained member to a model of TransformerLens, of the version that is installed."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Union

from torch import nn

from anchorlab.errors import SpecError
from anchorlab.interop.weights import transformer_lens_weights
from anchorlab.lens.look.inputs import as_ensemble
from anchorlab.lens.vectors.attribution import blocks, transformer
from anchorlab.training.ensemble import Ensemble

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer
    from transformer_lens.model_bridge import TransformerBridge


def to_transformer_lens(
    model: Ensemble | nn.Module, member: int = 0
) -> Union["TransformerBridge", "HookedTransformer"]:
    """Copy one member into a model of TransformerLens, which computes the same values at the same hooks.

    This is a `TransformerBridge` with version 4 of the library, and a `HookedTransformer` with version 3. The copy
    keeps the weights' device and precision. A hook has the name of the site here, such as
    `blocks.0.attn.hook_pattern`, with these exceptions:

    - `hook_logits` is called `unembed.hook_out`;
    - the scores before the mask have no hook, and a bridge has none for the scores after it either;
    - a layer norm's `hook_normalized` is its value before weight and bias;
    - in a model without feed-forward layers, a `HookedTransformer` has no `hook_resid_mid`, which equals its
      `hook_resid_post`.

    Norms after the sums, unscaled scores and an unmasked pattern are kept. `transformer_lens_weights` lists what is
    filled in.

    Errors: `SpecError` for a part that is not converted (see `transformer_lens_weights`), for a member that does not
    exist, and if the library is not installed.
    """
    weights = transformer_lens_weights(model, member)
    layers = blocks(transformer(as_ensemble(model)))
    try:
        major = int(version("transformer-lens").partition(".")[0])
    except PackageNotFoundError as error:
        raise SpecError("transformer-lens", "is not installed", "run pip install 'anchorlab[interop]'") from error
    if major < 4:
        from anchorlab.interop.hooked_transformer import hooked_transformer

        return hooked_transformer(weights, layers)
    from anchorlab.interop.bridge import transformer_bridge

    return transformer_bridge(weights, layers)
