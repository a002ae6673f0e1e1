"""Limits on the files of a store that may come from a stranger: how deeply nested, and how large."""

import json

import pytest

from anchorlab.cli.options.fields import read_value
from anchorlab.depth import is_too_deep
from anchorlab.errors import SpecError, StoreError
from anchorlab.plain import parse_json
from anchorlab.runs import Store
from anchorlab.runs.atomic_files import read_json, write_json
from anchorlab.runs.plugins import NAME, named_modules
from anchorlab.studies.running import kept_findings

OF_DEPTH = {
    "lists": lambda depth: "[" * depth + "]" * depth,
    "lists with a number": lambda depth: "[" * depth + "1" + "]" * depth,
    "objects": lambda depth: '{"a":' * (depth - 1) + "{}" + "}" * (depth - 1),
    "both in turn": lambda depth: (
        '[{"a":' * (depth // 2) + "[]" * (depth % 2) + "1" * (1 - depth % 2) + "}]" * (depth // 2)
    ),
    "next to others": lambda depth: "[[1], [" + "[" * (depth - 2) + "]" * (depth - 2) + ', {"a": []}]]',
}


@pytest.mark.parametrize("kind", OF_DEPTH)
def test_one_limit_on_nesting_holds_for_text_and_for_data(kind):
    """64 levels pass and 65 do not, as JSON, as data that was parsed by another reader, and as an option."""
    most, deeper = (OF_DEPTH[kind](depth) for depth in (64, 65))
    assert parse_json(most) == read_value(most, "x") == json.loads(most)
    assert not is_too_deep(json.loads(most)) and is_too_deep(json.loads(deeper))
    with pytest.raises(ValueError, match=r"^is nested deeper than 64 levels$"):
        parse_json(deeper)
    with pytest.raises(SpecError, match=r"^x: is nested deeper than 64 levels; write it with fewer$"):
        read_value(deeper, "x")


def test_the_modules_of_a_store_are_read_from_a_plain_file_that_is_not_nested(tmp_path):
    path = tmp_path / NAME
    path.write_text('{"modules": ["mine"]}')
    assert named_modules(tmp_path) == ("mine",)
    path.write_text('{"modules": ["mine"], "more": ' + OF_DEPTH["lists"](64) + "}")
    assert named_modules(tmp_path) == ()
    path.write_text('{"modules": ["mine"]}' + " " * 2**16)
    assert named_modules(tmp_path) == ()
    path.unlink()
    (tmp_path / "other").write_text('{"modules": ["mine"]}')
    path.symlink_to(tmp_path / "other")
    assert named_modules(tmp_path) == ()


def test_a_record_may_have_16_mib_and_findings_more(tmp_path):
    write_json(tmp_path, "small.json", {"text": "a" * (2**24 - 200)})
    assert len(read_json(tmp_path / "small.json", "")["text"]) == 2**24 - 200
    write_json(tmp_path, "large.json", {"text": "a" * 2**24})
    with pytest.raises(StoreError, match=r"large\.json: damaged|large\.json: cannot be read \(is larger than 16777216"):
        read_json(tmp_path / "large.json", "")
    findings = tmp_path / "studies" / "own" / "quick" / "findings.json"
    findings.parent.mkdir(parents=True)
    findings.write_text('{"study": "' + "a" * 2**24 + '"}')
    with pytest.raises(StoreError, match=r"damaged \(findings\.study: string should have at most"):  # read to its end
        kept_findings(Store(tmp_path))
