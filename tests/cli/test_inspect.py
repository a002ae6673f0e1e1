"""`anchorlab inspect RUN` and `anchorlab look-at MODEL TEXT`."""

import json

import polars as pl
import pytest

from anchorlab.cli.inspect.heads import heads_table
from anchorlab.cli.inspect.look_at import DETECTORS
from anchorlab.cli.terminal.output import print_table
from anchorlab.language import pretrained
from anchorlab.runs import Store
from anchorlab.training import TrainedRun
from anchorlab.viewer import read_texts, view_json, view_run


def test_writes_the_viewer_and_says_where(anchorlab, address, workplace):
    (workplace / "pages").mkdir()
    said = anchorlab("inspect", address[:6], "-n", "20", "--page", "pages/heads.html")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[-1] == "attention viewer: pages/heads.html"
    assert said.new_files == {str(workplace / "pages" / "heads.html")}
    page = workplace / "pages" / "heads.html"
    view = view_json(view_run(TrainedRun(Store(workplace / "runs").find(address))))
    assert view in page.read_text()
    page.unlink()
    heads = json.loads(anchorlab("inspect", address[:6], "-n", "20", "--page", "pages/heads.html", "--json").out)
    assert {(row["layer"], row["head"]) for row in heads} == {(0, 0)}
    assert view in page.read_text()


@pytest.fixture
def two_heads(trained, small):
    """A run of two members of two heads."""
    return trained("anchor/identity", *(option.replace("heads=1", "heads=2") for option in small))


def test_one_member_is_shown_since_heads_of_others_are_other_heads(anchorlab, refused, two_heads, workplace):
    """Each member's own scores: of a mean over members no head would be any member's."""
    rows = json.loads(anchorlab("inspect", two_heads[:6], "-n", "20", "--json").out)
    assert {row["member"] for row in rows} == {0, 1}
    best = TrainedRun(Store(workplace / "runs").find(two_heads)).best_member
    for member, words in ((best, ()), (0, ("--member", "0")), (1, ("--member", "1"))):
        said = anchorlab("inspect", two_heads[:6], "-n", "20", *words).out
        assert said.startswith(f"anchor/identity: what each head of member {member} does, seed {member}\n")
        for head in range(2):
            uniform = next(
                row["value"]
                for row in rows
                if (row["member"], row["head"], row["detector"]) == (member, head, "uniform")
            )
            line = next(line for line in said.splitlines() if line.startswith(f"0.{head}"))
            assert f" {uniform:.2f} " in line
        assert json.loads(anchorlab("inspect", two_heads[:6], "-n", "20", *words, "--json").out) == [
            row for row in rows if not words or row["member"] == member
        ]
    told = "anchorlab: member: 2 is outside 2 members; choose from 0..1\n"
    assert refused("inspect", two_heads[:6], "--member", "2") == told


def test_the_table_is_one_block_at_80_columns(anchorlab, two_heads):
    said = anchorlab("inspect", two_heads[:6], "-n", "20").out.splitlines()
    assert said[2].split() == [".head", "mostly", "shift", "uniform", "position", "induction", "matching", "broadcast"]
    assert sum(".head" in line for line in said) == 1 and max(map(len, said)) <= 80


@pytest.mark.parametrize(("key", "shown"), [(0.4, "0.70 @1"), (0.9, "0.90 @key")])
def test_a_broadcast_from_keys_at_no_one_offset_is_shown(capsys, key, shown):
    scores = [("fixed_position", 0.3, 0), ("first_token", 0.3, None)]
    scores += [("broadcast_profile", 0.7, 1), ("broadcast", key, None)]
    rows = [
        {"member": 0, "layer": 0, "head": 0, "detector": name, "offset": offset, "value": value, "chance": 0.1,
         "fires": False}
        for name, value, offset in scores
    ]  # fmt: skip
    print_table(*heads_table(pl.DataFrame(rows, infer_schema_length=None), "title"))
    table = capsys.readouterr().out.splitlines()
    assert table[2].split() == [".head", "mostly", "position", "broadcast"] and shown in table[3]


def test_writes_no_page_for_a_model_without_attention(refused, trained, small):
    address = trained("anchor/identity", "--model.kind=lstm", "--model.width=4", *small[4:])
    told = "anchorlab: run: its model, 'lstm', has no attention to measure; give a run of a transformer\n"
    assert refused("inspect", address[:6], "--page", "heads.html") == told


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
    assert {one["detector"].replace("_", "-") for one in heads} == {*DETECTORS}
    assert {(one["layer"], one["head"]) for one in heads} == {(layer, head) for layer in range(3) for head in range(4)}
    assert [one["value"] for one in heads] == pytest.approx(read.found["value"].to_list())
    assert view_json(read.view) in (workplace / "pages" / "tiny.html").read_text()


def test_says_where_the_page_is(anchorlab, folder):
    said = anchorlab("look-at", folder, TEXTS[0], "--page", "heads.html")
    assert said.out.splitlines()[-1] == "attention viewer: heads.html"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("ab", "--by", "induction"), "by: induction cannot be scored on these texts; give longer ones"),
        (("to be or not to be", "--by", "first"), "by: unknown detector 'first'; "),
        (("to be or not to be", "--by", "inductoin"), "did you mean 'induction'?"),
        (("to be", "-n", "0"), "n: cannot print 0 heads; give 1 or more"),
        (("to be", "--revision", "step3", "--page", "tiny"), "page: tiny cannot be written"),
        (("to be", "--page", "none/deep/tiny.html"), "/none/deep; make it first"),
        (("a",), "texts: each is a single token"),
        (("to be", ""), "texts[1]: has no tokens; write at least one word"),
    ],
)
def test_bad_options_and_texts_are_named(anchorlab, folder, words, told):
    said = anchorlab("look-at", folder, *words)
    assert said.code == 2 and told in said.err


@pytest.mark.parametrize(
    ("by", "told"), [("xyz", "; known: broadcast, fi"), ("inductoin", "; did you mean 'induction'?")]
)
def test_an_unknown_detector_is_refused_before_the_model_is_opened(refused, by, told):
    said = refused("look-at", "./nowhere", "to be or not to be", "--by", by)
    assert said.startswith(f"anchorlab: by: unknown detector {by!r}{told}")


def test_a_model_that_is_not_there_is_named(anchorlab):
    pytest.importorskip("transformers")
    assert "model: there is no folder ./nowhere" in anchorlab("look-at", "./nowhere", "to be").err
