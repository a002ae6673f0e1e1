"""Convert trained members to models of TransformerLens."""

from anchorlab.interop.convert import to_transformer_lens
from anchorlab.interop.weights import transformer_lens_weights
