"""The page over a store: its table says what the index says; nothing on it comes from the network or runs as code."""

import json
import re
import zlib
from base64 import b64decode
from dataclasses import replace

import pytest

from anchorlab.errors import SpecError
from anchorlab.report import write_browser
from anchorlab.runs import Cell, Index, Store, metrics_frame, record_use
from anchorlab.runs.atomic_files import write_file
from tests.report.hand_made_findings import make_findings

NASTY = '</script><img src=x onerror="alert(1)">&amp;'


def rows(level):
    """Two members that end at 0.5 above and below the level."""
    return [
        (member, member, step, "test", "all", "none", "accuracy", level * step / 10 + (member - 0.5) * step / 10)
        for member in range(2)
        for step in (0, 10)
    ]


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "store")
    for number in range(3):
        cell = Cell(
            {"model": {"layers": number, "same": 1}, "members": {"seeds": [0, 1]}, "format": 1},
            label=NASTY if number else "a",
        )
        with made.open(cell) as run:
            run.finish(metrics_frame(rows(number)), checkpoints=())
    with made.open(Cell({"model": {"layers": 9}, "members": {"seeds": [4]}, "format": 1}, label="a")):
        pass
    return made


@pytest.fixture
def with_study(store):
    folder = store.root / "studies" / "anchor-identity" / "quick"
    folder.mkdir(parents=True)
    findings = replace(make_findings(), study="anchor/identity", profile="quick")
    write_file(folder, "findings.json", [findings.to_json().encode()])
    (folder / "report.html").write_text("<!DOCTYPE html>a page")
    record_use(folder, "anchor/identity", "quick", [store.runs()[0].address])
    return store


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def table_of(page):
    """The rows of the page by address, each column by its name."""
    data = data_of(page)
    columns = {
        one["name"]: [one["values"][place] for place in one["of"]] if "of" in one else one["values"]
        for one in data["columns"]
    }
    return {
        address: {name: values[at] for name, values in columns.items()} for at, address in enumerate(columns["run"])
    }


def test_the_table_has_what_the_index_has(with_study):
    page = write_browser(with_study)
    assert page == with_study.root / "browse.html"
    text = page.read_text()
    index = Index(with_study.root)
    entries = {one.address: one for one in index.entries()}
    ends = index.ends(entries.values())
    table = table_of(text)
    assert set(table) == set(entries) and len(table) == 4
    for address, row in table.items():
        entry = entries[address]
        assert (row["label"], row["state"], row["members"]) == (entry.name, entry.state, entry.members)
        assert row["model.layers"] == entry.spec["model"]["layers"]
        assert row["members.seeds"] == entry.spec["members"]["seeds"]
        assert row["metrics.test.accuracy"] == ends.get(address, {}).get("test.accuracy")
        assert row["studies"] == (["anchor/identity"] if address == with_study.runs()[0].address else [])
    assert "model.same" in table[min(table)] and "format" not in table[min(table)]  # only where runs differ
    newest = sorted(entries.values(), key=lambda one: one.modified, reverse=True)
    assert list(table) == [one.address for one in newest]


def test_the_page_carries_the_curves_of_each_run(store):
    text = write_browser(store).read_text()
    data, packed = data_of(text), re.search(r'id="curves">(.*?)</script>', text, re.DOTALL)[1]
    assert sum(data["lengths"]) == len(packed)
    start = 0
    for row, length in zip(table_of(text).values(), data["lengths"], strict=True):
        piece, start = packed[start : start + length], start + length
        if row["state"] == "unfinished":
            assert piece == ""
            continue
        (curve,) = json.loads(zlib.decompress(b64decode(piece)))
        level = row["model.layers"]
        assert curve == {
            "split": "test", "metric": "accuracy", "steps": [0, 10],
            "mean": [0, level], "low": [0, level - 0.5], "high": [0, level + 0.5],
        }  # fmt: skip


def test_an_unfinished_run_has_the_curves_of_its_newest_states(store):
    """One chunk is at step 5, one has ended, and one has not begun; a damaged state costs the curves alone."""
    cell = Cell({"model": {"layers": 8}, "members": {"seeds": [0, 1, 2]}, "format": 1}, label="begun")
    with store.open(cell) as run:
        run.plan({"chunks": [[0], [1], [2]]})
        with run.chunk(0) as chunk:
            chunk.write_state(5, {}, {"rows": [row for row in rows(2) if row[0] == 0 and row[2] == 0]})
        with run.chunk(1) as chunk:
            chunk.finish({"rows": [(0, *row[1:]) for row in rows(2) if row[0] == 1]})
    index = Index(store.root)
    (curve,) = json.loads(zlib.decompress(index.curves(index.entries())[cell.address]))
    assert curve == {
        "split": "test", "metric": "accuracy", "steps": [0, 10],
        "mean": [0, 2.5], "low": [0, 2.5], "high": [0, 2.5],
    }  # fmt: skip
    found = run.metrics_so_far().sort("member", "step")
    assert found.select("member", "step", "value").rows() == [(0, 0, 0.0), (1, 0, 0.0), (1, 10, 2.5)]
    (state,) = run.state_path.glob("chunk-0000.*/step-*.safetensors")
    state.write_bytes(state.read_bytes()[:-3])
    assert cell.address not in index.curves(index.entries()) and len(index.curves(index.entries())) == 3


def test_a_page_that_is_written_again_reloads_itself(store):
    assert '<meta http-equiv="refresh" content="20">' in write_browser(store, every=20).read_text()
    assert "refresh" not in re.sub("<script.*?</script>", "", write_browser(store).read_text(), flags=re.DOTALL)


def test_no_text_of_the_store_becomes_part_of_the_page(store):
    text = write_browser(store).read_text()
    assert NASTY not in text and "<img" not in text
    assert {row["label"] for row in table_of(text).values()} == {"a", NASTY}
    assert "default-src 'none'" in text and "connect-src" not in text
    assert not re.search(r'(?:src|href)="(?:https?:)?//', text)


def test_links_to_pages_are_relative_to_the_page(with_study, tmp_path):
    def link(*place):
        (study,) = data_of(write_browser(with_study, *place).read_text())["studies"]
        return study["page"]

    assert link() == "studies/anchor-identity/quick/report.html"
    elsewhere = tmp_path / "other place" / "page.html"
    elsewhere.parent.mkdir()
    assert link(elsewhere) == "../store/studies/anchor-identity/quick/report.html"
    (with_study.root / "studies" / "anchor-identity" / "quick" / "report.html").unlink()
    assert link() is None
    with pytest.raises(SpecError, match="there is no folder"):
        write_browser(with_study, tmp_path / "none" / "page.html")


def test_what_findings_add_to_the_page_is_data(with_study):
    """No part of the page is made per study: its text outside the data stays as it is with many of them."""
    folder = with_study.root / "studies"
    one = write_browser(with_study).read_text()
    for number in range(20):
        findings = replace(make_findings(), study=f"own/{number:02d}", title=NASTY)
        copy = folder / f"own-{number:02d}" / "quick"
        copy.mkdir(parents=True)
        write_file(copy, "findings.json", [findings.to_json().encode()])
    many = write_browser(with_study).read_text()
    outside = [re.sub(r'id="data">.*?</script>', "", text, flags=re.DOTALL) for text in (one, many)]
    assert outside[0] == outside[1]
    studies = data_of(many)["studies"]
    assert [study["study"] for study in studies] == ["anchor/identity", *(f"own/{number:02d}" for number in range(20))]
    assert [claim["value"] for claim in studies[3]["claims"]] == ["0.9877", "0.75", "—", "1.5"]
    verdicts = ["agrees at small scale", "differs at small scale", "not measured", "contradicted"]
    assert [claim["verdict"] for claim in studies[3]["claims"]] == verdicts
    assert NASTY not in many and studies[3]["title"] == NASTY


def test_the_command_writes_the_page(capsys, with_study):
    from anchorlab.cli import main

    assert main(["browse", "--store", str(with_study.root), "--json"]) == 0
    page = with_study.root / "browse.html"
    assert json.loads(capsys.readouterr().out) == {"page": str(page)} and page.exists()
