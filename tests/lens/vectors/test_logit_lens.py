import pytest
import torch
from torch.nn.functional import layer_norm

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.lens import logit_lens, look, unembed
from anchorlab.models import DecoderSpec, FNNSpec, RecallSpec, VectorSpec
from anchorlab.training.ensemble import initialise
from tests.lens.hand_built import PREDICTED, VOCABULARY, identity_sequences, identity_solver

TOKENS = TaskShape("tokens", 6, 11, 11)
GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randint(0, 11, (7, 6), generator=GENERATOR)
VECTORS = torch.randn(7, 6, 3, generator=GENERATOR, dtype=torch.float64)


def drawn(spec, shape=TOKENS):
    """Two members none of whose biases and norms are idle."""
    model = initialise(spec, shape, [0, 1], dtype=torch.float64)
    noise = torch.Generator().manual_seed(1)
    weights = {
        name: value + torch.randn(value.shape, generator=noise, dtype=torch.float64) / 4
        for name, value in model.weights.items()
    }
    return model.with_weights(weights)


def test_the_solvers_prediction_and_nothing_else_is_read():
    """Its output map is the identity of one block of the stream."""
    width = PREDICTED.stop
    logits = unembed(identity_solver(), torch.eye(width).unsqueeze(0))
    expected = torch.zeros(width, VOCABULARY)
    expected[list(PREDICTED)] = torch.eye(VOCABULARY)
    assert torch.equal(logits, expected.unsqueeze(0))
    inputs, anchors = identity_sequences()
    record = look(identity_solver(), inputs, ["blocks.*.hook_resid_post"])
    said = unembed(identity_solver(), record["blocks.1.hook_resid_post"][:, :, -1])
    assert said.argmax(dim=-1)[0].tolist() == inputs.gather(1, anchors.unsqueeze(1) + 1)[:, 0].tolist()
    assert unembed(identity_solver(), record["blocks.0.hook_resid_post"]).abs().max() == 0


@pytest.mark.parametrize(
    ("spec", "site"),
    [
        (DecoderSpec(layers=2, heads=2, width=8, head_width=4), "blocks.1.ln2.hook_normalized"),
        (DecoderSpec(layers=2, heads=2, width=8, head_width=4, layer_norm=False), "blocks.1.hook_resid_post"),
        (DecoderSpec(layers=2, heads=2, width=11, head_width=4, projection=False), "blocks.1.ln2.hook_normalized"),
        (RecallSpec(width=8), "blocks.1.hook_resid_post"),
    ],
    ids=["post-layer-norm", "no norm", "no projection", "recall"],
)
def test_the_last_stream_gives_the_models_own_output(spec, site):
    model = drawn(spec)
    record = look(model, INPUTS, [site])
    assert (unembed(model, record[site]) - record["output"]).abs().max() < 1e-12


def test_a_last_layer_norm_is_applied():
    model = drawn(VectorSpec(layers=2, heads=2, width=8), TaskShape("vectors", 6, 3, 2))
    record = look(model, VECTORS, ["blocks.*.hook_resid_*"])
    assert (unembed(model, record["blocks.1.hook_resid_post"]) - record["output"]).abs().max() < 1e-12
    early = record["blocks.1.hook_resid_pre"]
    for member in range(2):
        weights = model.member_weights(member)
        normal = layer_norm(early[member], (8,), weights["ln_final.w"], weights["ln_final.b"])
        expected = normal @ weights["unembed.W_U"] + weights["unembed.b_U"]
        assert (unembed(model, early)[member] - expected).abs().max() < 1e-12
    assert (unembed(model, early) - logit_lens(model, VECTORS)[:, 1]).abs().max() < 1e-12


def test_one_vector_for_all_members():
    model = drawn(DecoderSpec(layers=1, heads=2, width=8, head_width=4))
    vector = torch.arange(8.0, dtype=torch.float64)
    expected = (
        torch.stack([vector @ model.weights["unembed.W_U"][at] for at in range(2)]) + model.weights["unembed.b_U"]
    )
    assert unembed(model, vector).shape == (2, 11)
    assert torch.allclose(unembed(model, vector), expected, atol=1e-12)


def test_mistakes():
    model = drawn(DecoderSpec(layers=1, heads=2, width=8, head_width=4))
    for shape in ((3, 8), (2, 4, 9), (9,)):
        with pytest.raises(SpecError, match=r"vectors: have shape .*, but 2 members have a stream of width 8"):
            unembed(model, torch.ones(shape, dtype=torch.float64))
    with pytest.raises(SpecError, match="model: is of type FNN; give a transformer"):
        unembed(initialise(FNNSpec(layers=1, width=4, hidden=4), TOKENS, [0]), torch.ones(4))
