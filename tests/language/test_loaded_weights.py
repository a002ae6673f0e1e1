"""Files that hold other weights than their configuration says: never random weights in their place."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.language.pretrained import pretrained
from tests.language.tiny import CONTEXT, HEADS, HIDDEN, LAYERS, TOKENS, WIDTH, hugging_face, tokens

Weights = dict[str, Tensor]
ONE = torch.ones(1)


def saved(folder: Path, name: str, change: Callable[[Weights], Weights] = dict, **config: Any) -> Path:
    """The folder of a tiny model as transformers saves it, with changed weights and settings."""
    hugging_face(name).save_pretrained(folder)
    path = folder / "model.safetensors"
    weights = change(load_file(path))
    save_file({key: value.contiguous() for key, value in weights.items()}, path, metadata={"format": "pt"})
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(said | config))
    return folder


def without(part: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda weights: {name: value for name, value in weights.items() if part not in name}


def also(**others: Tensor) -> Callable[[Weights], Weights]:
    return lambda weights: weights | {name.replace("__", "."): value for name, value in others.items()}


@pytest.mark.parametrize(
    ("name", "change", "config", "said"),
    [
        ("llama", without("layers.1.mlp.down_proj"), {}, r"lacks model\.layers\.1\.mlp\.down_proj\.weight;"),
        ("llama", without("lm_head"), {}, r"lacks lm_head\.weight;"),
        ("llama", without("model.norm"), {}, r"lacks model\.norm\.weight;"),
        ("llama-tied-biased", without("embed_tokens"), {}, r"lacks lm_head\.weight, model\.embed_tokens\.weight;"),
        ("qwen3", without("q_norm"), {}, r"lacks model\.layers\.0\.self_attn\.q_norm\.weight, .*2\.self_attn"),
        ("llama-tied-biased", without("bias"), {}, r"lacks .*\.bias, .* and 18 more;"),
        ("gpt2", without("h.2.ln_1.bias"), {}, r"lacks transformer\.h\.2\.ln_1\.bias;"),
        ("gpt_neox-parallel", without("1.attention.dense.weight"), {}, r"lacks .*layers\.1\.attention\.dense\.weight;"),
        ("llama", lambda weights: {f"module.{name}": value for name, value in weights.items()}, {},
         r"lacks lm_head\.weight, .* and 27 more; .*module\.lm_head\.weight, .* and 27 more;"),
        ("llama", dict, {"num_hidden_layers": 4}, r"lacks model\.layers\.3\..* and 6 more;"),
        ("llama", dict, {"num_hidden_layers": 2}, r"does not read: model\.layers\.2\..* and 6 more;"),
        ("llama-tied-biased", dict, {"attention_bias": False}, r"does not read: model\..*\.k_proj\.bias"),
        ("llama", also(score__weight=torch.ones(2, 32)), {}, r"does not read: score\.weight;"),
        ("llama", dict, {"intermediate_size": 40},
         r"another shape .*down_proj\.weight \(32, 48\) in place of \(32, 40\)"),
        ("llama", dict, {"num_key_value_heads": 4}, r"has in another shape .*k_proj\.weight \(16, 32\) in place of"),
    ],
)  # fmt: skip
def test_weights_that_do_not_belong_together_are_named(tmp_path, name, change, config, said):
    with pytest.raises(SpecError, match=said) as raised:
        pretrained(saved(tmp_path, name, change, **config))
    assert str(raised.value).isprintable()


def test_an_index_that_leaves_a_weight_out_is_found(tmp_path):
    hugging_face("llama").save_pretrained(tmp_path, max_shard_size="20KB")
    index = tmp_path / "model.safetensors.index.json"
    said = json.loads(index.read_text())
    part = said["weight_map"]["model.layers.1.mlp.up_proj.weight"]
    weights = load_file(tmp_path / part)
    del weights["model.layers.1.mlp.up_proj.weight"], said["weight_map"]["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / part, metadata={"format": "pt"})
    index.write_text(json.dumps(said))
    with pytest.raises(SpecError, match=r"lacks model\.layers\.1\.mlp\.up_proj\.weight;"):
        pretrained(tmp_path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("llama-tied-biased",
         lambda weights: weights | {"lm_head.weight": weights["model.embed_tokens.weight"].clone()}),
        ("gpt2", lambda weights: {name.removeprefix("transformer."): value for name, value in weights.items()}),
        ("gpt2", also(transformer__h__0__attn__bias=torch.ones(4, 4), transformer__h__0__attn__masked_bias=ONE)),
        ("gpt_neox-parallel", also(gpt_neox__layers__0__attention__masked_bias=ONE)),
        ("llama", also(model__layers__0__self_attn__rotary_emb__inv_freq=torch.ones(4))),
    ],
)  # fmt: skip
def test_weights_under_a_second_name_and_old_constants_are_no_reason_to_refuse(tmp_path, name, change):
    opened = pretrained(saved(tmp_path, name, change))
    with torch.no_grad():
        assert torch.equal(opened(tokens()), hugging_face(name)(tokens(), use_cache=False).logits)


def test_a_head_with_its_own_copy_is_the_head(tmp_path):
    """The configuration ties the head to the embedding, but the file holds twice the embedding as the head."""
    double = saved(
        tmp_path,
        "llama-tied-biased",
        lambda weights: weights | {"lm_head.weight": 2 * weights["model.embed_tokens.weight"]},
    )
    with torch.no_grad():
        expected = 2 * hugging_face("llama-tied-biased")(tokens(), use_cache=False).logits
        torch.testing.assert_close(pretrained(double)(tokens()), expected, atol=1e-5, rtol=1e-5)


def test_a_whole_gguf_file_opens_with_the_logits_of_its_model(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", dict)
    with torch.no_grad():
        expected = hugging_face("llama")(tokens(), use_cache=False).logits
        torch.testing.assert_close(pretrained(tmp_path / "tiny.gguf")(tokens()), expected, atol=1e-5, rtol=1e-5)


def _with(name, size):
    return lambda tensors: tensors | {name: np.ones(size, dtype=np.float32)}


@pytest.mark.parametrize(
    ("change", "layers", "said"),
    [
        (without("blk.1.ffn_down"), 3, r"lacks model\.layers\.1\.mlp\.down_proj\.weight;"),
        (dict, 4, r"lacks model\.layers\.3\..* and 6 more;"),
        (dict, 2, r"does not read: blk\.2\..* and 6 more;"),
        (_with("blk.0.attn_q.bias", 32), 3, r"does not read: blk\.0\.attn_q\.bias;"),
        (_with("rope_freqs.weight", 4), 3, r"does not read: rope_freqs\.weight;"),
    ],
)
def test_tensors_of_a_gguf_file_that_do_not_belong_to_its_model_are_named(tmp_path, change, layers, said):
    write_gguf(tmp_path / "tiny.gguf", change, layers)
    with pytest.raises(SpecError, match=said):
        pretrained(tmp_path / "tiny.gguf")


gguf = pytest.importorskip("gguf")

_WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_PARTS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
}  # fmt: skip

Tensors = dict[str, np.ndarray[Any, Any]]


def write_gguf(path: Path, change: Callable[[Tensors], Tensors], layers: int = LAYERS) -> None:
    """Write the tiny Llama with changed tensors, and with a number of blocks in the metadata."""
    model = hugging_face("llama")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(model.config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(TOKENS)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{token}" for token in range(TOKENS)])
    writer.add_token_types([1] * TOKENS)
    writer.add_token_merges([])
    for name, value in change(
        {name_in_gguf(name): _stored(name, value) for name, value in model.state_dict().items()}
    ).items():
        writer.add_tensor(name, np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def name_in_gguf(theirs: str) -> str:
    if theirs in _WHOLE:
        return _WHOLE[theirs]
    _, _, layer, *part, kind = theirs.split(".")
    return f"blk.{layer}.{_PARTS['.'.join(part)]}.{kind}"


def _stored(name: str, value: Any) -> Any:
    """Return a weight as GGUF stores it: the rotated halves of each head are interleaved."""
    heads = {"q_proj": HEADS, "k_proj": 2}.get(name.split(".")[-2])
    weight = value.clone().numpy()
    if heads is None:
        return weight
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
