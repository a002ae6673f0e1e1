"""A model folder that somebody sent: its code is never run, pickles are never read, and nothing beside it is opened."""

import builtins
import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch

import anchorlab
from anchorlab.cli import main
from anchorlab.errors import SpecError
from anchorlab.language import checkpoints
from anchorlab.language.pretrained import pretrained
from anchorlab.language.tokenizer import open_tokenizer
from tests.language.tiny import hugging_face


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
    folder, _ = evil
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


def test_an_index_of_own_files_opens(tmp_path):
    folder = tmp_path / "model"
    hugging_face("llama").save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert pretrained(folder)(torch.arange(3).unsqueeze(0)).isfinite().all()


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
