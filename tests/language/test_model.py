"""Pretrained models against transformers' own: outputs, sites, interventions and edits, exactly, and half precision."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from anchorlab import language
from anchorlab import lens as of
from anchorlab.errors import SpecError
from anchorlab.language import wrap
from anchorlab.models import Remove, Truncate
from tests.language.spoken import PROMPTS, token, tokenizer
from tests.language.tiny import CONTEXT, HEADS, LAYERS, NAMES, TOKENS, WIDTH, drawn, hugging_face, tokens, transformers

OUTPUT_MAP = {"gpt2": "attn.c_proj", "gpt_neox": "attention.dense"}
HIDDEN_MAP = {"gpt2": "mlp.c_fc", "gpt_neox": "mlp.dense_h_to_4h"}


def _layers(model: nn.Module) -> nn.ModuleList:
    base = model.base_model
    return base.h if hasattr(base, "h") else base.layers


def _own(model: nn.Module) -> Any:
    """What transformers computes; a cache would change the layout of keys in memory, and so the last bits."""
    return model(tokens(), use_cache=False, output_attentions=True, output_hidden_states=True)


@pytest.mark.parametrize("name", NAMES)
def test_logits_patterns_streams_sites_and_queries_are_those_of_transformers(name):
    theirs = hugging_face(name)
    with torch.no_grad():
        expected = _own(theirs)
    model = wrap(theirs)
    record = of.look(model, tokens(), list(model.sites))
    assert set(record) == {*model.sites, "output"}
    assert torch.equal(record["output"][0], expected.logits) and torch.equal(record["hook_logits"], record["output"])
    for layer in range(LAYERS):
        assert torch.equal(record[f"blocks.{layer}.attn.hook_pattern"][0], expected.attentions[layer])
        assert torch.equal(record[f"blocks.{layer}.hook_resid_pre"][0], expected.hidden_states[layer])
    q, v = record["blocks.1.attn.hook_q"], record["blocks.1.attn.hook_v"]
    assert q.shape[3] == HEADS
    grouped = v[0].transpose(1, 2).repeat_interleave(HEADS // v.shape[3], dim=1)
    mixed = record["blocks.1.attn.hook_pattern"][0] @ grouped
    assert torch.equal(record["blocks.1.attn.hook_z"][0], mixed.transpose(1, 2))
    weights = dict(model.named_parameters())
    for letter, seen in (("Q", q), ("V", v)):
        bias = weights.get(f"blocks.1.attn.b_{letter}", torch.zeros(()))
        mapped = record["blocks.1.ln1.hook_normalized"][0] @ weights[f"blocks.1.attn.W_{letter}"] + bias
        torch.testing.assert_close(mapped, seen[0].flatten(2), atol=1e-5, rtol=1e-4)


def test_a_model_that_is_wrapped_again_visits_every_site_once():
    theirs, seen = hugging_face("llama"), []
    wrap(theirs)
    model = wrap(theirs)
    model(tokens(), tap=lambda site, value: seen.append(site) or value)
    assert seen == list(model.sites)


@pytest.mark.parametrize("kind", ["Llama", "Mistral", "Gemma", "Qwen2"])
@pytest.mark.parametrize("shape", [(1, 3), (2, 8), (2, 11), (3, 8), (4, 11), (8, 16)])
def test_one_key_value_head_for_all_gives_the_bits_of_transformers(kind, shape):
    """A product rounds by the layout of keys in memory, so that a copy for every head would differ in some shapes."""
    config = getattr(transformers, f"{kind}Config")(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=1,
        vocab_size=TOKENS, max_position_embeddings=CONTEXT, head_dim=8,
    )  # fmt: skip
    model = drawn(config)
    with torch.no_grad():
        expected = model(tokens(*shape), use_cache=False).logits
        assert torch.equal(wrap(model)(tokens(*shape)), expected)


@pytest.mark.parametrize("name", NAMES)
def test_heads_patterns_and_weights_changed_by_hand_give_what_transformers_does(name):
    # zeroing a head's mixture equals zeroing its rows of the output map in transformers' module
    by_hand, wrapped = hugging_face(name), wrap(hugging_face(name))
    zero = of.Intervention(site="blocks.1.attn.hook_z", rule="zero", where={"head": 2})
    record = of.look(wrapped, tokens(), interventions=[zero])
    edited = dict(wrapped.named_parameters())["blocks.1.attn.W_O"].detach().clone()
    edited.view(HEADS, -1, edited.shape[1])[2] = 0
    layer = _layers(by_hand)[1]
    out = layer.get_submodule(OUTPUT_MAP.get(name.partition("-")[0], "self_attn.o_proj"))
    with torch.no_grad():
        out.weight.copy_(edited if name == "gpt2" else edited.T)
        assert torch.equal(record["output"][0], _own(by_hand).logits)
    # uniform attention of every head of a layer equals queries of zero, which the eager attention turns uniform
    by_hand = hugging_face(name)
    attention = next(part for part in _layers(by_hand)[2].modules() if hasattr(part, "scaling"))
    attention.scaling = 0.0
    zero = of.Intervention(site="blocks.2.attn.hook_attn_scores_unmasked", rule="zero")
    record = of.look(wrapped, tokens(), interventions=[zero])
    with torch.no_grad():
        torch.testing.assert_close(record["output"][0], _own(by_hand).logits, atol=0, rtol=0)
    by_hand = hugging_face(name)
    weight = _layers(by_hand)[1].get_submodule(HIDDEN_MAP.get(name.partition("-")[0], "mlp.up_proj")).weight
    with torch.no_grad():
        left, singular, right = torch.linalg.svd(weight.T if name != "gpt2" else weight, full_matrices=False)
        kept = (left[:, :3] * singular[:3]) @ right[:3]
        weight.copy_(kept if name == "gpt2" else kept.T)
        expected = _own(by_hand).logits
    found = of.look(wrapped, tokens(), edits=[Truncate(weight="blocks.1.mlp.W_in", rank=3)])["output"][0]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gpt_neox-parallel"])
def test_a_change_of_the_middle_stream_reaches_the_residual_path(name):
    """Doubling the middle stream of the last block: transformers' parts, put together by hand, give the same."""
    parts, wrapped = hugging_face(name), wrap(hugging_face(name))
    sites = [f"blocks.{LAYERS - 1}.hook_resid_mid", f"blocks.{LAYERS - 1}.hook_resid_post"]
    untouched = of.look(wrapped, tokens(), sites)
    changed = of.look(wrapped, tokens(), sites, [of.Intervention(site=sites[0], rule="scale", operand=2.0)])
    layer = _layers(parts)[LAYERS - 1]
    norm = {"gpt2": "ln_2", "gemma3_text": "pre_feedforward_layernorm"}.get(name, "post_attention_layernorm")
    middle = 2 * untouched[sites[0]][0]
    with torch.no_grad():
        added = layer.mlp(layer.get_submodule(norm)(middle))
        added = layer.post_feedforward_layernorm(added) if name == "gemma3_text" else added
    assert torch.equal(changed[sites[1]][0], middle + added)
    assert not torch.equal(changed["output"], untouched["output"])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_change_of_each_site_is_what_the_model_goes_on_with(name):
    """A site set to zero everywhere changes the logits, except where softmax or a norm undoes the change."""
    model = wrap(hugging_face(name))
    for site in model.sites:
        if site.endswith("hook_embed") or ".1." in site or "." not in site:
            changed = of.look(model, tokens(), [site], [of.Intervention(site=site, rule="zero")])
            assert not bool(changed[site].any())
            assert not torch.equal(changed["output"][0], model(tokens()).detach()), site


def test_edits_of_fused_and_tied_maps_leave_the_rest():
    by_hand = hugging_face("gpt_neox-parallel")
    fused = _layers(by_hand)[0].attention.query_key_value
    width = fused.weight.shape[0] // (3 * HEADS)
    with torch.no_grad():
        for head in range(HEADS):  # each head holds its queries, keys and values in turn
            fused.weight[3 * width * head : 3 * width * head + width] = 0
        expected = _own(by_hand).logits
    model = wrap(hugging_face("gpt_neox-parallel"))
    found = of.look(model, tokens(), edits=[Remove(weight="blocks.0.attn.W_Q")])["output"][0]
    assert torch.equal(found, expected)
    model = wrap(hugging_face("llama-tied-biased"))
    record = of.look(model, tokens(), ["hook_embed"], edits=[Remove(weight="unembed.W_U")])
    assert bool(record["hook_embed"].any())
    assert not bool(record["output"].any())


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox-parallel", "llama", "gemma3_text"])
def test_a_pass_that_enters_at_a_block_continues_the_whole_one(name):
    model = wrap(hugging_face(name))
    stream = of.look(model, tokens(), ["blocks.2.hook_resid_pre"])["blocks.2.hook_resid_pre"][0]
    with torch.no_grad():
        assert torch.equal(model(tokens(), entering=(2, stream)), model(tokens()))


def test_positions_choose_rows_of_the_logits_and_padding_changes_nothing_before_it():
    model = wrap(hugging_face("llama"))
    with torch.no_grad():
        everywhere = model(tokens())
        own = torch.tensor([[3, 0], [10, 2], [5, 5]])
        torch.testing.assert_close(model(tokens(), torch.tensor([2, 7])), everywhere[:, [2, 7]])
        torch.testing.assert_close(
            model(tokens(), own), torch.stack([row[at] for row, at in zip(everywhere, own, strict=True)])
        )
    model = wrap(hugging_face("qwen2"))
    padded = torch.cat([tokens(), torch.zeros(3, 4, dtype=torch.int64)], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(model(padded)[:, : tokens().shape[1]], model(tokens()))


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox-parallel", "llama", "gemma"])
@pytest.mark.parametrize("site", ["blocks.*.attn.hook_z", "blocks.*.attn.hook_pattern"])
def test_mapped_sweeps_equal_single_interventions(name, site):
    model = wrap(hugging_face(name))
    targets = torch.arange(3).unsqueeze(1)
    zero = of.Intervention(site=site, rule="zero")
    mapped, single = (of.effects(model, tokens(), targets, zero, ("head",), mapped=way) for way in (True, False))
    torch.testing.assert_close(mapped.values, single.values, atol=1e-5, rtol=1e-4)
    assert float(single.change("logit").abs().min()) > 0


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gemma3_text"])
def test_contributions_of_all_components_add_up_to_the_logits(name):
    found = of.attribute(wrap(hugging_face(name)), tokens(), tokens()[:, :1])
    torch.testing.assert_close(found.contributions.sum(dim=1), found.logits, atol=1e-3, rtol=1e-4)
    assert len(found.components) == LAYERS * (HEADS + 1) + 2 + (name == "gpt2")


@pytest.mark.parametrize("name", NAMES)
def test_the_logit_lens_is_the_last_norm_and_the_output_map_of_transformers(name):
    model = hugging_face(name)
    base = model.base_model
    norm = next(getattr(base, one) for one in ("ln_f", "final_layer_norm", "norm") if hasattr(base, one))
    with torch.no_grad():
        streams = _own(model).hidden_states[:LAYERS]
        expected = torch.stack([model.get_output_embeddings()(norm(stream)) for stream in streams])
    found = of.logit_lens(wrap(model), tokens())
    torch.testing.assert_close(found[0, :LAYERS], expected, atol=1e-4, rtol=1e-4)


def test_the_logit_lens_of_a_large_stream_in_float16_is_finite():
    """300 (1, -1, 1, -1 ...) is normalised to 1, -1, 1, -1 ...; the square of 300 is infinite in float16."""
    model = wrap(hugging_face("llama", torch.float16))
    signs = torch.ones(WIDTH, dtype=torch.float16)
    signs[1::2] = -1
    expected = (signs.double() * model.ln_final.w.double()) @ model.unembed.W_U.double()
    torch.testing.assert_close(of.unembed(model, 300 * signs)[0].double(), expected, atol=0.02, rtol=0.01)


def test_circuits_of_grouped_heads_score_and_write_as_the_model_does():
    """Without positions' rotation, at position 0, q M k gives the score; a head that attends to itself adds x M."""
    model = wrap(hugging_face("llama"))
    record = of.look(
        model,
        tokens(),
        ["blocks.1.ln1.hook_normalized", "blocks.1.attn.hook_attn_scores_unmasked", "blocks.1.attn.hook_z"],
    )
    x = record["blocks.1.ln1.hook_normalized"][0, :, 0]
    scores = torch.einsum("b i, h i j, b j -> b h", x, of.qk(model).matrix[0, 1], x)
    expected = record["blocks.1.attn.hook_attn_scores_unmasked"][0, :, :, 0, 0]
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=1e-4)
    W_O = dict(model.named_parameters())["blocks.1.attn.W_O"].view(HEADS, -1, x.shape[-1])
    written = torch.einsum("b h i, h i w -> b h w", record["blocks.1.attn.hook_z"][0, :, 0], W_O)
    found = torch.einsum("b i, h i w -> b h w", x, of.ov(model).matrix[0, 1])
    torch.testing.assert_close(found, written, atol=1e-4, rtol=1e-4)


def test_a_copy_has_weights_of_its_own_and_gradients_reach_them():
    model = wrap(hugging_face("gpt_neox-sequential"))
    other = copy.deepcopy(model)
    with torch.no_grad():
        dict(other.named_parameters())["embed.W_E"].zero_()
        assert not torch.equal(model(tokens()), other(tokens()))
        assert torch.equal(model(tokens()), wrap(hugging_face("gpt_neox-sequential"))(tokens()))
    model = hugging_face("gpt2", torch.float64)
    with torch.no_grad():
        expected = _own(model).logits
        assert torch.equal(wrap(model)(tokens()), expected)
    model = wrap(hugging_face("llama"))
    model(tokens()).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model = hugging_face("llama")
    with torch.no_grad():
        expected = _own(model).logits
        assert torch.equal(_own(wrap(model).hugging_face).logits, expected)


@pytest.mark.parametrize(("name", "rounded"), [("llama", True), ("gpt_neox-parallel", True), ("gpt2", False)])
def test_attention_weights_are_rounded_to_float32_where_transformers_does(name, rounded):
    model = hugging_face(name, torch.float64)
    with torch.no_grad():
        expected = _own(model).attentions[1]
    pattern = of.look(wrap(model), tokens(), ["blocks.1.attn.hook_pattern"])["blocks.1.attn.hook_pattern"][0]
    assert torch.equal(pattern, expected) and pattern.dtype == torch.float64
    assert torch.equal(pattern, pattern.float().double()) == rounded


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model: model(torch.zeros(1, CONTEXT + 1).long()), f"have {CONTEXT + 1} tokens, and .* reads {CONTEXT}"),
        (lambda model: model(torch.full((1, 2), TOKENS)), f"outside 0..{TOKENS - 1}"),
        (lambda model: model(torch.full((1, 2), -1)), f"outside 0..{TOKENS - 1}"),
        (lambda model: model.words(tokens()[0]), "tokenizer"),
        (lambda model: model.to("cdua"), "^device: 'cdua' does not exist; use cpu or cuda$"),
        (lambda model: model.to(dtype=torch.float64, device=torch.device("cuda:99")), "^device: 'cuda:99' does not"),
        (lambda _: of.attribute(wrap(hugging_face("gemma3_text")), tokens()), "normalises what its layers add"),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(SpecError, match=words):
        call(wrap(hugging_face("llama")))


HALVES = (torch.bfloat16, torch.float16)
PATTERNS = "blocks.*.attn.hook_pattern"


@pytest.fixture(params=HALVES, ids=str)
def half(request: pytest.FixtureRequest) -> language.LanguageModel:
    return language.wrap(hugging_face("llama", request.param), tokenizer())


def _logits(half: language.LanguageModel, ids: torch.Tensor) -> torch.Tensor:
    """What transformers computes in half precision, exactly as float64."""
    with torch.no_grad():
        return half.hugging_face(ids, use_cache=False).logits.double()


def test_log_probabilities_next_words_and_losses_are_computed_in_float32(half):
    asked = language.Questions(half, PROMPTS)
    found = asked.answers()
    for place, prompt in enumerate(PROMPTS):
        p = _logits(half, torch.tensor([[0, *tokenizer()(prompt.text)["input_ids"]]]))[0, -1].log_softmax(-1)
        assert prompt.answer is not None
        assert found.right.dtype == torch.float32
        torch.testing.assert_close(found.right[place].double(), p[token(prompt.answer)], atol=2e-6, rtol=0)
    searched = language.search_truncations(asked, ["blocks.1.mlp.W_in"], [0.5], progress=False)
    assert bool(searched.loss.isfinite().all())
    controls = language.control_truncation(
        asked, Truncate(weight="blocks.1.mlp.W_in", rank=2), tokens(), 2, progress=False
    )
    assert bool(controls.random_gains.isfinite().all())
    ids = torch.tensor([[0, *tokenizer()("Madrid is")["input_ids"]]])
    words = language.next_words(half, "Madrid is", k=3)
    expected = _logits(half, ids)[0, -1].softmax(-1).topk(3)
    assert [value for _, value in words] == pytest.approx(expected.values.tolist(), abs=1e-6)
    p = _logits(half, tokens()).log_softmax(-1)
    losses = -p[:, :-1].gather(-1, tokens()[:, 1:, None])[..., 0]
    torch.testing.assert_close(language.text_losses(half, tokens()).double(), losses, atol=1e-5, rtol=1e-6)


def test_effects_contributions_and_detectors_are_computed_in_float32(half):
    targets, idle = (
        torch.arange(3).unsqueeze(1),
        of.Intervention(site="blocks.1.attn.hook_z", rule="scale", operand=1.0),
    )
    logits = _logits(half, tokens())[:, -1]
    p = logits.softmax(-1).gather(-1, targets).mean()
    found = of.effects(half, tokens(), targets, idle, mapped=False)
    torch.testing.assert_close(found.baseline[2, 0], p, atol=1e-7, rtol=1e-6)
    difference = (logits.gather(-1, targets) - logits.gather(-1, targets + 3)).mean()
    patched = of.patch(half, tokens(), tokens().flip(0), targets, targets + 3, site="blocks.1.attn.hook_z", over="head")
    torch.testing.assert_close(patched.clean[0], difference, atol=1e-6, rtol=1e-6)
    # rounding to half precision within the model is all that separates the sum from the logits
    found = of.attribute(half, tokens(), tokens()[:, :1])
    assert found.contributions.dtype == found.logits.dtype == torch.float32
    record = of.look(half, tokens(), ["hook_embed"])
    assert torch.equal(found.logits[0, :, 0], record["output"][0, :, -1].float().gather(-1, tokens()[:, :1])[:, 0])
    record = of.look(half, tokens(), PATTERNS, output=False)
    exact = [record[site][0].double() for site in record]
    found, expected = (of.detect(one)["value"].to_numpy() for one in (record, of.record_patterns(exact, tokens())))
    assert abs(found - expected).max() < 1e-6
    for name in ("shift", "uniform", "first_token", "fixed_position", "previous_token"):
        more = {"shift": (2,), "fixed_position": (3,)}.get(name, ())
        score = getattr(of.detectors, name)
        half = score(record["blocks.1.attn.hook_pattern"], *more)
        torch.testing.assert_close(half.double(), score(exact[1][None], *more), atol=1e-6, rtol=0)
