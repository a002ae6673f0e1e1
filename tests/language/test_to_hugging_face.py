"""Decoders against transformers' own GPT-2 and Llama with the same weights, there and back."""

import sys
from dataclasses import replace

import pytest
import torch

import anchorlab as al
from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.language import to_hugging_face, wrap
from anchorlab.lens import look
from anchorlab.models import DecoderSpec, LSTMSpec, ModelSpec
from anchorlab.training.ensemble import Ensemble, initialise

pytest.importorskip("transformers")

SHAPE = TaskShape("tokens", length=9, input_size=13, output_size=13)
SIZES = DecoderSpec(layers=3, heads=2, width=12, head_width=6, hidden=10)
GPT2 = SIZES.replace(norm="pre", activation="gelu")
LLAMA = SIZES.replace(norm="rms", positions="rotary", activation="swiglu")
FORMS = {
    "gpt2": GPT2.replace(biases=True), "gpt2, tied, without biases": GPT2.replace(tied=True), "llama": LLAMA,
    "llama, tied, biased, wide heads": LLAMA.replace(tied=True, biases=True, head_width=8),
}  # fmt: skip
INPUTS = torch.randint(13, (4, 9), generator=torch.Generator().manual_seed(0))


def drawn(spec: ModelSpec, shape: TaskShape = SHAPE) -> Ensemble:
    """Two members, norms and biases drawn too; matrices are large enough for uneven attention."""
    ensemble, generator = initialise(spec, shape, seeds=[0, 1]), torch.Generator().manual_seed(1)
    return ensemble.with_weights(
        {name: value + 0.3 * torch.randn(value.shape, generator=generator) for name, value in ensemble.weights.items()}
    )


@pytest.mark.parametrize("name", FORMS)
def test_logits_and_patterns_are_those_of_transformers_and_a_saved_copy_opens(name, tmp_path):
    ensemble = drawn(FORMS[name])
    record = look(ensemble, INPUTS, ["blocks.*.attn.hook_pattern", "blocks.*.hook_resid_pre"])
    theirs = to_hugging_face(ensemble, member=1)
    theirs.set_attn_implementation("eager")
    with torch.no_grad():
        expected = theirs(INPUTS, output_attentions=True, output_hidden_states=True)
    assert theirs.config.model_type == name.partition(",")[0]
    torch.testing.assert_close(record["output"][1], expected.logits, atol=1e-5, rtol=1e-5)
    for layer in range(3):
        pattern, stream = record[f"blocks.{layer}.attn.hook_pattern"][1], record[f"blocks.{layer}.hook_resid_pre"][1]
        assert float((pattern - 1 / 9).abs().max()) > 0.2
        torch.testing.assert_close(pattern, expected.attentions[layer], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(stream, expected.hidden_states[layer], atol=1e-5, rtol=1e-5)
    ensemble = drawn(FORMS[name])
    to_hugging_face(ensemble, member=0).save_pretrained(tmp_path)
    back = al.pretrained(tmp_path)
    torch.testing.assert_close(back(INPUTS), ensemble(INPUTS)[0], atol=1e-5, rtol=1e-5)
    weights = dict(back.named_parameters())
    for weight, value in ensemble.member_weights(0).items():
        assert torch.equal(weights[weight], value), weight


@pytest.mark.parametrize(("name", "close"), [("gpt2", 1e-12), ("llama", 1e-5)])  # angles of Llama are in float32
def test_a_copy_of_a_member_in_float64_is_in_float64(name, close):
    ensemble = drawn(FORMS[name])
    ensemble = ensemble.with_weights({key: value.double() + 1e-10 for key, value in ensemble.weights.items()})
    theirs = to_hugging_face(ensemble, member=1)
    with torch.no_grad():
        torch.testing.assert_close(theirs(INPUTS).logits, ensemble(INPUTS)[1], atol=close, rtol=0)
    weights = dict(wrap(theirs).named_parameters())
    for weight, value in ensemble.member_weights(1).items():
        assert torch.equal(weights[weight], value), weight


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_it_generates_the_likeliest_tokens(name):
    ensemble, tokens = drawn(FORMS[name]), INPUTS[:1, :3]
    generated = to_hugging_face(ensemble).generate(tokens, max_new_tokens=5, do_sample=False)
    for _ in range(5):
        tokens = torch.cat([tokens, ensemble(tokens)[0, :, -1].argmax(dim=-1, keepdim=True)], dim=1)
    assert torch.equal(generated, tokens)


def test_a_run_gives_the_member_of_a_seed(tmp_path):
    task = al.task("anchor/identity")
    recipe = al.Recipe(data=al.FixedSample(size=20), batch=10, duration=1)
    run = al.train(task, LLAMA, recipe, seeds=[4, 7], store=tmp_path)
    inputs = task.sample("test", 5, seed=0).inputs
    with torch.no_grad():
        theirs, ours = run.to_hugging_face(seed=7)(inputs).logits, run.model(seed=7)(inputs)
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(theirs, run.model(seed=4)(inputs), atol=1e-3)


def test_without_transformers_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(SpecError, match=r"transformers: is not installed; run pip install 'anchorlab\[language\]'"):
        to_hugging_face(drawn(LLAMA))


@pytest.mark.parametrize("spec", [GPT2.replace(biases=True), LLAMA])
def test_a_width_of_neurons_that_is_not_set_is_three_times_the_streams(spec):
    ensemble = drawn(spec.replace(hidden=None))
    copied = to_hugging_face(ensemble)
    with torch.no_grad():
        torch.testing.assert_close(copied(INPUTS).logits, look(ensemble, INPUTS)["output"][0], atol=1e-5, rtol=1e-5)


def copied(spec, shape=SHAPE, member=0):
    return lambda: to_hugging_face(drawn(spec, shape), member=member)


@pytest.mark.parametrize(
    ("copy", "words"),
    [
        (copied(SIZES), r"model.norm: is 'post', not 'pre' as in gpt2; use run.save_pretrained"),
        (copied(GPT2.replace(activation="swiglu")), "model.activation: is 'swiglu', not 'gelu' as in gpt2"),
        (copied(LLAMA.replace(norm="pre")), "model.norm: is 'pre', not 'rms' as in llama"),
        (copied(LLAMA.replace(mask=(True, True, False))), r"model.mask: is \(True, True, False\), not True"),
        (copied(GPT2.replace(shift_values=1)), "model.shift_values: is 1, not 0"),
        (copied(GPT2.replace(attention="linear")), "model.attention: is 'linear', and gpt2 has a softmax; use run"),
        (copied(GPT2.replace(head_width=5)), "model.head_width: is 5; in gpt2, heads x head_width is the width 12"),
        (copied(LSTMSpec(width=6)), "model: is not a decoder; train a DecoderSpec in the form of GPT-2 or Llama"),
        (copied(LLAMA, replace(SHAPE, output_size=3)), "reads 13 tokens and predicts 3"),
        (copied(LLAMA, member=2), "member: there is no member 2; choose one from 0 to 1"),
    ],
)
def test_other_models_are_refused_with_the_first_reason(copy, words):
    with pytest.raises(SpecError, match=words) as refused:
        copy()
    assert "\n" not in str(refused.value)
