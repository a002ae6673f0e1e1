"""Files of rankings, right and wrong: every mistake is one line that names the field."""

import json
import os

import pytest

from anchorlab.errors import SpecError
from anchorlab.rankings import read_rankings
from anchorlab.rankings.file import MOST_BYTES

UNITS = {"identity-1": ("0.0", "1.0"), "identity-3": ("0.0", "0.1")}
RIGHT = {"method": "mine", "rankings": {"identity-1": {"0.0": 1, "1.0": -2.5}, "identity-3": {"0.1": 0, "0.0": 1e3}}}


@pytest.fixture
def read(tmp_path):
    def call(content):
        path = tmp_path / "mine.json"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_rankings(path, UNITS)

    return call


def test_a_right_file(read):
    found = read(json.dumps(RIGHT))
    assert found.method == "mine"
    assert found.scores == {"identity-1": {"0.0": 1.0, "1.0": -2.5}, "identity-3": {"0.0": 1e3, "0.1": 0.0}}


def test_a_link_is_followed(tmp_path):
    (tmp_path / "real.json").write_text(json.dumps(RIGHT))
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    assert read_rankings(tmp_path / "link.json", UNITS).method == "mine"


def changed(unit, model="identity-3", **others):
    """The file with another text in place of a model's units."""
    return json.dumps(RIGHT | others).replace(json.dumps(RIGHT["rankings"][model]), unit)


BAD = {
    "no JSON": ("{'method'", "file: .* is no JSON: .*; write {"),
    "empty": ("", "file: .* is no JSON"),
    "UTF-16": ("{}".encode("utf-16"), "file: .* is no text in UTF-8; write"),
    "too large": (b" " * (MOST_BYTES + 1), "file: .* cannot be read: is larger than 1048576 bytes; name"),
    "nested": ("[" * 100_000 + "]" * 100_000, "file: .* is nested deeper than 64 levels; write"),
    "a list": ("[]", "file: should be a table, got a list; write"),
    "no rankings": ('{"method": "mine"}', "rankings: is missing; give every field"),
    "no method": (json.dumps({"rankings": RIGHT["rankings"]}), "method: is missing; give every field"),
    "method": (json.dumps(RIGHT | {"method": 3}), "method: should be text, got a number; name the method"),
    "another field": (json.dumps(RIGHT | {"ranking": 3}), "ranking: unknown field 'ranking'; did you mean 'rankings'?"),
    "rankings": (json.dumps(RIGHT | {"rankings": [1]}), "rankings: should be a table, got a list; write"),
    "no model": (
        json.dumps(RIGHT | {"rankings": {"identity-1": RIGHT["rankings"]["identity-1"]}}),
        "rankings.identity-3: is missing; give every model",
    ),
    "unknown model": (
        json.dumps(RIGHT | {"rankings": RIGHT["rankings"] | {"identity-2": {}}}),
        "rankings.identity-2: unknown model 'identity-2'; did you mean",
    ),
    "units": (changed("[1, 2]"), "rankings.identity-3: should be a table, got a list; write"),
    "no unit": (changed('{"0.0": 1}'), "rankings.identity-3.0.1: is missing; give every unit"),
    "unknown unit": (changed('{"0.0": 1, "0.1": 2, "0.2": 3}'), "rankings.identity-3.0.2: unknown unit '0.2'; did you"),
    "NaN": (changed('{"0.0": 1, "0.1": NaN}'), "rankings.identity-3.0.1: is not finite; give each unit a finite"),
    "infinity": (changed('{"0.0": 1, "0.1": -Infinity}'), "rankings.identity-3.0.1: is not finite"),
    "1e999": (changed('{"0.0": 1, "0.1": 1e999}'), "rankings.identity-3.0.1: is not finite"),
    "a long integer": (changed(f'{{"0.0": 1, "0.1": {"9" * 400}}}'), "rankings.identity-3.0.1: is not finite"),
    "a longer integer": (changed(f'{{"0.0": 1, "0.1": {"9" * 9000}}}'), "file: .* Exceeds the limit .*; write"),
    "truth": (changed('{"0.0": 1, "0.1": true}'), "rankings.identity-3.0.1: should be a number, got a truth value;"),
    "text": (changed('{"0.0": 1, "0.1": "2"}'), "rankings.identity-3.0.1: should be a number, got text; give"),
    "null": (changed('{"0.0": 1, "0.1": null}'), "rankings.identity-3.0.1: should be a number, got null; give"),
    "deep": (changed('{"0.0": 1, "0.1": [[2]]}'), "rankings.identity-3.0.1: should be a number, got a list; give"),
    "a model twice": (
        json.dumps(RIGHT).replace('"rankings": {', '"rankings": {"identity-3": {"0.0": 5, "0.1": 1}, '),
        r"file: .*mine.json names 'identity-3' twice; write {",
    ),
    "a unit twice": (changed('{"0.0": 1, "0.1": 2, "0.0": 3}'), "file: .* names '0.0' twice; write {"),
    "a field twice": ('{"method": "a", "method": "b", "rankings": {}}', "file: .* names 'method' twice; write {"),
    "a long name": (json.dumps(RIGHT | {"x" * 500_000: 1}), "x{60}: unknown field 'x{60}'; known: method, rankings"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_line_with_the_field(read, case):
    content, told = BAD[case]
    with pytest.raises(SpecError, match=f"^{told}") as caught:
        read(content)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, told in (("none", "No such file"), ("", "is a folder"), ("pipe", "is neither a file nor a folder")):
        with pytest.raises(SpecError, match=f"^file: .* cannot be read: {told}.*; name a file of rankings"):
            read_rankings(tmp_path / name, UNITS)
