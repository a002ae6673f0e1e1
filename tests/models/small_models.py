"""Small models of every kind and shape of switch, for the tests that hold for all of them."""

import torch
from torch import Tensor

from anchorlab import models
from anchorlab.axes import TaskShape
from anchorlab.models import AssociativeSpec, DecoderSpec, FNNSpec, LSTMSpec, Model, ModelSpec, SuperpositionSpec

TOKENS = TaskShape(inputs="tokens", length=7, input_size=11, output_size=12)
VECTORS = TaskShape(inputs="vectors", length=7, input_size=6, output_size=3)
SQUARE = TaskShape(inputs="vectors", length=7, input_size=6, output_size=6)
TIED = TaskShape(inputs="tokens", length=7, input_size=12, output_size=12)

DECODER = DecoderSpec(layers=2, heads=2, width=12, head_width=6)
RECALL = models.RecallSpec(width=10)
VECTOR = models.VectorSpec(layers=2, heads=2, width=8)
LSTM = LSTMSpec(layers=2, width=6)
MAMBA = models.MambaSpec(width=6, state=3, convolution=3)
GATED = models.GatedLinearAttentionSpec(width=6, heads=2, gate_rank=4)
FNN = FNNSpec(layers=2, width=3)
ASSOCIATIVE = AssociativeSpec(width=13)
ONE_LAYER = models.OneLayerSpec(width=13)

SMALL: dict[str, ModelSpec] = {
    "decoder": DECODER,
    "decoder-one-layer": DECODER.replace(layers=1),
    "decoder-narrow-heads": DECODER.replace(head_width=3, hidden=5),
    "decoder-no-residual": DECODER.replace(residual=False),
    "decoder-no-output-linear": DECODER.replace(output_linear=False),
    "decoder-no-norm": DECODER.replace(layer_norm=False),
    "decoder-no-feed-forward": DECODER.replace(feed_forward=False),
    "decoder-no-projection": DECODER.replace(projection=False),
    "decoder-no-mask": DECODER.replace(mask=False),
    "decoder-per-block": DECODER.replace(layer_norm=(True, False), feed_forward=(False, True), mask=(True, False)),
    "decoder-shifted-values": DECODER.replace(layers=1, shift_values=1),
    "decoder-none": DECODER.replace(
        residual=False, output_linear=False, layer_norm=False, feed_forward=False, projection=False, mask=False
    ),
    "decoder-linear": DECODER.replace(attention="linear"),
    "decoder-linear-no-mask": DECODER.replace(attention="linear", mask=False, positions="rotary", biases=True),
    "decoder-uniform": DECODER.replace(attention="uniform", biases=True),
    "decoder-uniform-linear": DECODER.replace(attention=("uniform", "linear"), shift_values=1),
    "decoder-gpt2": DECODER.replace(norm="pre", activation="gelu", biases=True),
    "decoder-llama": DECODER.replace(norm="rms", positions="rotary", activation="swiglu"),
    "decoder-tied": DECODER.replace(tied=True),
    "decoder-no-positions": DECODER.replace(norm="rms", positions="none", layer_norm=(True, False)),
    "decoder-rotary": DECODER.replace(positions="rotary", activation="swiglu", biases=True),
    "recall": RECALL,
    "recall-factored": RECALL.replace(factored_values=True),
    "recall-mlp-linear": RECALL.replace(feed_forward_2="linear"),
    "recall-linear-mlp": RECALL.replace(feed_forward_1="linear"),
    "recall-none": RECALL.replace(feed_forward_1="none", feed_forward_2="none"),
    "recall-unscaled": RECALL.replace(scale_scores=False),
    "recall-learned-positions": RECALL.replace(learned_positions=True),
    "one-layer": ONE_LAYER,
    "one-layer-normal": ONE_LAYER.replace(start="normal"),
    "one-layer-sphere": ONE_LAYER.replace(embeddings="sphere", width=6),
    "vectors": VECTOR,
    "vectors-wide-heads": VECTOR.replace(heads=1, head_width=5),
    "vectors-no-feed-forward": VECTOR.replace(feed_forward=False),
    "vectors-no-mask": VECTOR.replace(mask=False),
    "superposition": SuperpositionSpec(hidden=2),
    "superposition-linear": SuperpositionSpec(hidden=2, activation="none"),
    "lstm": LSTM,
    "lstm-one-layer": LSTM.replace(layers=1),
    "mamba": MAMBA,
    "mamba-one-layer": MAMBA.replace(layers=1, convolution=1),
    "gated-linear-attention": GATED,
    "gated-linear-attention-alone": GATED.replace(feed_forward=False, key_width=5, heads=1),
    "fnn": FNN,
    "fnn-narrow": FNN.replace(hidden=5),
    "associative": ASSOCIATIVE,
    "associative-orthonormal": ASSOCIATIVE.replace(embeddings="orthonormal"),
}


def shape_of(spec: ModelSpec) -> TaskShape:
    if getattr(spec, "tied", False):
        return TIED
    return {"vectors": VECTORS, "superposition": SQUARE}.get(spec.kind, TOKENS)


def drawn(spec: ModelSpec, seed: int = 0) -> Model:
    """A member in float64; trained weights that start as zeros or ones are drawn too, so that none hides there."""
    model = spec.build(shape_of(spec))
    assert isinstance(model, Model)
    model.initialise(torch.Generator().manual_seed(seed))
    model = model.double()
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad and (weight.ndim == 1 or spec.kind == "vectors" or not weight.any()):
                weight.add_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype) * 0.3)
    return model


def inputs_of(spec: ModelSpec, batch: int = 4, seed: int = 0) -> Tensor:
    shape, generator = shape_of(spec), torch.Generator().manual_seed(seed)
    if shape.inputs == "tokens":
        return torch.randint(shape.input_size, (batch, shape.length), generator=generator)
    return torch.randn(batch, shape.length, shape.input_size, generator=generator, dtype=torch.float64)
