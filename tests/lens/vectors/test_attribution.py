"""Contributions to the logits, and the logits of vectors from any depth, by hand and against the models' outputs."""

import pytest
import torch
from torch.nn.functional import layer_norm

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.lens import attribute, logit_lens, look, unembed
from anchorlab.models import DecoderSpec, FNNSpec, LSTMSpec, OneLayerSpec, RecallSpec, VectorSpec
from anchorlab.training.ensemble import initialise
from tests.lens import hand_built
from tests.lens.hand_built import KEYS, drawn

TOKENS = TaskShape("tokens", 6, 11, 11)
GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randint(0, 11, (7, 6), generator=GENERATOR)
VECTORS = torch.randn(7, 6, 3, generator=GENERATOR, dtype=torch.float64)
ASKED = torch.randint(0, 11, (7, 2), generator=GENERATOR)
SHARED = torch.tensor([4, 1])
OWN = torch.tensor([[0, 5], [1, 2], [2, 5], [3, 0], [4, 5], [5, 1], [0, 2]])
SMALL = {"layers": 3, "heads": 2, "width": 8, "head_width": 4}


def members(spec, shape=TOKENS, count=2):
    """Members all of whose weights differ from their defaults."""
    return drawn(initialise(spec, shape, list(range(count)), dtype=torch.float64))


@pytest.fixture(scope="module")
def pre_norm():
    return members(VectorSpec(layers=2, heads=2, width=8), TaskShape("vectors", 6, 3, 2))


SPECS = {
    "post-layer-norm": DecoderSpec(**SMALL),
    "no residual path in one block": DecoderSpec(**SMALL, residual=(True, False, True)),
    "no output map of heads": DecoderSpec(**SMALL, output_linear=(True, False, True)),
    "some norms": DecoderSpec(**SMALL, layer_norm=(True, False, True)),
    "no feed-forward": DecoderSpec(**SMALL, feed_forward=(False, True, False)),
    "no projection": DecoderSpec(**{**SMALL, "width": 11}, projection=False),
    "merged attention": RecallSpec(width=8),
    "one layer, feed-forward beside attention": OneLayerSpec(width=16, embeddings="sphere", start="normal"),
    "factored values": RecallSpec(width=8, factored_values=True, feed_forward_1="linear", feed_forward_2="none"),
}


@pytest.mark.parametrize("positions", [SHARED, OWN], ids=["shared", "own"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_contributions_sum_to_the_logits(spec, positions):
    model = members(spec)
    output = look(model, INPUTS, positions=positions)["output"]
    every = attribute(model, INPUTS, positions=positions, batch_size=3)
    assert every.contributions.shape == (2, len(every.components), 7, 2, 11)
    assert (every.contributions.sum(dim=1) - output).abs().max() < 1e-10
    assert (every.logits - output).abs().max() < 1e-10
    chosen = attribute(model, INPUTS, ASKED, positions)
    at_tokens = every.contributions.gather(-1, ASKED.expand(2, len(every.components), 7, 2).unsqueeze(-1)).squeeze(-1)
    assert (chosen.contributions - at_tokens).abs().max() < 1e-10
    assert (chosen.contributions.sum(dim=1) - chosen.logits).abs().max() < 1e-10


def test_rows_name_the_text_the_position_and_the_token():
    found = attribute(members(DecoderSpec(**SMALL), count=2), INPUTS, ASKED, OWN)
    rows = found.by_token.filter(component="blocks.1.mlp", member=1).rows(named=True)
    assert [(row["text"], row["position"], row["token"]) for row in rows[:4]] == [
        (0, 0, str(int(INPUTS[0, 0]))), (0, 5, str(int(INPUTS[0, 5]))),
        (1, 1, str(int(INPUTS[1, 1]))), (1, 2, str(int(INPUTS[1, 2]))),
    ]  # fmt: skip
    of_component = found.contributions[1, found.components.index("blocks.1.mlp")].flatten().tolist()
    assert [row["contribution"] for row in rows] == of_component
    assert found.by_token.columns == ["member", "component", "text", "token", "position", "contribution"]


def test_pre_layer_norm_sums_too(pre_norm):
    every = attribute(pre_norm, VECTORS, positions=SHARED)
    assert (every.contributions.sum(dim=1) - look(pre_norm, VECTORS, positions=SHARED)["output"]).abs().max() < 1e-10
    of_blocks = (f"blocks.{layer}.{part}" for layer in (0, 1) for part in ("attn.head.0", "attn.head.1", "mlp"))
    assert every.components == ("hook_embed", *of_blocks, "bias")


def test_vectors_have_no_names(pre_norm):
    found = attribute(pre_norm, VECTORS, torch.zeros(7, 2, dtype=torch.int64), SHARED)
    with pytest.raises(SpecError, match="inputs: are vectors, which have no names"):
        _ = found.by_token


def test_each_part_of_one_post_layer_norm_block():
    """The formula written out for one block, from the model's own streams."""
    model = members(DecoderSpec(layers=1, heads=2, width=8, head_width=4), count=1)
    found = attribute(model, INPUTS, positions=SHARED)
    weights = model.member_weights(0)
    record = look(model, INPUTS, record=["**"])
    seen = {site: record[site][0][:, SHARED] for site in record if record.axes(site)[-1] == "width"}
    z = record["blocks.0.attn.hook_z"][0][:, SHARED]

    def through(x, norm, stream):
        """One norm with its scale frozen: what is left of x."""
        scale = ((seen[stream] - seen[stream].mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True).add(1e-5).sqrt()
        return (x - x.mean(-1, keepdim=True)) / scale * weights[f"blocks.0.{norm}.w"]

    def both(x):
        return through(through(x, "ln1", "blocks.0.hook_resid_mid"), "ln2", "blocks.0.hook_resid_post")

    head = z[:, :, 1] @ weights["blocks.0.attn.W_O"][4:]
    mlp = through(seen["blocks.0.hook_mlp_out"], "ln2", "blocks.0.hook_resid_post")
    bias = through(weights["blocks.0.ln1.b"].expand(7, 2, 8), "ln2", "blocks.0.hook_resid_post")
    expected = {
        "hook_embed": both(seen["hook_embed"]) @ weights["unembed.W_U"],
        "hook_pos_embed": both(seen["hook_pos_embed"]) @ weights["unembed.W_U"],
        "blocks.0.attn.head.1": both(head) @ weights["unembed.W_U"],
        "blocks.0.mlp": mlp @ weights["unembed.W_U"],
        "bias": (bias + weights["blocks.0.ln2.b"]) @ weights["unembed.W_U"] + weights["unembed.b_U"],
    }
    for name, value in expected.items():
        assert torch.allclose(found.contributions[0, found.components.index(name)], value, atol=1e-10), name


class TestHandBuilt:
    INPUTS = hand_built.INPUTS

    def test_the_broadcasting_head_gives_the_answer_alone(self, solver):
        found = attribute(solver, self.INPUTS, KEYS)
        expected = torch.zeros(len(found.components))
        expected[found.components.index("blocks.1.attn.head.0")] = 1
        assert torch.allclose(found.contributions[0, :, :, 0], expected.unsqueeze(1).expand(-1, 6), atol=1e-5)
        table = found.table
        assert table.columns == ["member", "component", "contribution"]
        assert table["component"].to_list() == list(found.components)
        assert table["contribution"].to_list() == pytest.approx(expected.tolist(), abs=1e-5)


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
    model = members(spec)
    record = look(model, INPUTS, [site])
    assert (unembed(model, record[site]) - record["output"]).abs().max() < 1e-12


def test_a_last_layer_norm_is_applied(pre_norm):
    record = look(pre_norm, VECTORS, ["blocks.*.hook_resid_*"])
    assert (unembed(pre_norm, record["blocks.1.hook_resid_post"]) - record["output"]).abs().max() < 1e-12
    early, depths = record["blocks.1.hook_resid_pre"], logit_lens(pre_norm, VECTORS)
    for member in range(2):
        weights = pre_norm.member_weights(member)
        first = VECTORS @ weights["embed.W_E"] + weights["embed.b_E"]
        for depth, stream in enumerate((first, early[member])):
            normal = layer_norm(stream, (8,), weights["ln_final.w"], weights["ln_final.b"])
            expected = normal @ weights["unembed.W_U"] + weights["unembed.b_U"]
            assert (depths[member, depth] - expected).abs().max() < 1e-10
        assert (unembed(pre_norm, early)[member] - expected).abs().max() < 1e-12
    assert torch.equal(depths[:, -1], record["output"])


def test_one_vector_for_all_members_and_a_lens_without_projection():
    model = members(DecoderSpec(layers=1, heads=2, width=8, head_width=4))
    vector = torch.arange(8.0, dtype=torch.float64)
    expected = vector @ model.weights["unembed.W_U"] + model.weights["unembed.b_U"]
    assert unembed(model, vector).shape == (2, 11)
    assert torch.allclose(unembed(model, vector), expected, atol=1e-12)
    assert torch.allclose(unembed(model, vector.float()), expected.float(), atol=1e-5)
    plain = members(SPECS["no projection"])
    stream = look(plain, INPUTS, record=["blocks.0.hook_resid_pre"])["blocks.0.hook_resid_pre"]
    assert (logit_lens(plain, INPUTS)[:, 0] - stream).abs().max() < 1e-10


def test_lens_of_a_post_layer_norm_model_reads_the_normalised_stream():
    model = members(DecoderSpec(**SMALL))
    site = "blocks.0.ln2.hook_normalized"
    stream = look(model, INPUTS, record=[site])[site]
    for member in range(2):
        weights = model.member_weights(member)
        expected = stream[member] @ weights["unembed.W_U"] + weights["unembed.b_U"]
        assert (logit_lens(model, INPUTS)[member, 1] - expected).abs().max() < 1e-10
        own = expected[torch.arange(7).unsqueeze(1), OWN]
        assert (logit_lens(model, INPUTS, OWN, batch_size=3)[member, 1] - own).abs().max() < 1e-10


LSTM = initialise(LSTMSpec(layers=1, width=4), TOKENS, [0])
POST = members(SPECS["post-layer-norm"])
REFUSED = [
    *((lambda _, read=read: read(LSTM, INPUTS), "model: is of type LSTM; give a transformer")
      for read in (attribute, logit_lens)),
    (lambda _: unembed(initialise(FNNSpec(layers=1, width=4, hidden=4), TOKENS, [0]), torch.ones(4)),
     "model: is of type FNN; give a transformer"),
    (lambda _: attribute(POST, INPUTS, ASKED), r"tokens: have shape \(7, 2\)"),
    *((lambda _, by=by: attribute(POST, INPUTS, ASKED[:, :1] * 0 + by),
       rf"^tokens: hold {by}, a token outside 0\.\.10; give tokens that the model predicts") for by in (11, -1)),
    (lambda solver: attribute(solver, hand_built.INPUTS).table, "tokens: contributions to all tokens make no table"),
    (lambda solver: attribute(solver, hand_built.INPUTS).by_token, "tokens: contributions to all tokens make no table"),
    *((lambda _, shape=shape: unembed(POST, torch.ones(shape, dtype=torch.float64)),
       r"vectors: have shape .*, but 2 members have a stream of width 8") for shape in ((3, 8), (2, 4, 9), (9,))),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "message"), REFUSED)
def test_what_does_not_fit_is_named(solver, ask, message):
    with pytest.raises(SpecError, match=message):
        ask(solver)
