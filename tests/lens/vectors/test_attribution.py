import pytest
import torch
from torch.nn.functional import layer_norm

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.lens import attribute, logit_lens, look
from anchorlab.models import DecoderSpec, LSTMSpec, OneLayerSpec, RecallSpec, VectorSpec
from anchorlab.training.ensemble import initialise
from tests.lens.hand_built import VOCABULARY, identity_sequences, identity_solver

TOKENS = TaskShape("tokens", 6, 11, 11)
GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randint(0, 11, (7, 6), generator=GENERATOR)
VECTORS = torch.randn(7, 6, 3, generator=GENERATOR, dtype=torch.float64)
ASKED = torch.randint(0, 11, (7, 2), generator=GENERATOR)
SHARED = torch.tensor([4, 1])
OWN = torch.tensor([[0, 5], [1, 2], [2, 5], [3, 0], [4, 5], [5, 1], [0, 2]])
SMALL = {"layers": 3, "heads": 2, "width": 8, "head_width": 4}


def drawn(spec, shape=TOKENS, members=2):
    """Members all of whose weights differ from their defaults, so that no norm or bias is idle."""
    ensemble = initialise(spec, shape, list(range(members)), dtype=torch.float64)
    noise = torch.Generator().manual_seed(1)
    drawn = {
        name: value + torch.randn(value.shape, generator=noise, dtype=torch.float64) / 4
        for name, value in ensemble.weights.items()
    }
    return ensemble.with_weights(drawn)


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
    model = drawn(spec)
    output = look(model, INPUTS, positions=positions)["output"]
    every = attribute(model, INPUTS, positions=positions, batch_size=3)
    assert every.contributions.shape == (2, len(every.components), 7, 2, 11)
    assert (every.contributions.sum(dim=1) - output).abs().max() < 1e-10
    assert (every.logits - output).abs().max() < 1e-10
    chosen = attribute(model, INPUTS, ASKED, positions)
    at_tokens = every.contributions.gather(-1, ASKED.expand(2, len(every.components), 7, 2).unsqueeze(-1)).squeeze(-1)
    assert (chosen.contributions - at_tokens).abs().max() < 1e-10
    assert (chosen.contributions.sum(dim=1) - chosen.logits).abs().max() < 1e-10


def test_pre_layer_norm_sums_too():
    model = drawn(VectorSpec(layers=2, heads=2, width=8), TaskShape("vectors", 6, 3, 2))
    every = attribute(model, VECTORS, positions=SHARED)
    assert (every.contributions.sum(dim=1) - look(model, VECTORS, positions=SHARED)["output"]).abs().max() < 1e-10
    assert every.components == (
        "hook_embed",
        "blocks.0.attn.head.0",
        "blocks.0.attn.head.1",
        "blocks.0.mlp",
        "blocks.1.attn.head.0",
        "blocks.1.attn.head.1",
        "blocks.1.mlp",
        "bias",
    )


def test_each_part_of_one_post_layer_norm_block():
    """The formula written out for one block, from the model's own streams."""
    model = drawn(DecoderSpec(layers=1, heads=2, width=8, head_width=4), members=1)
    found = attribute(model, INPUTS, positions=SHARED)
    weights = model.member_weights(0)
    record = look(model, INPUTS, record=["*"])
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
    INPUTS, ANCHORS = identity_sequences()
    KEYS = INPUTS.gather(1, (ANCHORS + 1).unsqueeze(1))

    def test_the_broadcasting_head_gives_the_answer_alone(self):
        found = attribute(identity_solver(), self.INPUTS, self.KEYS)
        expected = torch.zeros(len(found.components))
        expected[found.components.index("blocks.1.attn.head.0")] = 1
        assert torch.allclose(found.contributions[0, :, :, 0], expected.unsqueeze(1).expand(-1, 6), atol=1e-5)
        table = found.table
        assert table.columns == ["member", "component", "contribution"]
        assert table["component"].to_list() == list(found.components)
        assert table["contribution"].to_list() == pytest.approx(expected.tolist(), abs=1e-5)

    def test_lens_sees_the_answer_after_the_last_block_alone(self):
        depths = logit_lens(identity_solver(), self.INPUTS, torch.tensor([8]))
        assert depths.shape == (1, 3, 6, 1, VOCABULARY)
        assert depths[:, :2].abs().max() == 0
        assert depths[0, 2, :, 0].argmax(dim=-1).tolist() == self.KEYS[:, 0].tolist()


def test_lens_of_a_pre_layer_norm_model():
    model = drawn(VectorSpec(layers=2, heads=2, width=8), TaskShape("vectors", 6, 3, 2))
    depths = logit_lens(model, VECTORS)
    for member in range(2):
        weights = model.member_weights(member)
        first = VECTORS @ weights["embed.W_E"] + weights["embed.b_E"]
        first = layer_norm(first, (8,), weights["ln_final.w"], weights["ln_final.b"])
        expected = first @ weights["unembed.W_U"] + weights["unembed.b_U"]
        assert (depths[member, 0] - expected).abs().max() < 1e-10
    assert torch.equal(depths[:, -1], look(model, VECTORS)["output"])


def test_lens_of_a_post_layer_norm_model_reads_the_normalised_stream():
    model = drawn(DecoderSpec(**SMALL))
    site = "blocks.0.ln2.hook_normalized"
    stream = look(model, INPUTS, record=[site])[site]
    for member in range(2):
        weights = model.member_weights(member)
        expected = stream[member] @ weights["unembed.W_U"] + weights["unembed.b_U"]
        assert (logit_lens(model, INPUTS)[member, 1] - expected).abs().max() < 1e-10
        own = expected[torch.arange(7).unsqueeze(1), OWN]
        assert (logit_lens(model, INPUTS, OWN, batch_size=3)[member, 1] - own).abs().max() < 1e-10


def test_lens_without_projection_shows_the_stream():
    model = drawn(DecoderSpec(**{**SMALL, "width": 11}, projection=False))
    stream = look(model, INPUTS, record=["blocks.0.hook_resid_pre"])["blocks.0.hook_resid_pre"]
    assert (logit_lens(model, INPUTS)[:, 0] - stream).abs().max() < 1e-10


def test_mistakes():
    lstm = initialise(LSTMSpec(layers=1, width=4), TOKENS, [0])
    for read in (attribute, logit_lens):
        with pytest.raises(SpecError, match="model: is of type LSTM; give a transformer"):
            read(lstm, INPUTS)
    with pytest.raises(SpecError, match=r"tokens: have shape \(7, 2\)"):
        attribute(drawn(SPECS["post-layer-norm"]), INPUTS, ASKED)
    with pytest.raises(SpecError, match="tokens: contributions to all tokens make no table"):
        _ = attribute(identity_solver(), TestHandBuilt.INPUTS).table
