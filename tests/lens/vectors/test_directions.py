import pytest
import torch

from anchorlab.axes import TaskShape
from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import Directions, Record, look, ov, position_directions, qk, recorded_directions, token_directions
from anchorlab.models import DecoderSpec, FNNSpec, LSTMSpec, RecallSpec, VectorSpec
from anchorlab.training.ensemble import initialise
from tests.lens import hand_built
from tests.lens.hand_built import ANCHORS, HEAD_WIDTH, HEADS, LENGTH, VOCABULARY, induction_circuit, stacked

SHAPE = TaskShape("tokens", 6, 11, 11)
INPUTS = torch.randint(0, 11, (7, 6), generator=torch.Generator().manual_seed(0))
SEPARATE = DecoderSpec(layers=2, heads=3, width=8, head_width=4)
SPECS = {"separate": SEPARATE, "without layer norm": SEPARATE.replace(layer_norm=False), "merged": RecallSpec(width=8)}
OTHERS = {
    "without output map": SEPARATE.replace(heads=2, output_linear=False),
    "merged with factored values": RecallSpec(width=8, factored_values=True),
    "merged without scale": RecallSpec(width=8, scale_scores=False),
}


@pytest.fixture
def model(spec):
    return initialise(spec, SHAPE, [0, 1], dtype=torch.float64)


class TestHandBuilt:
    def test_each_token_asks_for_itself_in_an_induction_circuit(self):
        """Its key is made of the token brought there, which is its own where it stands alone."""
        model = stacked(induction_circuit())
        found = token_directions(model)
        assert torch.allclose(found.similarity[0, 1, 0], torch.eye(VOCABULARY), atol=1e-6)
        assert found.match()[0, 1].tolist() == pytest.approx([1, 0, 0])
        few = token_directions(model, torch.tensor([5, 2, 5]))
        same = torch.tensor([[1.0, 0, 1], [0, 1, 0], [1, 0, 1]])
        assert torch.allclose(few.similarity[0, 1, 0], same, atol=1e-6)

    def test_sequences_as_recorded(self, solvers):
        """Every query of the broadcasting head meets the key of one position alone, k after the anchor."""
        record = look(solvers, hand_built.INPUTS, ["blocks.*.attn.hook_q", "blocks.*.attn.hook_k"])
        found = recorded_directions(record)
        assert found.queries.shape == (2, 2, 6, HEADS, LENGTH, HEAD_WIDTH)
        for member, k in ((0, 1), (1, 2)):
            expected = torch.zeros(6, LENGTH, LENGTH)
            for row, anchor in enumerate(ANCHORS.tolist()):
                expected[row, :, anchor + k : anchor + k + 1] = 1
                expected[row, :, anchor:k] = 1  # with nothing k before it, a position hears of all so far
            assert torch.allclose(found.similarity[member, 1, :, 0], expected, atol=1e-5)
            assert torch.equal(found.nearest(0)[member, 1, :, 2], torch.ones(6))
        # the first layer reads positions alone
        same = position_directions(solvers).similarity[:, 0].unsqueeze(1).expand(2, 6, HEADS, LENGTH, LENGTH)
        assert torch.allclose(found.similarity[:, 0], same, atol=1e-6)

    def test_candidates_and_one_layer(self, solvers):
        sites = ["blocks.1.attn.hook_q", "blocks.1.attn.hook_k"]
        found = recorded_directions(look(solvers, hand_built.INPUTS, sites, candidates={"as it is": [], "again": []}))
        assert found.match(0).shape == (2, 1, 2, 6, HEADS)
        assert torch.allclose(found.match(0)[..., 2], torch.ones(2, 1, 2, 6), atol=1e-6)

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
class TestAgainstTheWeights:
    def test_first_layer_is_the_product_of_weights(self, model):
        weights = model.weights
        for found, rows in (
            (position_directions(model), weights["pos_embed.W_pos"]),
            (token_directions(model), weights["embed.W_E"]),
        ):
            if "blocks.0.attn.W_KQ" in weights:
                queries, keys = rows @ weights["blocks.0.attn.W_KQ"], rows
            else:
                queries, keys = (rows @ weights[f"blocks.0.attn.W_{kind}"] for kind in "QK")
            heads = found.queries.shape[2]
            for seen, expected in ((found.queries, queries), (found.keys, keys)):
                split = expected.view(2, rows.shape[1], heads, -1).transpose(1, 2)
                assert (seen[:, 0] - split).abs().max() < 1e-12

    def test_the_two_parts_sum_to_the_queries_of_any_sequence(self, model):
        seen = look(model, INPUTS, ["blocks.0.attn.hook_q"])["blocks.0.attn.hook_q"]
        of_position, of_token = (each(model).queries[:, 0] for each in (position_directions, token_directions))
        parts = of_position.unsqueeze(2) + of_token[:, :, INPUTS]  # [member head batch position head_width]
        assert (parts.permute(0, 2, 3, 1, 4) - seen).abs().max() < 1e-12

    def test_second_layer_is_what_such_a_model_records(self, model):
        """The same with the other embedding's weights set to zero."""
        site = "blocks.1.attn.hook_k"

        def without(name, inputs):
            zeroed = {**model.weights, name: torch.zeros_like(model.weights[name])}
            return look(model.with_weights(zeroed), inputs, [site])[site]

        positions = without("embed.W_E", INPUTS)[:, 0].transpose(1, 2)
        assert (position_directions(model).keys[:, 1] - positions).abs().max() < 1e-12
        tokens = without("pos_embed.W_pos", torch.arange(11).unsqueeze(1))[:, :, 0].transpose(1, 2)
        assert (token_directions(model).keys[:, 1] - tokens).abs().max() < 1e-12


def test_matches_by_hand():
    # The query of p is the key of p + 1, but for the last, which is between the first two.
    keys = torch.eye(3)
    queries = torch.stack([keys[1], keys[2], keys[0] + keys[1]])
    found = Directions(queries.expand(1, 1, 1, 3, 3), keys.expand(1, 1, 1, 3, 3))
    half = 0.5**0.5
    assert found.match(-1).item() == pytest.approx(1)
    assert found.nearest(-1).item() == 1
    assert found.match(1).item() == pytest.approx(half / 2)  # 0 for row 1, the root of a half for row 2
    assert found.match(2).item() == pytest.approx(half)
    assert found.match(0).item() == found.match(-2).item() == 0


@pytest.mark.parametrize(("k", "share"), [(-2, 0), (-1, 1 / 3), (0, 1 / 4), (1, 2 / 3), (2, 0), (3, 0)])
def test_the_nearest_key_by_hand(k, share):
    """Keys at 0, 90, 180 and 270 degrees; the queries of rows 0 to 3 are nearest to those of rows 1, 0, 1 and 3."""
    keys, queries = (
        torch.stack([radians.cos(), radians.sin()], dim=1)
        for radians in (torch.tensor(degrees).deg2rad() for degrees in ([0.0, 90, 180, 270], [85.0, 10, 100, 280]))
    )
    found = Directions(queries.expand(1, 1, 1, 4, 2), keys.expand(1, 1, 1, 4, 2)).nearest(k)
    assert found.item() == pytest.approx(share)


def test_heads_that_share_keys_are_compared_with_them():
    """Four query heads and two key heads of one direction each: queries 0 and 1 have key 0, 2 and 3 have key 1."""
    along, across = torch.eye(2)
    queries, keys = torch.stack([along, across, along, across]), torch.stack([along, across])
    name, axes = "blocks.0.attn.hook_{}", ("member", "batch", "position", "head", "head_width")
    arrays = {name.format(kind): value.expand(1, 1, 3, -1, 2) for kind, value in (("q", queries), ("k", keys))}
    found = recorded_directions(Record(arrays, dict.fromkeys(arrays, axes), torch.zeros(1, 3)))
    assert found.match(1).flatten().tolist() == [1, 0, 0, 1]


ROWS = Directions(torch.ones(1, 1, 1, 3, 2), torch.ones(1, 1, 1, 3, 2))
LSTM = initialise(LSTMSpec(layers=1, width=4), SHAPE, [0])
VECTORS = initialise(VectorSpec(layers=1, heads=2, width=8), TaskShape("vectors", 6, 3, 2), [0])
REFUSED = [
    *((lambda _, measure=measure, k=k: measure(k), rf"k: {k} is not a distance within 3 rows; give one of -2\.\.2")
      for measure in (ROWS.match, ROWS.nearest) for k in (3, -3)),
    *((lambda _, measure=measure: measure(LSTM), "model: is of type LSTM; give a transformer")
      for measure in (position_directions, token_directions)),
    (lambda _: position_directions(VECTORS), "model: has no position embedding"),
    (lambda _: token_directions(VECTORS), "model: reads vectors, not tokens"),
    (lambda solver: recorded_directions(look(solver, hand_built.INPUTS)),
     r"record: has no queries; record blocks\.\*\.attn\.hook_q and"),
    (lambda solver: recorded_directions(look(solver, hand_built.INPUTS, ["blocks.0.attn.hook_q"])),
     r"unknown site 'blocks\.0\.attn\.hook_k'"),
    *((lambda solver, few=few: token_directions(solver, torch.tensor(few, dtype=torch.int64)),
       r"tokens: are empty or outside 0\.\.11; give one known token or more") for few in ([VOCABULARY], [-1], [])),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "message"), REFUSED)
def test_what_has_no_directions_is_named(solver, ask, message):
    with pytest.raises((SiteError, SpecError), match=message):
        ask(solver)


@pytest.mark.parametrize("spec", (SPECS | OTHERS).values(), ids=SPECS | OTHERS)
class TestMatrices:
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
