"""Files of tensors, and the names of files."""

import hashlib
from pathlib import Path

import pytest
import safetensors.torch
import torch

from anchorlab.errors import StoreError
from anchorlab.runs.atomic_files import file_name, write_file
from anchorlab.runs.tensor_file import read_tensors, tensor_pieces

DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool,
)  # fmt: skip


def tensors():
    values = {str(dtype): torch.arange(6).reshape(2, 3).to(dtype) for dtype in DTYPES}
    stack = torch.arange(24.0).reshape(4, 6)
    return values | {
        "scalar": torch.tensor(1.5),
        "empty": torch.zeros(0, 3),
        "transposed": stack.T,
        "column": stack[:, 1],
        "the same again": stack,
        "parameter": torch.nn.Parameter(torch.full((2,), torch.nan)),
        'name with "quotes" and é': torch.ones(1),
    }


def content(values):
    return b"".join(bytes(piece) for piece in tensor_pieces(values))


def test_the_library_reads_what_is_written():
    expected = {name: value.detach() for name, value in tensors().items()}
    found = safetensors.torch.load(content(tensors()))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name].nan_to_num() if value.isnan().any() else found[name], value.nan_to_num())


def test_the_bytes_are_those_of_the_library():
    values = {"b": torch.rand(3), "a": torch.rand(2, 2), "half": torch.rand(3).bfloat16()}
    assert content(values) == safetensors.torch.save(values)


def test_the_bytes_do_not_depend_on_the_order_of_names_or_on_strides():
    values = tensors()
    again = {name: values[name].detach().clone() for name in reversed(values)}
    assert content(values) == content(again)


def test_reading_gives_back_values_that_may_be_changed(tmp_path):
    path, fingerprint = write_file(tmp_path, "x.safetensors", tensor_pieces(tensors()))
    before = path.read_bytes()
    found = read_tensors(path)
    assert list(found) == sorted(tensors())
    found["transposed"].add_(1)
    assert torch.equal(found["transposed"], tensors()["transposed"] + 1)
    assert path.read_bytes() == before
    assert fingerprint == (len(before), hashlib.sha256(before).hexdigest())


def test_numbers_without_a_place_in_the_format_are_refused_and_nothing_is_left(tmp_path):
    with pytest.raises(ValueError, match=r"x: .*complex128"):
        write_file(tmp_path, "x", tensor_pieces({"x": torch.zeros(1, dtype=torch.complex128)}))
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(StoreError, match="missing/x: cannot be written"):
        write_file(tmp_path / "missing", "x", [b"1"])


@pytest.fixture
def disk(monkeypatch, tmp_path):
    """What happens to the disk, in its order."""
    events = []

    def sync(descriptor):
        events.append("file")

    def replace(path, target):
        events.append("rename")
        path.rename(target)

    monkeypatch.setattr("os.fsync", sync)
    monkeypatch.setattr(type(tmp_path), "replace", replace)
    return events


def test_content_reaches_the_disk_before_its_name_does(tmp_path, disk):
    write_file(tmp_path, "x", [b"1", b"2"])
    assert disk == ["file", "rename"]
    assert (tmp_path / "x").read_bytes() == b"12"


def test_signs_that_no_name_may_have(tmp_path):
    assert file_name("quick@gpt2") == "quick@gpt2"
    assert file_name("a/b") == "a%2Fb"
    for text in ("..", "../x", "http://h:80/v1#a", 'a\\b:*?"<>|', "é" * 300, "x" * 1000):
        assert Path(file_name(f"quick@{text}")).name == file_name(f"quick@{text}")
        (tmp_path / file_name(f"quick@{text}")).mkdir()


def test_long_texts_have_names_of_their_own():
    texts = [f"{'a' * 300}{middle}{'b' * 300}" for middle in "xyz"]
    names = {file_name(text) for text in texts}
    assert len(names) == 3
    assert all(name.startswith("aaa") and name.endswith("bbb") and len(name) <= 200 for name in names)
