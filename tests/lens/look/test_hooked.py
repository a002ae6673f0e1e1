"""Models of TransformerLens opened by `look`: against that library's own passes, and against Hugging Face's models."""

import copy

import pytest
import torch

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import Intervention, effects, look
from anchorlab.models import Remove, Truncate

library = pytest.importorskip("transformer_lens")

INPUTS = torch.randint(29, (5, 7), generator=torch.Generator().manual_seed(0))
NAMES = ["gpt2", "llama", "neox"]


def drawn(model):
    """The model with weights large enough that no value passes unnoticed."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.4 * torch.randn(weight.shape, generator=generator))
    return model


def hugging_face(name):
    transformers = pytest.importorskip("transformers")
    if name == "gpt2":
        sizes = {"n_layer": 2, "n_embd": 12, "n_head": 3, "n_positions": 16}
        kind, config = transformers.GPT2LMHeadModel, transformers.GPT2Config
    else:
        sizes = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 24}
        sizes |= {"max_position_embeddings": 32}
        if name == "llama":
            sizes |= {"num_key_value_heads": 2}
            kind, config = transformers.LlamaForCausalLM, transformers.LlamaConfig
        else:
            kind, config = transformers.GPTNeoXForCausalLM, transformers.GPTNeoXConfig
    return drawn(kind(config(**sizes, vocab_size=29, attn_implementation="eager")).eval())


def bridge(model):
    """A bridge to a copy, as building one changes the model."""
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    return build_bridge_from_module(copy.deepcopy(model), type(model).__name__, hf_config=model.config)


def opened(name):
    return bridge(hugging_face(name))


@pytest.mark.parametrize("name", NAMES)
class TestEveryBridge:
    def test_records_what_run_with_cache_does(self, name):
        model = opened(name)
        with torch.no_grad():
            logits, cache = model.run_with_cache(INPUTS)
        record = look(model, INPUTS, ["**"])
        assert set(record) - {"output"} == set(cache.keys())
        assert torch.equal(record["output"][0], logits)
        for site in cache.keys():  # noqa: SIM118 (not a dict)
            assert torch.equal(record[site][0], cache[site]), site

    def test_names_the_axes(self, name):
        record = look(opened(name), INPUTS, ["**"])
        per_head = ("member", "batch", "position", "head", "head_width")
        expected = {
            "hook_embed": ("member", "batch", "position", "width"),
            "blocks.1.attn.hook_q": per_head,
            "blocks.1.attn.hook_z": per_head,
            "blocks.1.attn.hook_rot_k": per_head,
            "blocks.1.attn.hook_pattern": ("member", "batch", "head", "query", "key"),
            "blocks.1.attn.hook_attn_scores": ("member", "batch", "head", "query", "key"),
            "blocks.1.attn.hook_result": ("member", "batch", "position", "head", "width"),
            "blocks.1.mlp.hook_post": ("member", "batch", "position", "hidden"),
            "blocks.1.hook_resid_post": ("member", "batch", "position", "width"),
            "unembed.hook_out": ("member", "batch", "position", "output"),
        }
        missing = {"blocks.1.attn.hook_rot_k", "blocks.1.attn.hook_result"}
        assert set(expected) - missing <= set(record)
        for site in set(expected) & set(record):
            assert record.axes(site) == expected[site], site

    def test_intervenes_as_run_with_hooks_does_at_every_site(self, name):
        model = opened(name)
        record = look(model, INPUTS, ["**"])
        for site in record:
            value = record[site]
            off_path = site.endswith("hook_resid_mid")
            unread = site == "rotary_emb.hook_in"
            later = site.startswith("blocks.1.")
            if site == "output" or later or off_path or unread or not value.is_floating_point():
                continue
            change = Intervention(site=site, rule="add", operand=0.5)
            ours = look(model, INPUTS, interventions=[change])["output"][0]
            with torch.no_grad():
                theirs = model.run_with_hooks(INPUTS, fwd_hooks=[(site, lambda value, hook: value + 0.5)])
            assert torch.equal(ours, theirs), site

    def test_sweeps_heads(self, name):
        model, targets = opened(name), INPUTS[:, -1:]
        zero = Intervention(site="blocks.*.attn.hook_z", rule="zero")
        found = effects(model, INPUTS, targets, zero, over=("head",))

        def without_head_2(value, hook):
            value = value.clone()
            value[:, :, 2] = 0
            return value

        with torch.no_grad():
            theirs = model.run_with_hooks(INPUTS, fwd_hooks=[("blocks.1.attn.hook_z", without_head_2)])[:, -1]
        right = theirs.gather(1, targets).mean().double()
        assert torch.allclose(found.values[found.metrics.index("logit"), 0, 1, 2], right, atol=1e-5)
        with pytest.raises(SpecError, match=r"^mapped: "):
            effects(model, INPUTS, targets, zero, over=("head",), mapped=True)

    def test_leaves_the_model_as_it_was(self, name):
        model = opened(name).eval()
        with torch.no_grad():
            before = model(INPUTS)
        model.train()
        weights = {key: value.clone() for key, value in model.state_dict().items()}
        look(model, INPUTS, ["**"], edits=[Remove(weight="blocks.0.mlp")])
        assert model.training
        with torch.no_grad():
            assert torch.equal(model.eval()(INPUTS), before)
        assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
        assert not any(point.fwd_hooks for point in model.hook_dict.values())

    def test_an_unknown_hook_is_one_line(self, name):
        with pytest.raises(SiteError, match=r"blocks\.0\.attn\.hook_pattern"):
            look(opened(name), INPUTS, ["blocks.0.attn.hook_patern"])


class TestBridge:
    @pytest.mark.parametrize("name", NAMES)
    def test_edits_weights_by_name(self, name):
        model = hugging_face(name)
        weight = "blocks.1.mlp.out.weight"
        ours = look(bridge(model), INPUTS, edits=[Truncate(weight=weight, rank=2)])["output"][0]
        places = {
            "gpt2": "transformer.h.1.mlp.c_proj.weight",
            "llama": "model.layers.1.mlp.down_proj.weight",
            "neox": "gpt_neox.layers.1.mlp.dense_4h_to_h.weight",
        }
        with torch.no_grad():
            plain = model(INPUTS).logits
            matrix = model.get_parameter(places[name])
            left, singular, right = torch.linalg.svd(matrix, full_matrices=False)
            matrix.copy_(left[:, :2] * singular[:2] @ right[:2])
            theirs = model(INPUTS).logits
        assert (ours - theirs).abs().max() < 1e-4
        assert not torch.allclose(ours, plain, atol=1e-3)

    @pytest.mark.parametrize("name", NAMES)
    def test_every_weight_counts(self, name):
        model = opened(name)
        plain = look(model, INPUTS)["output"]
        for weight in model.state_dict():
            if ".ln" in weight or weight.startswith(("ln", "unembed")) or weight.endswith("k.bias"):
                continue  # norms are not removed; a bias of keys adds the same to all scores of a query
            edited = look(model, INPUTS, edits=[Remove(weight=weight)])["output"]
            assert not torch.allclose(edited, plain, atol=1e-5), weight

    @pytest.mark.parametrize("name", ["gpt2", "llama"])
    def test_the_middle_of_a_block_is_recorded_and_not_changed(self, name):
        model = hugging_face(name)
        bridged, site = bridge(model), "blocks.0.hook_resid_mid"
        record = look(bridged, INPUTS, [site, "blocks.0.hook_resid_pre", "blocks.0.hook_attn_out"])
        middle = record["blocks.0.hook_resid_pre"] + record["blocks.0.hook_attn_out"]
        assert torch.allclose(record[site], middle, atol=1e-5)
        change = Intervention(site=site, rule="scale", operand=0.5)
        with pytest.raises(SiteError, match=r"residual path .*'blocks\.0\.ln2\.hook_in'") as error:
            look(bridged, INPUTS, interventions=[change])
        assert "\n" not in str(error.value)
        branch = look(bridged, INPUTS, interventions=[change.replace(site="blocks.0.ln2.hook_in")])["output"][0]

        # The whole stream: the block's attention and what enters it are both scaled.
        block = model.transformer.h[0] if name == "gpt2" else model.model.layers[0]
        norm = block.ln_2 if name == "gpt2" else block.post_attention_layernorm
        mlp, kept = block.mlp, []
        norm.register_forward_pre_hook(lambda module, given: (kept.append(given[0]), (0.5 * given[0],))[1])
        with torch.no_grad():
            assert (model(INPUTS).logits - branch).abs().max() < 1e-4
            mlp.register_forward_hook(lambda module, given, output: output - 0.5 * kept[-1])
            assert (model(INPUTS).logits - branch).abs().max() > 1e-2

    def test_a_value_that_nobody_reads_is_refused(self):
        change = Intervention(site="rotary_emb.hook_in", rule="zero")
        with pytest.raises(SiteError, match="does not read"):
            look(opened("llama"), INPUTS, interventions=[change])

    def test_the_library_s_own_model_shows_its_pattern_as_scores_which_may_not_be_changed(self):
        sizes = {"d_model": 12, "d_head": 4, "n_layers": 1, "n_ctx": 7, "n_heads": 3, "d_mlp": 9, "d_vocab": 29}
        model = drawn(library.TransformerBridge.boot_native(sizes))
        pattern, scores = "blocks.0.attn.hook_pattern", "blocks.0.attn.hook_attn_scores"
        record = look(model, INPUTS, [pattern, scores])
        assert torch.equal(record[pattern], record[scores])
        with pytest.raises(SiteError, match="does not read"):
            look(model, INPUTS, interventions=[Intervention(site=scores, rule="scale", operand=0.5)])
        look(model, INPUTS, interventions=[Intervention(site=pattern, rule="scale", operand=0.5)])
