"""Mamba beside transformers' own, gated linear attention beside its parallel form, and initial weights."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from anchorlab.errors import SpecError
from anchorlab.lens import look
from anchorlab.models import DecoderSpec, GatedLinearAttentionSpec, MambaSpec
from anchorlab.training import initialise
from tests.models.small_models import GATED, MAMBA, TOKENS, drawn, inputs_of


@pytest.mark.parametrize("fields", [{}, {"layers": 1, "width": 40, "state": 5, "expand": 3, "convolution": 2}])
def test_mamba_is_that_of_transformers_on_copied_weights(fields):
    transformers = pytest.importorskip("transformers")
    spec = MAMBA.replace(**fields)
    ours, inputs = drawn(spec), inputs_of(spec)
    config = transformers.MambaConfig(
        vocab_size=TOKENS.output_size,
        hidden_size=spec.width,
        num_hidden_layers=spec.layers,
        state_size=spec.state,
        expand=spec.expand,
        conv_kernel=spec.convolution,
        time_step_rank=math.ceil(spec.width / 16),
        layer_norm_epsilon=1e-6,
        tie_word_embeddings=False,
    )
    theirs = transformers.MambaForCausalLM(config).double()
    names = {"backbone.norm_f.weight": "ln_final.w", "lm_head.weight": "unembed.W_U"}
    mixer = {
        "in_proj.weight": "W_in", "conv1d.weight": "W_conv", "conv1d.bias": "b_conv", "x_proj.weight": "W_x",
        "dt_proj.weight": "W_dt", "dt_proj.bias": "b_dt", "A_log": "A_log", "D": "D", "out_proj.weight": "W_out",
    }  # fmt: skip
    for layer in range(spec.layers):
        names[f"backbone.layers.{layer}.norm.weight"] = f"blocks.{layer}.ln1.w"
        names |= {f"backbone.layers.{layer}.mixer.{one}": f"blocks.{layer}.mixer.{own}" for one, own in mixer.items()}
    with torch.no_grad():
        for name, own in names.items():
            weight, value = theirs.get_parameter(name), ours.get_parameter(own)
            turned = weight.ndim == 2 and "A_log" not in name  # their maps hold a row for each output
            weight.copy_(value.T if turned else value.view(weight.shape))
        theirs.get_parameter("backbone.embeddings.weight")[: TOKENS.input_size].copy_(ours.embed.W_E)
        assert set(names) | {"backbone.embeddings.weight"} == {name for name, _ in theirs.named_parameters()}
        logits = theirs(input_ids=inputs).logits  # in float32, whatever the weights
        torch.testing.assert_close(ours(inputs).float(), logits, rtol=1e-5, atol=1e-6)


def parallel_form(weights: dict[str, np.ndarray], x: np.ndarray, heads: int) -> np.ndarray:
    """Gated linear attention of one sequence as weighted attention: `sum over s <= t of (q_t . b_t / b_s . k_s) v_s`.

    b_t is the product of all gates up to t (Yang et al. 2023, equation 4).
    """

    def split(y):
        return y.reshape(len(y), heads, -1).transpose(1, 0, 2)

    q, k, v = (split(x @ weights[f"W_{part}"]) for part in "QKV")
    gates = 1 / (1 + np.exp(-(x @ weights["W_low"] @ weights["W_decay"] + weights["b_decay"])))
    b = np.cumprod(split(gates ** (1 / 16)), axis=1)
    scores = np.einsum("htd,hsd->hts", q * b, k / b) / math.sqrt(q.shape[-1])
    out = np.tril(scores) @ v
    out = out / np.sqrt((out**2).mean(axis=-1, keepdims=True) + 1e-6) * weights["norm.w"]
    gate = x @ weights["W_gate"]
    return (out.transpose(1, 0, 2).reshape(len(x), -1) * gate / (1 + np.exp(-gate))) @ weights["W_O"]


@pytest.mark.parametrize("spec", [GATED, GATED.replace(key_width=5), GATED.replace(heads=1, feed_forward=False)])
def test_gated_linear_attention_is_its_parallel_form(spec):
    model, inputs = drawn(spec), inputs_of(spec)
    mixer, seen = model.blocks[1].mixer, {}
    model(inputs, tap=lambda site, value: seen.setdefault(site, value))
    weights = {name: value.detach().numpy() for name, value in mixer.named_parameters()}
    for read, written in zip(
        seen["blocks.1.ln1.hook_normalized"].detach().numpy(), seen["blocks.1.hook_mixer_out"], strict=True
    ):
        expected = torch.from_numpy(parallel_form(weights, read, spec.heads))
        torch.testing.assert_close(written.detach(), expected, rtol=1e-9, atol=1e-9)


def test_with_open_gates_the_state_is_the_sum_of_keys_times_values():
    """As in linear attention: nothing is forgotten, so that the state after t is the sum over all positions up to t."""
    model, inputs = drawn(GATED), inputs_of(GATED)
    seen = {}

    def tap(site, value):
        value = torch.ones_like(value) if site.endswith("hook_decay") else value
        return seen.setdefault(site, value)

    model(inputs, tap=tap)
    mixer, x = model.blocks[0].mixer, seen["blocks.0.ln1.hook_normalized"]
    k, v = ((x @ weight).view(*x.shape[:2], 2, -1) for weight in (mixer.W_K, mixer.W_V))
    expected = torch.einsum("bphk,bphv->bphkv", k, v).cumsum(dim=1)
    torch.testing.assert_close(seen["blocks.0.mixer.hook_state"], expected, rtol=1e-12, atol=1e-12)


def test_initial_steps_and_rates_are_those_of_the_authors_code():
    """Steps log-uniform from 0.001 to 0.1, whose median is 0.01, and rates 1 to 16 (S4D-real)."""
    ensemble = initialise(MambaSpec(width=256), TOKENS, seeds=[0])
    steps = functional.softplus(ensemble.weights["blocks.0.mixer.b_dt"][0])
    assert 0.001 <= float(steps.min()) < 0.0012 and 0.08 < float(steps.max()) <= 0.1001
    assert float(steps.median()) == pytest.approx(0.01, rel=0.25)
    rates = ensemble.weights["blocks.0.mixer.A_log"][0].exp().view(512, 16)
    torch.testing.assert_close(rates, torch.arange(1.0, 17).expand(512, 16))
    assert float(ensemble.weights["embed.W_E"].std()) == pytest.approx(0.02, rel=0.05)
    conv, out = (ensemble.weights[f"blocks.1.mixer.{name}"].abs().max() for name in ("W_conv", "W_out"))
    assert float(conv) == pytest.approx(0.5, rel=0.02)  # of four positions
    assert float(out) == pytest.approx(512**-0.5 / 2**0.5, rel=0.02)  # two layers write into the stream
    gated = initialise(GatedLinearAttentionSpec(width=256), TOKENS, seeds=[0]).weights
    for name in ("blocks.0.mixer.W_O", "blocks.1.mlp.W_out"):
        inputs = gated[name].shape[1]
        assert float(gated[name].abs().max()) == pytest.approx(inputs**-0.5 / 2, rel=0.02)  # four layers


def test_states_are_looked_at_and_a_change_of_a_gate_reaches_later_positions_alone():
    ensemble = initialise(MAMBA, TOKENS, seeds=[0, 1])
    record = look(ensemble, inputs_of(MAMBA), ["blocks.*.mixer.hook_state"])
    assert record["blocks.1.mixer.hook_state"].shape == (2, 4, 7, 12, 3)
    model, inputs = drawn(MAMBA), inputs_of(MAMBA)

    def forget(site, value):
        if site != "blocks.0.mixer.hook_decay":
            return value
        return torch.cat([value[:, :4], torch.zeros_like(value[:, 4:5]), value[:, 5:]], dim=1)

    plain, changed = model(inputs), model(inputs, tap=forget)
    assert torch.equal(plain[:, :4], changed[:, :4]) and not torch.allclose(plain[:, 4:], changed[:, 4:])


def test_what_does_not_fit_is_named():
    with pytest.raises(SpecError, match=r"^heads: 5 does not divide the width, 64; choose a divisor"):
        GatedLinearAttentionSpec(heads=5)
    with pytest.raises(SpecError, match=r"^hidden: is given without feed-forward layers; leave it out"):
        GatedLinearAttentionSpec(feed_forward=False, hidden=8)
    vectors = TOKENS.__class__("vectors", 7, 6, 3)
    for spec in (MambaSpec(), GatedLinearAttentionSpec(), DecoderSpec()):
        with pytest.raises(SpecError, match=r"^kind: a '.*' model reads tokens, but the task has vectors"):
            spec.build(vectors)
