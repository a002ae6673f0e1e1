"""Other libraries' models: a trained member in TransformerLens."""

from anchorlab.interop.weights import to_transformer_lens, transformer_lens_weights
