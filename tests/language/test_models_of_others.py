"""A model folder that somebody sent: its code is never run, pickles are never read, and nothing beside it is opened.

Files that hold other weights than their configuration says never leave random weights in their place.
"""

import builtins
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import anchorlab
from anchorlab.cli import main
from anchorlab.errors import SpecError
from anchorlab.language import checkpoints
from anchorlab.language.pretrained import pretrained
from anchorlab.language.tokenizer import open_tokenizer
from tests.language.gguf_names import name_in_gguf
from tests.language.tiny import CONTEXT, HEADS, HIDDEN, LAYERS, TOKENS, WIDTH, hugging_face, tokens


@pytest.fixture
def folder(tmp_path):
    """A model as transformers saves it."""
    hugging_face("llama").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


OPENED = re.compile(r"\b(?:from_pretrained|from_config|get_kernel)\(")

EVIL = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
Path({mark!r}).write_text("ran")
class Config(LlamaConfig):
    model_type = {kind!r}
class Model(LlamaForCausalLM):
    config_class = Config
class Tokenizer(PreTrainedTokenizerFast):
    pass
"""


@pytest.fixture(params=["evil", "llama"])
def evil(request, folder, tmp_path, monkeypatch):
    """A folder whose model is of a kind of its own, or of a known one, and whose code would write a file."""
    mark = tmp_path / "mark"
    (folder / "evil.py").write_text(EVIL.format(mark=str(mark), kind=request.param))
    config = json.loads((folder / "config.json").read_text())
    named = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model", "AutoModel": "evil.Model"}
    named["AutoTokenizer"] = ["evil.Tokenizer", "evil.Tokenizer"]
    own = {"model_type": request.param, "auto_map": named, "trust_remote_code": True}
    (folder / "config.json").write_text(json.dumps(config | own))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "Tokenizer", "auto_map": {"AutoTokenizer": named["AutoTokenizer"]}})
    )
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}')
    monkeypatch.setattr(builtins, "input", lambda *_: "y")  # whoever asks is told yes
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    yield folder, request.param
    assert not mark.exists() and not (tmp_path / "modules").exists()


def test_every_call_refuses_the_code_of_others():
    source, refused = Path(anchorlab.__file__).parent, "trust_remote_code=False"
    texts = {str(path.relative_to(source)): path.read_text("utf-8") for path in source.rglob("*.py")}
    calls = [(name, text[one.end() : one.end() + 400]) for name, text in texts.items() for one in OPENED.finditer(text)]
    assert {name for name, _ in calls} >= {f"language/{name}.py" for name in ("pretrained", "convert", "tokenizer")}
    assert [name for name, call in calls if refused not in OPENED.split(call)[0]] == []


def test_a_folder_with_code_opens_without_it_or_not_at_all(evil):
    folder, kind = evil
    if kind == "evil":
        with pytest.raises(SpecError, match=r"^model: .* cannot be opened: .*contains custom code") as raised:
            pretrained(folder)
        assert str(raised.value).isprintable()
        return
    model = pretrained(folder)
    assert torch.isfinite(model(torch.arange(3).unsqueeze(0))).all()


def test_the_command_and_the_tokenizer_do_not_run_a_folder_s_code(evil, capsys):
    folder, kind = evil
    assert main(["look-at", str(folder), "a b c"]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("anchorlab: ")]
    assert len(lines) == 1 and ("cannot be opened" in lines[0]) is (kind == "evil")
    with pytest.raises(SpecError, match=r"^tokenizer: there is no tokenizer"):
        open_tokenizer(str(folder))


class _Marked:
    """What writes a file when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("place", ["weights.bin", "../weights.bin", "../elsewhere.safetensors", "/etc/passwd"])
def test_an_index_names_files_of_its_own_folder_alone(folder, tmp_path, place):
    mark = tmp_path / "mark"
    shutil.copy(folder / "model.safetensors", tmp_path / "elsewhere.safetensors")
    for at in (folder, tmp_path):
        torch.save({"a": _Marked(mark)}, at / "weights.bin")
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(hugging_face("llama").state_dict(), place)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(
        SpecError, match=r"^model: .*model.safetensors.index.json names .*, which is no safetensors file"
    ):
        pretrained(folder)
    assert not mark.exists()


@pytest.mark.parametrize("named", ["other.safetensors.index.json", "adapter_model.bin"])
def test_a_configuration_does_not_choose_the_files_of_weights(folder, tmp_path, named):
    mark = tmp_path / "mark"
    torch.save({"a": _Marked(mark)}, tmp_path / "weights.bin")
    shutil.copy(tmp_path / "weights.bin", folder / "adapter_model.bin")
    weights = dict.fromkeys(hugging_face("llama").state_dict(), "../weights.bin")
    (folder / "other.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"transformers_weights": named}))
    with pytest.raises(SpecError, match=r"^model\.transformers_weights: is not understood; open a model without it"):
        pretrained(folder)
    assert not mark.exists()


def test_an_adapter_opens_no_other_model(folder, tmp_path):
    other = shutil.copytree(folder, tmp_path / "other")
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(other)}))
    with pytest.raises(SpecError, match=r"^model: .*model holds an adapter .adapter_config.json.; merge it"):
        pretrained(folder)


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        ({"quantization_config": {"quant_method": "mxfp4"}}, r"^model\.quantization_config: is not understood"),
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, "quantization_config"),
        ({"attn_implementation": "someone/kernel", "_attn_implementation": "someone/kernel"}, None),
        ({"num_hidden_layers": "9" * 5000}, "^model: .* cannot be opened"),
        ({"model_type": "\x1b[31mred"}, "^model: "),
        ({"hidden_size": -1}, "^model: .* cannot be opened"),
        ({"vocab_size": "x"}, "^model: .* cannot be opened"),
    ],
)
def test_a_strange_configuration_is_one_line(folder, damage, match, monkeypatch):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | damage))
    asked = []
    monkeypatch.setattr("socket.getaddrinfo", lambda *named: asked.append(named))
    if match is None:
        assert pretrained(folder)(torch.arange(3).unsqueeze(0)).isfinite().all()
    else:
        with pytest.raises(SpecError, match=match) as raised:
            pretrained(folder)
        assert str(raised.value).isprintable() and len(str(raised.value)) < 600
    assert asked == []


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"model_type": ' * 900 + "1" + "}" * 900, "{", "[]", "null", '"llama"', "\xff", ""]
)
def test_a_configuration_that_is_none_is_one_line(folder, content):
    (folder / "config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(SpecError, match=r"^model") as raised:
        pretrained(folder)
    assert str(raised.value).isprintable() and len(str(raised.value)) < 600
    if "}" not in content:
        with pytest.raises(SpecError, match=r"^model: .*/config.json is damaged; fetch it again"):
            checkpoints.read_weights(folder)


def test_a_pipe_or_a_device_among_the_files_of_a_model_keeps_nobody_waiting(folder):
    (folder / "more.safetensors").symlink_to("/dev/zero")
    with pytest.raises(SpecError, match=r"^model: .*/more.safetensors is no file; remove it"):
        checkpoints.read_weights(folder)
    (folder / "more.safetensors").unlink()
    (folder / "model.gguf").write_bytes(b"GGUF")
    (folder / "additional_chat_templates").mkdir()
    os.mkfifo(folder / "additional_chat_templates" / "a.jinja")
    for opened in (
        pretrained,
        lambda folder: pretrained(folder / "model.gguf"),
        lambda folder: open_tokenizer(str(folder)),
    ):
        with pytest.raises(SpecError, match=r"^(model|tokenizer): .*_templates/a.jinja is no file; remove it"):
            opened(folder)
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises(SpecError, match=r"^model: .*/config.json is no file; remove it"):
        pretrained(folder)


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


def without_layers(weights: Weights) -> Weights:
    return without("layer")(without(".h.")(weights))


def also(**others: Tensor) -> Callable[[Weights], Weights]:
    return lambda weights: weights | {name.replace("__", "."): value for name, value in others.items()}


OTHER_ATTENTION = {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0, "use_bidirectional_attention": True}
SIZES = {
    "gpt2": ("n_layer", "n_head", "n_embd", "n_positions", "vocab_size"),
    "llama": ("num_hidden_layers", "max_position_embeddings"),
    "gpt_neox-parallel": ("max_position_embeddings",),
    "gemma3_text": ("num_attention_heads",),
}


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
        *(("gemma3_text", dict, {setting: value}, rf"^model\.{setting}: is not understood; open a model without it")
          for setting, value in OTHER_ATTENTION.items()),
        *((name, without_layers if "layer" in setting else dict, {setting: value},  # weights of no layer fit -1 layers
           rf"^model(\.{setting}: is {value}, not a number from 1|: .*cannot be opened)")
          for name, settings in SIZES.items() for setting in settings for value in (-1, 0)),
    ],
)  # fmt: skip
def test_weights_and_settings_that_do_not_belong_together_are_named(tmp_path, name, change, config, said):
    with pytest.raises(SpecError, match=said) as raised:
        pretrained(saved(tmp_path, name, change, **config))
    assert str(raised.value).isprintable()


def test_an_index_of_own_files_opens_and_one_that_leaves_a_weight_out_is_found(tmp_path):
    hugging_face("llama").save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert pretrained(tmp_path)(torch.arange(3).unsqueeze(0)).isfinite().all()
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


def _stored(name: str, value: Any) -> Any:
    """Return a weight as GGUF stores it: the rotated halves of each head are interleaved."""
    heads = {"q_proj": HEADS, "k_proj": 2}.get(name.split(".")[-2])
    weight = value.clone().numpy()
    if heads is None:
        return weight
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
