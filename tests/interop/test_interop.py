"""Members in TransformerLens: against that library's conventions written out in numpy, and its own passes."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.interop import to_transformer_lens, transformer_lens_weights
from anchorlab.lens import Intervention, look
from anchorlab.models import DecoderSpec, FNNSpec, OneLayerSpec, RecallSpec, VectorSpec
from anchorlab.models.attention import Attention
from anchorlab.models.block import Block, LayerNorm
from anchorlab.models.embedding import PositionEmbedding, TokenEmbedding, Unembedding
from anchorlab.models.feedforward import FeedForward
from anchorlab.models.transformer import Transformer
from anchorlab.training.ensemble import initialise

SHAPE = TaskShape("tokens", length=7, input_size=11, output_size=12)
INPUTS = torch.randint(11, (5, 7), generator=torch.Generator().manual_seed(0))
DECODER = DecoderSpec(layers=2, heads=3, width=12, head_width=5, hidden=9)
PLAIN = DECODER.replace(layer_norm=False)
RECALL = RecallSpec(width=8)
SPECS = {
    "post-norm": DECODER,
    "post-norm-without-mask": DECODER.replace(mask=False),
    "norm-in-one-block": DECODER.replace(layer_norm=(False, True)),
    "plain": PLAIN,
    "without-mask": PLAIN.replace(mask=False),
    "without-projection": PLAIN.replace(projection=False),
    "without-output-linear": PLAIN.replace(head_width=4, output_linear=False),
    "output-linear-in-one-block": PLAIN.replace(head_width=4, output_linear=(True, False)),
    "without-feed-forward": PLAIN.replace(feed_forward=False),
    "feed-forward-in-one-block": PLAIN.replace(feed_forward=(False, True)),
    "biases": DECODER.replace(biases=True),
    "everything-off": PLAIN.replace(
        head_width=4, output_linear=False, feed_forward=False, projection=False, mask=False
    ),
    "recall": RECALL,
    "recall-factored": RECALL.replace(factored_values=True),
    "recall-unscaled": RECALL.replace(scale_scores=False),
    "recall-linear": RECALL.replace(feed_forward_2="linear"),
    "recall-linear-wider-than-the-perceptron": RECALL.replace(feed_forward_1="linear", hidden=5),
    "recall-without-feed-forward": RECALL.replace(feed_forward_1="none", feed_forward_2="none"),
}


def drawn(spec, members=2, dtype=torch.float32):
    """Members whose layer norms and biases are drawn too, so that none hides at zero or one."""
    ensemble = initialise(spec, SHAPE, seeds=range(members), dtype=dtype)
    generator = torch.Generator().manual_seed(1)
    return ensemble.with_weights(
        {name: value + 0.1 * torch.randn(value.shape, generator=generator) for name, value in ensemble.weights.items()}
    )


# Members in TransformerLens's layout: against that library's conventions written out in numpy.
def normalised(x, w, b):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * w + b


def conventional(inputs, W, causal, scaled=True):
    """The logits of TransformerLens's layout: what its documentation says about each weight, for all heads at once."""
    W = {name: value.double().numpy() for name, value in W.items()}
    x = W["embed.W_E"][inputs.numpy()] + W["pos_embed.W_pos"][: inputs.shape[1]]
    hidden = np.triu(np.full((x.shape[1], x.shape[1]), -np.inf), 1) if causal else 0.0
    for layer in range(2):
        w = {name.removeprefix(f"blocks.{layer}."): value for name, value in W.items()}
        q, k, v = (
            np.einsum("bpd,hde->bhpe", x, w[f"attn.W_{role}"]) + w[f"attn.b_{role}"][None, :, None] for role in "QKV"
        )
        scores = np.einsum("bhqe,bhke->bhqk", q, k) / (np.sqrt(q.shape[-1]) if scaled else 1.0) + hidden
        pattern = np.exp(scores - scores.max(axis=-1, keepdims=True))
        pattern /= pattern.sum(axis=-1, keepdims=True)
        x = x + np.einsum("bhqk,bhke,hed->bqd", pattern, v, w["attn.W_O"], optimize=True) + w["attn.b_O"]
        if "ln1.w" in w:
            x = normalised(x, w["ln1.w"], w["ln1.b"])
        if "mlp.W_in" in w:
            x = x + np.maximum(x @ w["mlp.W_in"] + w["mlp.b_in"], 0) @ w["mlp.W_out"] + w["mlp.b_out"]
        if "ln2.w" in w:
            x = normalised(x, w["ln2.w"], w["ln2.b"])
    return x @ W["unembed.W_U"] + W["unembed.b_U"]


def by_hand(*, norm_first=False, parallel=False, activation="relu", ln_final=False):
    """A transformer on tokens with biases everywhere, which no spec builds."""
    block = Block(
        "blocks.0", Attention("blocks.0.attn", 6, 2, 3, biases=True),
        FeedForward("blocks.0.mlp", 6, 5, activation, biases=True), norm_width=6 if norm_first else None,
        norm_first=norm_first, parallel=parallel,
    )  # fmt: skip
    module = Transformer(
        TokenEmbedding(11, 6),
        PositionEmbedding(7, 6),
        [block, Block("blocks.1", Attention("blocks.1.attn", 6, 2, 3, biases=True), None)],
        LayerNorm("ln_final", 6) if ln_final else None,
        Unembedding(6, 12, bias=True),
        draw=lambda module, generator: None,
    )
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(generator=generator)
    return module


class TestWeights:
    @pytest.mark.parametrize("name", SPECS)
    def test_say_the_same_in_the_library_s_conventions(self, name):
        spec = SPECS[name]
        ensemble = drawn(spec, dtype=torch.float64)
        ours = look(ensemble, INPUTS)["output"]
        for member in range(2):
            weights = transformer_lens_weights(ensemble, member)
            causal, scaled = getattr(spec, "mask", True), getattr(spec, "scale_scores", True)
            theirs = conventional(INPUTS, weights, causal, scaled)
            assert np.abs(theirs - ours[member].numpy()).max() < 1e-10

    def test_have_the_library_s_shapes_and_heads_their_own_columns(self):
        ensemble = drawn(DECODER)
        weights = transformer_lens_weights(ensemble)
        shapes = {name: tuple(value.shape) for name, value in weights.items() if not name.startswith("blocks.1")}
        assert shapes == {
            "embed.W_E": (11, 12), "pos_embed.W_pos": (7, 12), "unembed.W_U": (12, 12), "unembed.b_U": (12,),
            **{f"blocks.0.attn.W_{role}": (3, 12, 5) for role in "QKV"},
            **{f"blocks.0.attn.b_{role}": (3, 5) for role in "QKV"},
            "blocks.0.attn.W_O": (3, 5, 12), "blocks.0.attn.b_O": (12,),
            "blocks.0.mlp.W_in": (12, 9), "blocks.0.mlp.b_in": (9,),
            "blocks.0.mlp.W_out": (9, 12), "blocks.0.mlp.b_out": (12,),
            **{f"blocks.0.ln{norm}.{part}": (12,) for norm in (1, 2) for part in "wb"},
        }  # fmt: skip
        ours = ensemble.weights["blocks.1.attn.W_V"][1]
        theirs = transformer_lens_weights(ensemble, member=1)["blocks.1.attn.W_V"]
        for head in range(3):
            assert torch.equal(theirs[head], ours[:, 5 * head : 5 * head + 5])

    def test_of_a_module_made_by_hand_keep_its_biases(self):
        module = by_hand().double()
        with torch.no_grad():
            ours = module(INPUTS)
        theirs = conventional(INPUTS, transformer_lens_weights(module), causal=True)
        assert np.abs(theirs - ours.numpy()).max() < 1e-10


def scaled_in_one_block():
    module = RECALL.build(SHAPE)
    module.blocks[1].attn.scaled = False
    return module


VECTORS = initialise(VectorSpec(layers=1, heads=2, width=8), TaskShape("vectors", 7, 6, 3), seeds=[0])
REFUSED = [
    (drawn(PLAIN.replace(residual=(True, False))), r"^model\.residual: .*; "),
    (drawn(PLAIN.replace(shift_values=1)), r"^model\.shift_values: .*; "),
    (drawn(PLAIN.replace(attention=("uniform", "linear"))), r"^model\.attention: blocks\.1: TransformerLens always "),
    (drawn(PLAIN.replace(mask=(True, False))), r"^model\.mask: .*; "),
    (drawn(DECODER.replace(feed_forward=(True, False))), r"^model\.layer_norm: .*; "),
    (by_hand(norm_first=True), r"^model\.layer_norm: blocks\.0: "),
    (by_hand(ln_final=True), r"^model\.layer_norm: blocks\.0: "),
    (by_hand(parallel=True), r"^model\.parallel: blocks\.0: "),
    (by_hand(activation="gelu"), r"^model\.feed_forward: blocks\.0: "),
    (scaled_in_one_block(), r"^model\.scale_scores: blocks\.1: "),
    (drawn(OneLayerSpec(width=13)), r"^model\.pos_embed: is missing, .*; use anchorlab.look instead"),
    (VECTORS, r"^model: reads vectors"),
    (drawn(FNNSpec(layers=1, width=3)), r"^model: .*give a transformer"),
    (nn.Linear(2, 2), r"^model: .*give a transformer"),
]


@pytest.mark.parametrize(("model", "message"), REFUSED)
def test_what_has_no_counterpart_is_named(model, message):
    with pytest.raises(SpecError, match=message):
        transformer_lens_weights(model)


@pytest.mark.parametrize("member", [-1, 2])
def test_a_member_that_is_not_there_is_named(member):
    with pytest.raises(SpecError, match=f"^member: there is no member {member}; choose one from 0 to 1"):
        transformer_lens_weights(drawn(PLAIN), member)


# Members in TransformerLens: against the library's own passes.
def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformer_lens.config", None)
    monkeypatch.delitem(sys.modules, "anchorlab.interop.bridge", raising=False)
    message = r"^transformer-lens: version 4 is not installed; run pip install 'anchorlab\[interop\]'$"
    with pytest.raises(SpecError, match=message):
        to_transformer_lens(drawn(PLAIN))


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("transformer_lens")


@pytest.mark.usefixtures("library")
class TestLibrary:
    @pytest.mark.parametrize("name", SPECS)
    def test_has_the_same_values_at_the_same_names(self, name):
        ensemble = drawn(SPECS[name], dtype=torch.float64)
        ours = look(ensemble, INPUTS, record=["**"])
        with torch.no_grad():
            logits, cache = to_transformer_lens(ensemble, member=1).run_with_cache(INPUTS)
        assert logits.dtype == torch.float64

        names = {site: site for site in ours if not site.endswith(("_unmasked", "hook_attn_scores"))}
        names |= {"output": "unembed.hook_out", "hook_logits": "unembed.hook_out"}
        if name == "recall-linear-wider-than-the-perceptron":  # whose spare neurons are zero there
            for site in ("blocks.1.mlp.hook_pre", "blocks.1.mlp.hook_post"):
                del names[site]
                assert torch.allclose(cache[site][..., :5], ours[site][1], rtol=0, atol=1e-10)
                assert (cache[site][..., 5:] == 0).all()
        for site in [site for site in names if site.endswith("hook_normalized")]:  # before weight and bias there
            del names[site]
            w, b = (ensemble.weights[site.replace("hook_normalized", part)][1] for part in "wb")
            assert torch.allclose(cache[site] * w + b, ours[site][1], rtol=0, atol=1e-10), site
        for site, hook in names.items():
            assert cache[hook].shape == ours[site][1].shape, site
            assert torch.allclose(cache[hook], ours[site][1], rtol=0, atol=1e-10), site

    @pytest.mark.parametrize("spec", [DECODER, PLAIN], ids=["post-norm", "plain"])
    def test_intervenes_as_we_do(self, spec):
        ensemble, site = drawn(spec), "blocks.0.attn.hook_z"
        without = Intervention(site=site, where={"head": 1}, rule="zero")
        ours = look(ensemble, INPUTS, interventions=[without])["output"][0]

        def zero(value, hook):
            value[:, :, 1] = 0
            return value

        with torch.no_grad():
            theirs = to_transformer_lens(ensemble).run_with_hooks(INPUTS, fwd_hooks=[(site, zero)])
        assert theirs.dtype == torch.float32
        assert (theirs - ours).abs().max() < 1e-5
        assert (theirs - look(ensemble, INPUTS)["output"][0]).abs().max() > 1e-2

    @pytest.mark.parametrize("name", ["post-norm", "plain", "recall"])
    def test_is_opened_by_look_like_the_member(self, name):
        ensemble = drawn(SPECS[name], dtype=torch.float64)
        hooked = to_transformer_lens(ensemble, member=1)
        ours, theirs = look(ensemble, INPUTS, ["**"]), look(hooked, INPUTS, ["**"])
        shared = [site for site in theirs if site in ours and not site.endswith("hook_normalized")]
        assert {"output", "blocks.1.attn.hook_pattern", "blocks.0.hook_resid_mid"} < set(shared)
        for site in shared:
            assert theirs.axes(site) == ours.axes(site), site
            assert torch.allclose(theirs[site][0], ours[site][1], rtol=0, atol=1e-10), site

    @pytest.mark.parametrize("name", ["post-norm", "plain", "recall"])
    @pytest.mark.parametrize("site", ["hook_resid_mid", "hook_resid_pre", "attn.hook_pattern", "hook_mlp_out"])
    def test_is_changed_by_look_like_the_member(self, name, site):
        ensemble = drawn(SPECS[name], dtype=torch.float64)
        change = Intervention(site=f"blocks.0.{site}", rule="mean")
        ours = look(ensemble.select([1]), INPUTS, interventions=[change])["output"]
        theirs = look(to_transformer_lens(ensemble, member=1), INPUTS, interventions=[change])["output"]
        assert torch.allclose(theirs, ours, rtol=0, atol=1e-10)

    def test_gets_a_copy_and_leaves_the_random_state(self):
        ensemble = drawn(PLAIN)
        kept = {name: value.clone() for name, value in ensemble.weights.items()}
        before = torch.get_rng_state()
        hooked = to_transformer_lens(ensemble)
        assert torch.equal(torch.get_rng_state(), before)
        with torch.no_grad():
            for parameter in hooked.parameters():
                parameter.zero_()
        assert all(torch.equal(ensemble.weights[name], value) for name, value in kept.items())

    @pytest.mark.parametrize("name", ["post-norm", "recall"])
    def test_padding_is_as_if_it_were_absent(self, name):
        """Keys that a mask hides count as little as keys that are not there."""
        bridge = to_transformer_lens(drawn(SPECS[name].replace(**({"mask": False} if name == "post-norm" else {}))))
        shown = torch.ones_like(INPUTS)
        shown[:, 4:] = 0
        with torch.no_grad():
            padded, short = bridge(INPUTS, attention_mask=shown), bridge(INPUTS[:, :4])
        assert (padded[:, :4] - short).abs().max() < 1e-5

    def test_the_compatibility_mode_leaves_norms_after_sums_as_they_are(self):
        """Folding them into the layers that follow, as for norms before the layers, would change the logits."""
        bridge = to_transformer_lens(drawn(DECODER.replace(width=15)))  # of 12 outputs: the library tells axes by size
        with torch.no_grad():
            before = bridge(INPUTS).log_softmax(-1)  # the mode centres the logits
            bridge.enable_compatibility_mode()
            assert torch.allclose(bridge(INPUTS).log_softmax(-1), before, atol=1e-5)
