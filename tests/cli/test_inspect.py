"""`anchorlab inspect RUN --page FILE.html`."""

import json

import pytest

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


def test_no_word_of_the_table_is_broken_at_80_columns(anchorlab, two_heads):
    said = anchorlab("inspect", two_heads[:6], "-n", "20").out
    detectors = "shift uniform first token fixed position induction matching broadcast profile mostly"
    assert set(detectors.split()) <= set(said.split())
    assert max(map(len, said.splitlines())) <= 80


def test_writes_no_page_for_a_model_without_attention(anchorlab, trained, small, workplace):
    address = trained("anchor/identity", "--model.kind=lstm", "--model.width=4", *small[4:])
    said = anchorlab("inspect", address[:6], "--page", "heads.html")
    assert (said.code, said.out) == (2, "")
    assert said.err == "anchorlab: run: its model, 'lstm', has no attention to measure; give a run of a transformer\n"
    assert not (workplace / "heads.html").exists()
