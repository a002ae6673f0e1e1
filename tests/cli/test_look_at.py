"""`anchorlab look-at MODEL TEXT`."""

import json

import pytest

pytest.importorskip("transformers")

from anchorlab.language import pretrained
from anchorlab.viewer import read_texts, view_json

TEXTS = ("to be or not to be", "the cat sat")


def rows(said):
    """The heads of a printed table, and their numbers of one column."""
    return [line.split() for line in said.out.splitlines() if line[:1].isdigit() and "." in line.split()[0]]


def test_prints_the_heads_by_a_score(anchorlab, folder):
    said = anchorlab("look-at", folder, *TEXTS, "--by", "first-token", "-n", "5")
    assert said.code == 0
    assert max(map(len, said.out.splitlines())) <= 80
    found = read_texts(pretrained(folder), TEXTS).found.filter(detector="first_token").sort("value", descending=True)
    expected = [f"{layer}.{head}" for layer, head in found.select("layer", "head").head(5).rows()]
    assert [row[0] for row in rows(said)] == expected
    assert f"{found['value'][0]:.2f}" in said.out
    assert "induction" in said.out and "broadcast" in said.out and "position" not in said.out
    assert "5 of 12 heads by first-token, over 2 texts" in said.out


def test_json_has_all_heads_and_the_page_is_the_viewers(anchorlab, folder, workplace):
    (workplace / "pages").mkdir()
    said = anchorlab("look-at", folder, *TEXTS, "--page", "pages/tiny.html", "--json")
    heads = json.loads(said.out)
    read = read_texts(pretrained(folder), TEXTS)
    assert {(one["layer"], one["head"]) for one in heads} == {(layer, head) for layer in range(3) for head in range(4)}
    assert [one["value"] for one in heads] == pytest.approx(read.found["value"].to_list())
    assert view_json(read.view) in (workplace / "pages" / "tiny.html").read_text()


def test_says_where_the_page_is(anchorlab, folder):
    said = anchorlab("look-at", folder, TEXTS[0], "--page", "heads.html")
    assert said.out.splitlines()[-1] == "attention viewer: heads.html"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--by", "first"), "by: unknown detector 'first'; "),
        (("--by", "inductoin"), "did you mean 'induction'?"),
        (("-n", "0"), "n: cannot print 0 heads; give 1 or more"),
        (("--revision", "step3", "--page", "tiny"), "page: tiny cannot be written"),
        (("--page", "none/deep/tiny.html"), "/none/deep; make it first"),
    ],
)
def test_bad_options_are_named(anchorlab, folder, options, said):
    answer = anchorlab("look-at", folder, "to be or not to be", *options)
    assert answer.code == 2 and said in answer.err


def test_bad_texts_and_models_are_named(anchorlab, folder):
    assert "texts: each is a single token" in anchorlab("look-at", folder, "a").err
    assert "texts[1]: has no tokens; write at least one word" in anchorlab("look-at", folder, "to be", "").err
    assert "model: there is no folder ./nowhere" in anchorlab("look-at", "./nowhere", "to be").err
