"""Patterns of dotted names, against lists written by hand."""

import pytest

from anchorlab.errors import SpecError
from anchorlab.patterns import matches, matching

NAMES = (
    "hook_embed", "blocks.0.hook_resid_post", "blocks.0.attn.hook_q", "blocks.0.attn.hook_pattern",
    "blocks.12.hook_resid_post", "blocks.12.attn.hook_q",
)  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        ("hook_embed", [0]),
        ("*", [0]),
        ("**", [0, 1, 2, 3, 4, 5]),
        ("blocks.**", [1, 2, 3, 4, 5]),
        ("blocks.*.hook_*", [1, 4]),
        ("blocks.**.hook_*", [1, 2, 3, 4, 5]),
        ("**.hook_*", [0, 1, 2, 3, 4, 5]),
        ("*.*.attn.hook_q", [2, 5]),
        ("blocks.?.**", [1, 2, 3]),
        ("blocks.?[23].attn.*", [5]),
        ("blocks.**.attn.**.hook_q", [2, 5]),
    ],
)
def test_what_a_pattern_matches(pattern, places):
    assert matching(pattern, NAMES, "record", "site") == [NAMES[at] for at in places]


def test_a_number_in_brackets_at_the_end_is_an_element():
    assert matches("*.attn[0]", "layer.attn[0]") and not matches("*.attn[0]", "layer.attn0")
    assert matches("layer.[12].attn", "layer.2.attn")


@pytest.mark.parametrize(
    ("pattern", "wider"),
    [
        ("blocks.*", "blocks.**"),
        ("*.hook_pattern", "**.hook_pattern"),
        ("blocks.*.hook_q", "blocks.**.hook_q"),
        ("*.hook_[qp]*", "**.hook_[qp]*"),
        ("*hook_pattern", "**.*hook_pattern"),
        ("block*", "block*.**"),
    ],
)
def test_a_pattern_that_would_match_across_dots_is_named(pattern, wider):
    with pytest.raises(SpecError) as error:
        matching(pattern, NAMES, "record.0", "site")
    assert str(error.value) == f"record.0: {pattern!r} matches no site, since * does not cross dots; write {wider!r}"


def test_a_misspelled_name():
    with pytest.raises(SpecError, match=r"record\.0: unknown site 'blocks.0.atn.*'; did you mean 'blocks.0.attn"):
        matching("blocks.0.atn.*", NAMES, "record.0", "site")
