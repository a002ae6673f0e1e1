import pytest
import torch

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.lens import look, ov, qk
from anchorlab.models import DecoderSpec, FNNSpec, RecallSpec
from anchorlab.training.ensemble import initialise
from tests.lens.hand_built import HEADS, VOCABULARY

SHAPE = TaskShape("tokens", 6, 11, 11)
INPUTS = torch.randint(0, 11, (7, 6), generator=torch.Generator().manual_seed(0))
SPECS = {
    "separate": DecoderSpec(layers=2, heads=3, width=8, head_width=4),
    "without output map": DecoderSpec(layers=2, heads=2, width=8, head_width=4, output_linear=False),
    "merged": RecallSpec(width=8),
    "merged with factored values": RecallSpec(width=8, factored_values=True),
    "merged without scale": RecallSpec(width=8, scale_scores=False),
}


class TestHandBuilt:
    def test_what_is_attended_to_is_predicted(self, solvers):
        circuit = ov(solvers).between(solvers.weights["embed.W_E"], solvers.weights["unembed.W_U"])
        assert torch.equal(circuit.matrix[0, 1, 0], torch.eye(VOCABULARY))
        assert circuit.matrix[0, 1, 1:].abs().max() == 0
        assert circuit.matrix[0, 0].abs().max() == 0  # layer 0 brings tokens, and predicts nothing
        tokens = solvers.weights["embed.W_E"]
        shared = ov(solvers).between(rows=tokens[0])  # one matrix for all members
        assert torch.equal(shared.matrix, ov(solvers).between(rows=tokens).matrix)
        assert shared.matrix.shape == (2, 2, HEADS, VOCABULARY, tokens.shape[-1])
        with pytest.raises(SpecError, match="model: is of type FNN; give a transformer"):
            qk(initialise(FNNSpec(layers=1, width=4, hidden=4), SHAPE, [0]))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
class TestAgainstTheForwardPass:
    @pytest.fixture
    def model(self, spec):
        return initialise(spec, SHAPE, [0, 1], dtype=torch.float64)

    def test_scores(self, model):
        record = look(model, INPUTS, record=["blocks.*.hook_resid_pre", "blocks.*.attn.hook_attn_scores_unmasked"])
        matrix = qk(model).matrix
        for layer in range(2):
            x = record[f"blocks.{layer}.hook_resid_pre"]
            scores = torch.einsum("m b q w, m h w v, m b k v -> m b h q k", x, matrix[:, layer], x)
            seen = record[f"blocks.{layer}.attn.hook_attn_scores_unmasked"]
            assert (scores - seen).abs().max() < 1e-10

    def test_outputs(self, model):
        record = look(model, INPUTS, record=["blocks.**.hook_*", "blocks.*.attn.hook_pattern"])
        matrix = ov(model).matrix
        for layer in range(2):
            x, pattern = record[f"blocks.{layer}.hook_resid_pre"], record[f"blocks.{layer}.attn.hook_pattern"]
            outputs = torch.einsum("m b h q k, m b k w, m h w v -> m b q v", pattern, x, matrix[:, layer])
            assert (outputs - record[f"blocks.{layer}.hook_attn_out"]).abs().max() < 1e-10

    def test_singular_values(self, model):
        tokens, outputs = model.weights["embed.W_E"], model.weights["unembed.W_U"]
        for circuit in (qk(model), ov(model), ov(model).between(tokens, outputs)):
            values = circuit.singular_values
            expected = torch.linalg.svdvals(circuit.matrix)
            assert values.shape[-1] == min(circuit.left.shape[-1], *circuit.matrix.shape[-2:])
            assert (values - expected[..., : values.shape[-1]]).abs().max() < 1e-10
