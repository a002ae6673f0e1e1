"""Every model and every switch against the papers' equations in numpy, and the LSTM beside torch's own."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from anchorlab.errors import SpecError
from anchorlab.models import DecoderSpec, RecallSpec, VectorSpec
from anchorlab.models.attention import Attention
from anchorlab.models.block import Block
from anchorlab.models.embedding import TokenEmbedding, Unembedding
from anchorlab.models.feedforward import FeedForward
from anchorlab.models.lstm import LSTMLayer
from anchorlab.models.transformer import Transformer
from tests.models import reference
from tests.models.small_models import DECODER, FNN, LSTM, ONE_LAYER, RECALL, TOKENS, VECTOR, drawn, inputs_of, shape_of

SWITCHES = ("residual", "output_linear", "layer_norm", "feed_forward", "projection", "mask")


def compared(spec, equation):
    compared_module(drawn(spec), inputs_of(spec), equation)


def compared_module(model, inputs, equation):
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    expected = np.stack([equation(sequence, weights) for sequence in inputs.numpy()])
    torch.testing.assert_close(model(inputs).detach(), torch.from_numpy(expected), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("on", list(product([True, False], repeat=len(SWITCHES))))
def test_decoder_with_each_set_of_components(on):
    spec = DecoderSpec(layers=2, heads=2, width=12, head_width=6, **dict(zip(SWITCHES, on, strict=True)))
    named = {"layer_norms" if name == "layer_norm" else name: value for name, value in zip(SWITCHES, on, strict=True)}
    compared(spec, lambda x, w: reference.decoder(x, w, 2, 2, **named))


@pytest.mark.parametrize(
    "fields",
    [
        {"norm": "pre", "positions": "learned", "activation": "gelu", "biases": True, "tied": True},
        {"norm": "pre", "positions": "none", "activation": "swiglu", "biases": True},
        {"norm": "rms", "positions": "rotary", "activation": "swiglu"},
        {"norm": "rms", "positions": "learned", "activation": "gelu", "tied": True},
        {"norm": "post", "positions": "rotary", "activation": "swiglu", "biases": True},
        {"norm": "post", "positions": "none", "activation": "gelu", "tied": True},
    ],
)
def test_decoder_in_modern_forms(fields):
    choices = {name: fields[name] for name in ("norm", "positions", "activation")}
    compared(DECODER.replace(**fields), lambda x, w: reference.modern_decoder(x, w, 2, 2, **choices))


def test_decoder_with_one_head_of_its_own_width_and_with_shifted_values():
    compared(DECODER.replace(heads=1, head_width=5, layers=3), lambda x, w: reference.decoder(x, w, 3, 1))
    compared(DECODER.replace(layers=1, shift_values=1), lambda x, w: reference.decoder(x, w, 1, 2, shift=1))


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize(
    "kinds", [("linear", "linear"), ("uniform", "uniform"), ("softmax", "linear"), ("linear", "uniform")]
)
def test_decoder_without_softmax_and_with_equal_weights(kinds, mask):
    spec = DECODER.replace(attention=kinds[0] if kinds[0] == kinds[1] else kinds, mask=mask)
    compared(spec, lambda x, w: reference.decoder(x, w, 2, 2, kinds=kinds, mask=mask))


def test_values_shifted_back_and_off_the_end():
    spec = DECODER.replace(layers=1, mask=False, residual=False, layer_norm=False, feed_forward=False)
    values = {}
    for shift in (0, 2, -2, 9):
        model = drawn(spec.replace(shift_values=shift))
        model(inputs_of(spec), tap=lambda site, x, shift=shift: values.setdefault((site, shift), x))
    plain, ahead, back, off = (values["blocks.0.attn.hook_v", shift] for shift in (0, 2, -2, 9))
    assert torch.equal(ahead[:, :5], plain[:, 2:])
    assert not ahead[:, 5:].any()
    assert torch.equal(back[:, 2:], plain[:, :5])
    assert not back[:, :2].any()
    assert not off.any()


@pytest.mark.parametrize("kinds", list(product(["mlp", "linear", "none"], repeat=2)))
@pytest.mark.parametrize("factored", [False, True])
def test_recall_with_each_choice_of_feed_forward_layers(kinds, factored):
    spec = RecallSpec(width=10, feed_forward_1=kinds[0], feed_forward_2=kinds[1], factored_values=factored)
    compared(spec, lambda x, w: reference.recall(x, w, kinds))


@pytest.mark.parametrize("factored", [False, True])
def test_recall_as_printed_does_not_scale_its_scores(factored):
    spec = RecallSpec(width=10, feed_forward_2="linear", factored_values=factored, scale_scores=False)
    compared(spec, lambda x, w: reference.recall(x, w, ("mlp", "linear"), scaled=False))


@pytest.mark.parametrize("start", ["zero", "normal"])
@pytest.mark.parametrize("embeddings", ["orthonormal", "sphere"])
def test_one_layer(start, embeddings):
    compared(ONE_LAYER.replace(start=start, embeddings=embeddings), reference.one_layer)


def parallel(**norms):
    """Two blocks that no spec builds: both layers read what enters the block."""
    model = Transformer(
        TokenEmbedding(11, 8),
        None,
        [
            Block(
                f"blocks.{layer}", Attention(f"blocks.{layer}.attn", 8, 2, 4), FeedForward(f"blocks.{layer}.mlp", 8, 5),
                **norms, parallel=True,
            )
            for layer in range(2)
        ],
        None,
        Unembedding(8, 12, bias=False),
        draw=lambda module, generator: None,
    ).double()  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(generator=generator)
    return model


def test_parallel_layers_are_pythia_s_and_have_no_sum_between_them_to_normalise():
    model, inputs = parallel(norm_width=8, norm_first=True), inputs_of(DECODER)
    compared_module(model, inputs, lambda x, w: reference.pythia(x, w, 2, 2))
    visited = []
    model(inputs, tap=lambda site, value: (visited.append(site), value)[1])
    assert visited == list(model.sites)
    assert "blocks.0.hook_resid_mid" not in visited
    torch.testing.assert_close(model(inputs, torch.tensor([6, 2])), model(inputs)[:, [6, 2]], rtol=0, atol=1e-12)
    with pytest.raises(SpecError, match=r"^parallel: has no sum between its layers .*; put the norms first"):
        parallel(norm_width=8)


@pytest.mark.parametrize("feed_forward", [True, False])
@pytest.mark.parametrize("mask", [True, False])
def test_vectors_are_gpt2(feed_forward, mask):
    spec = VectorSpec(layers=2, heads=2, width=8, feed_forward=feed_forward, mask=mask)
    compared(spec, lambda x, w: reference.gpt2(x, w, 2, 2, feed_forward=feed_forward, mask=mask))


def started(spec):
    model = spec.build(shape_of(spec))
    model.initialise(torch.Generator().manual_seed(0))
    return dict(model.named_parameters())


@pytest.mark.parametrize(
    ("fields", "scale", "into_stream"),
    [
        ({}, 0.02, 0.02 / 4),  # the default scale
        ({"initial_scale": 0.3}, 0.3, 0.3 / math.sqrt(2 * 8)),
        ({"initial_scale": 0.3, "residual_scaling": False}, 0.3, 0.3),
    ],
)
def test_vectors_start_as_gpt2_does(fields, scale, into_stream):
    """Standard deviations by role, within four standard errors of a sample of so many weights."""
    spec = VectorSpec(layers=8, heads=2, width=64, **fields)
    for name, weight in started(spec).items():
        kind = name.rpartition(".")[2]
        if weight.ndim == 1:
            assert torch.equal(weight, torch.full_like(weight, float(kind == "w")))
        else:
            wanted = into_stream if kind in ("W_O", "W_out") else scale
            assert float(weight.detach().std()) == pytest.approx(wanted, rel=4 / math.sqrt(2 * weight.numel()))


def test_keys_like_queries_start_as_their_copies():
    alike, apart = (started(VectorSpec(layers=2, keys_like_queries=one)) for one in (True, False))
    for layer in range(2):
        names = [f"blocks.{layer}.attn.{name}" for name in ("W_Q", "W_K")]
        assert torch.equal(*(alike[name] for name in names))
        assert not torch.equal(*(apart[name] for name in names))


@pytest.mark.parametrize("changes", [{}, {"hidden": 5}, {"layers": 3, "hidden_factor": 2}])
def test_fnn(changes):
    spec = FNN.replace(**changes)
    compared(spec, lambda x, w: reference.fnn(x, w, spec.layers))


def test_the_six_stages_of_a_feed_forward_layer_are_sites():
    """Anchor functions, B.3 and Figure 22."""
    model, inputs, seen = drawn(DECODER), inputs_of(DECODER), {}
    model(inputs, tap=lambda site, value: seen.setdefault(site, value))
    weights = {name: value.detach() for name, value in model.named_parameters()}
    stages = ("ln1.hook_normalized", "mlp.hook_pre", "mlp.hook_post", "hook_mlp_out", "hook_resid_post",
              "ln2.hook_normalized")  # fmt: skip
    x, pre, post, out, joined, normed = (seen[f"blocks.0.{stage}"] for stage in stages)
    torch.testing.assert_close(pre, x @ weights["blocks.0.mlp.W_in"])
    torch.testing.assert_close(post, pre.clamp(min=0))
    torch.testing.assert_close(out, post @ weights["blocks.0.mlp.W_out"])
    torch.testing.assert_close(joined, x + out)
    torch.testing.assert_close(seen["blocks.1.hook_resid_pre"], normed)


UNSCALED = RECALL.replace(scale_scores=False)


LINEAR = DECODER.replace(attention="linear")


@pytest.mark.parametrize(
    "spec",
    [DECODER, LINEAR, RECALL, UNSCALED, VECTOR],
    ids=["decoder", "linear", "recall", "unscaled", "vectors"],
)
def test_scores_are_masked_and_scaled_queries_on_keys(spec):
    model, seen = drawn(spec), {}
    model(inputs_of(spec), tap=lambda site, value: seen.setdefault(site, value))
    q, k, scores = (seen[f"blocks.1.attn.hook_{name}"] for name in ("q", "k", "attn_scores"))
    expected = torch.einsum("bqhd,bkhd->bhqk", q, k) / (1 if spec is UNSCALED else q.shape[-1] ** 0.5)
    ahead = torch.ones(7, 7, dtype=torch.bool).triu(1)
    torch.testing.assert_close(scores[..., ~ahead], expected[..., ~ahead])
    assert (scores[..., ahead] == (0 if spec is LINEAR else -torch.inf)).all()
    assert torch.equal(seen["blocks.1.attn.hook_pattern"], scores) == (spec is LINEAR)


# The LSTM beside torch's own, on copied weights, and what of it is computed.
class Torchs(nn.Module):
    def __init__(self, ours, layers, width):
        super().__init__()
        self.embed = nn.Embedding(TOKENS.input_size, width)
        self.recur = nn.LSTM(width, width, layers, batch_first=True)
        self.out = nn.Linear(width, TOKENS.output_size)
        self.double()
        with torch.no_grad():
            for ours_name, name in self.names(layers).items():
                value = ours.get_parameter(ours_name)
                self.get_parameter(name).copy_(value.T if value.ndim == 2 and "W_E" not in ours_name else value)

    def forward(self, tokens):
        return self.out(self.recur(self.embed(tokens))[0])

    @staticmethod
    def names(layers):
        """Ours to torch's."""
        found = {"embed.W_E": "embed.weight", "unembed.W_U": "out.weight", "unembed.b_U": "out.bias"}
        for layer in range(layers):
            for short, long in (("W", "weight"), ("b", "bias")):
                for part in ("ih", "hh"):
                    found[f"layers.{layer}.{short}_{part}"] = f"recur.{long}_{part}_l{layer}"
        return found


@pytest.mark.parametrize("layers", [1, 3])
def test_it_is_torchs_lstm_forward_and_backward(layers):
    spec = LSTM.replace(layers=layers)
    ours, inputs = drawn(spec), inputs_of(spec)
    torchs = Torchs(ours, layers, spec.width)
    found, expected = ours(inputs), torchs(inputs)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    seed = torch.randn(found.shape, generator=torch.Generator().manual_seed(5), dtype=found.dtype)
    found.backward(seed)
    expected.backward(seed)
    assert set(Torchs.names(layers)) == set(dict(ours.named_parameters()))
    for name, theirs in Torchs.names(layers).items():
        slope, other = ours.get_parameter(name).grad, torchs.get_parameter(theirs).grad
        same = other.T if other.ndim == 2 and "W_E" not in name else other
        torch.testing.assert_close(slope, same, rtol=1e-10, atol=1e-12)


def test_an_lstm_computes_up_to_the_last_scored_position_and_members_with_their_own_to_the_end(monkeypatch):
    model, inputs = drawn(LSTM), inputs_of(LSTM)
    torch.testing.assert_close(model(inputs[:, :1]), model(inputs)[:, :1], rtol=0, atol=1e-12)
    weights, positions = dict(model.named_parameters()), torch.tensor([[1], [3]])

    def loss(weights, where):
        return functional_call(model, weights, (inputs, where)).square().sum()

    slopes = vmap(grad(loss), in_dims=(None, 0))(weights, positions)
    for member, where in enumerate(positions):
        for name, slope in grad(loss)(weights, where).items():
            torch.testing.assert_close(slopes[name][member], slope, rtol=1e-10, atol=1e-12)
    seen, forward = [], LSTMLayer.forward
    monkeypatch.setattr(LSTMLayer, "forward", lambda self, x: seen.append(len(x)) or forward(self, x))
    model(inputs, torch.tensor([1, 3]))
    assert seen == [4, 4]
    vmap(lambda at: model(inputs, at))(positions)
    assert set(seen[2:]) == {7}
