"""The one door to files of other people: what is no file, is large or is nested deeply is refused in words."""

import json
import os
from pathlib import Path

import pytest

from anchorlab.cli.options.fields import read_value
from anchorlab.errors import SpecError
from anchorlab.plain import discard, is_too_deep, open_data, parse_json, read_data

ODD = {
    "is a link": lambda path: path.symlink_to(path.with_name("real")),
    "is neither a file nor a folder": os.mkfifo,
    "is a folder": Path.mkdir,
}
OF_DEPTH = {
    "lists": lambda depth: "[" * depth + "]" * depth,
    "lists with a number": lambda depth: "[" * depth + "1" + "]" * depth,
    "objects": lambda depth: '{"a":' * (depth - 1) + "{}" + "}" * (depth - 1),
    "next to others": lambda depth: "[[1], [" + "[" * (depth - 2) + "]" * (depth - 2) + ', {"a": []}]]',
}


@pytest.mark.parametrize("told", ODD)
def test_only_regular_files_are_opened(tmp_path, told):
    (tmp_path / "real").write_bytes(b"content")
    ODD[told](tmp_path / "odd")
    for act in (open_data, read_data):
        with pytest.raises(OSError, match=told):
            act(tmp_path / "odd")
    discard(tmp_path / "odd")
    assert [path.name for path in tmp_path.iterdir()] == ["real"]


def test_a_path_of_the_user_may_be_a_link_but_not_to_a_device(tmp_path):
    (tmp_path / "real").write_bytes(b"content")
    (tmp_path / "own").symlink_to(tmp_path / "real")
    (tmp_path / "endless").symlink_to("/dev/zero")
    assert read_data(tmp_path / "own", follow=True) == b"content"
    with pytest.raises(OSError, match="is neither a file nor a folder"):
        read_data(tmp_path / "endless", follow=True)


def test_a_file_has_a_largest_size(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_data(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="is larger than 4 bytes"):
        read_data(tmp_path / "file", 4)
    os.truncate(tmp_path / "file", 2**33)  # takes no room on the disk
    with pytest.raises(OSError, match="is larger than 16777216 bytes"):
        read_data(tmp_path / "file")
    with open_data(tmp_path / "file", None) as file:
        assert file.read(5) == b"12345"


@pytest.mark.parametrize("kind", OF_DEPTH)
def test_one_limit_on_nesting_holds_for_text_and_for_data(kind):
    """64 levels pass and 65 do not, as JSON, as data that was parsed by another reader, and as an option."""
    most, *deeper = (OF_DEPTH[kind](depth) for depth in (64, 65, 100_000))
    assert parse_json(most) == read_value(most, "x") == json.loads(most)
    assert not is_too_deep(json.loads(most)) and is_too_deep(json.loads(deeper[0]))
    for text in deeper:
        with pytest.raises(ValueError, match=r"^is nested deeper than 64 levels$"):
            parse_json(text)
        with pytest.raises(SpecError, match=r"^x: is nested deeper than 64 levels; write it with fewer$"):
            read_value(text, "x")
