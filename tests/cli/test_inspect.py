"""`anchorlab inspect RUN --page FILE.html`."""

import json

import polars as pl
import pytest

from anchorlab.cli.inspect.heads import heads_table
from anchorlab.cli.terminal.output import print_table
from anchorlab.runs import Store
from anchorlab.training import TrainedRun
from anchorlab.viewer import view_json, view_run


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


def test_one_member_is_shown_since_heads_of_others_are_other_heads(anchorlab, two_heads, workplace):
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
    refused = anchorlab("inspect", two_heads[:6], "--member", "2")
    assert (refused.code, refused.err.strip()) == (2, "anchorlab: member: 2 is outside 2 members; choose from 0..1")


def test_the_table_is_one_block_at_80_columns(anchorlab, two_heads):
    said = anchorlab("inspect", two_heads[:6], "-n", "20").out.splitlines()
    assert said[2].split() == [".head", "mostly", "shift", "uniform", "position", "induction", "matching", "broadcast"]
    assert sum(".head" in line for line in said) == 1 and max(map(len, said)) <= 80


@pytest.mark.parametrize(("key", "shown"), [(0.4, "0.70 @1"), (0.9, "0.90 @key")])
def test_a_broadcast_from_keys_at_no_one_offset_is_shown(capsys, key, shown):
    scores = [("fixed_position", 0.3, 0), ("first_token", 0.3, None)]
    scores += [("broadcast_profile", 0.7, 1), ("broadcast", key, None)]
    rows = [
        {
            "member": 0,
            "layer": 0,
            "head": 0,
            "detector": name,
            "offset": offset,
            "value": value,
            "chance": 0.1,
            "fires": False,
        }
        for name, value, offset in scores
    ]
    print_table(*heads_table(pl.DataFrame(rows, infer_schema_length=None), "title"))
    table = capsys.readouterr().out.splitlines()
    assert table[2].split() == [".head", "mostly", "position", "broadcast"] and shown in table[3]


def test_writes_no_page_for_a_model_without_attention(anchorlab, trained, small, workplace):
    address = trained("anchor/identity", "--model.kind=lstm", "--model.width=4", *small[4:])
    said = anchorlab("inspect", address[:6], "--page", "heads.html")
    assert (said.code, said.out) == (2, "")
    assert said.err == "anchorlab: run: its model, 'lstm', has no attention to measure; give a run of a transformer\n"
    assert not (workplace / "heads.html").exists()
