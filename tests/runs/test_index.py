"""The index gives what the run directories say, whatever happens to its file."""

import json
import random
import sqlite3
import subprocess
import sys
import warnings
import zlib
from multiprocessing import get_context

import polars as pl
import pytest

from anchorlab.errors import StoreError
from anchorlab.runs import Cell, Index, curves, index, metrics, metrics_frame
from anchorlab.runs.curves import ends_of, packed_curves
from anchorlab.runs.metrics import metrics_schema
from tests.runs.tiny_trainer import contents, train


def cell_of(number):
    part = {"layers": number % 2, "name": f"tiny {number}"}
    return Cell({"model": part, "members": [3, 1, 4 + number], "format": 1}, label="tiny")


@pytest.fixture
def filled(store):
    for number in range(4):
        train(store, cell_of(number))
    with store.open(cell_of(4)):
        pass
    return store


def truth(store):
    """What the list shows, read from the directories one by one."""
    return {
        run.address: (run.label, "finished" if run.finished else "unfinished", run.spec, run.size, run.modified)
        for run in store.runs()
    }


def listed(store):
    entries = Index(store.root).entries()
    assert [one.address for one in entries] == [run.address for run in store.runs()]
    return {one.address: (one.label, one.state, one.spec, one.size, pytest.approx(one.modified)) for one in entries}


def test_the_index_says_what_the_directories_say(filled):
    assert truth(filled) == listed(filled)
    assert truth(filled) == listed(filled)  # now from the file
    assert {one.members for one in Index(filled.root).entries()} == {3}


def test_nothing_is_written_into_a_store_that_is_only_read(filled):
    (filled.root / "read-only").touch()
    before = contents(filled.root)
    assert len(filled.select("layers=1")) == 2 and truth(filled) == listed(filled)
    assert Index(filled.root).path.exists() and contents(filled.root) == before
    for write in (lambda: filled.remove(cell_of(0).address), filled.open(cell_of(9)).__enter__):
        with pytest.raises(StoreError, match=r"this store is read-only; name another one$"):
            write()
    assert contents(filled.root) == before


def test_a_store_that_does_not_exist_stays_so(tmp_path):
    assert Index(tmp_path / "none").entries() == [] and list(tmp_path.iterdir()) == []


def test_new_finished_and_removed_runs_are_noticed(filled):
    listed(filled)
    filled.remove(cell_of(0).address)
    train(filled, cell_of(4))
    train(filled, cell_of(5))
    assert truth(filled) == listed(filled)
    assert len(truth(filled)) == 5


def test_only_runs_that_are_new_or_changed_are_read(filled, monkeypatch):
    listed(filled)
    train(filled, cell_of(4))
    listed(filled)
    read = []
    of_run = index.entry_of
    monkeypatch.setattr(index, "entry_of", lambda run: (read.append(run.address), of_run(run))[1])
    Index(filled.root).entries()
    assert read == []
    train(filled, cell_of(6))
    Index(filled.root).entries()
    assert read == [cell_of(6).address]


def altered_digit(content):
    """One digit more or less of a size is as good a number."""
    at = content.index(b'"size": ') + len(b'"size": ')
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(("name", "damage"), [("spec.json", lambda content: b"{}"), ("manifest.json", altered_digit)])
def test_a_damaged_run_is_listed_as_such_until_it_is_repaired(filled, name, damage):
    path = filled.root / cell_of(1).address / name
    content = path.read_bytes()
    path.write_bytes(damage(content))
    for _ in range(2):
        states = {one.address: one.state for one in Index(filled.root).entries()}
        assert [address for address, state in states.items() if state == "damaged"] == [cell_of(1).address]
    path.write_bytes(content)
    assert truth(filled) == listed(filled)


def ends_in(store):
    listing = Index(store.root)
    return listing.ends(listing.entries())


def cut_short(content, chance):
    return content[: chance.randrange(len(content))]


def with_zeros(content, chance):
    """As a page after a power cut."""
    start = chance.randrange(0, len(content), 4096)
    return content[:start] + bytes(4096) + content[start + 4096 :]


def of_noise(content, chance):
    return chance.randbytes(len(content))


@pytest.mark.parametrize("damage", [cut_short, with_zeros, of_noise])
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_index_is_made_anew(filled, damage, seed):
    listed(filled)
    before, path = ends_in(filled), Index(filled.root).path
    path.write_bytes(damage(path.read_bytes(), random.Random(seed)))
    assert truth(filled) == listed(filled)
    assert ends_in(filled) == before and len(before) == 4


ODD = [
    "DROP TABLE runs",
    "DROP TABLE runs; CREATE TABLE runs (address, changed)",
    "UPDATE runs SET model = '{'",
    "UPDATE runs SET others = 5",
    "UPDATE runs SET ends = '{'",
]


@pytest.mark.parametrize("change", ODD)
def test_an_index_with_another_table_or_without_json_is_made_anew(filled, change):
    listed(filled)
    before = ends_in(filled)
    with sqlite3.connect(Index(filled.root).path) as connection:
        connection.executescript(change)
    for _ in range(2):
        assert truth(filled) == listed(filled)
        assert ends_in(filled) == before and len(before) == 4
    with sqlite3.connect(Index(filled.root).path) as connection:
        assert connection.execute("SELECT count(*), count(ends) FROM runs").fetchone() == (4, 4)


def test_where_no_index_can_be_written_the_runs_are_listed_all_the_same(filled, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("a file in the place of the folder")
    before = contents(tmp_path)
    monkeypatch.setenv("ANCHORLAB_CACHE", str(tmp_path / "file"))
    assert truth(filled) == listed(filled)
    assert set(ends_in(filled)) == {cell_of(at).address for at in range(4)}
    assert contents(tmp_path) == before


def test_the_index_of_a_killed_writer_is_used_or_made_anew(filled):
    code = (
        "import os, sys; from pathlib import Path; from anchorlab.runs import Index\n"
        "def write(self, statement, rows):\n"
        "    def work(table):\n"
        "        table.executemany(statement, rows)\n"
        "        os.kill(os.getpid(), 9)\n"
        "    self._use(work)\n"
        "Index._write = write\n"
        "Index(Path(sys.argv[1])).entries()"
    )
    done = subprocess.run([sys.executable, "-c", code, str(filled.root)])
    assert done.returncode == -9 and Index(filled.root).path.exists()
    assert truth(filled) == listed(filled)


def _list(root, queue):
    queue.put([{one.address for one in Index(root).entries() if one.state == "finished"} for _ in range(10)])


def test_processes_that_list_at_once_while_a_run_finishes_see_the_same(filled):
    context = get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=_list, args=(filled.root, queue)) for _ in range(6)]
    for process in processes:
        process.start()
    train(filled, cell_of(5))
    found = [queue.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    before, after = ({cell_of(at).address for at in some} for some in (range(4), (0, 1, 2, 3, 5)))
    assert all(one in (before, after) for lists in found for one in lists)
    assert truth(filled) == listed(filled)


ROWS = [  # member, seed, step, split, group, edit, metric, value
    (0, 7, 0, "test", "all", "none", "loss", 4.0),
    (0, 7, 10, "test", "all", "none", "loss", 2.0),
    (1, 8, 0, "test", "all", "none", "loss", 6.0),
    (1, 8, 10, "test", "all", "none", "loss", 3.0),
    (1, 8, 20, "test", "all", "none", "loss", float("nan")),  # it went on alone
    (0, 7, 10, "test", "3", "none", "loss", 50.0),
    (0, 7, 10, "test", "all", "rank 1", "loss", 60.0),
    (0, 7, 10, "train", "all", "none", "accuracy", 0.25),
]


def curves_in(store):
    """The curves of the only run, which are compressed JSON, by split and metric."""
    listing = Index(store.root)
    (packed,) = listing.curves(listing.entries()).values()
    return {(one["split"], one["metric"]): one for one in json.loads(zlib.decompress(packed))}


def test_metrics_at_the_end_and_along_training_are_over_members(store):
    cell = cell_of(0)
    with store.open(cell) as run:
        run.finish(metrics_frame(ROWS[:4] + ROWS[5:]), checkpoints=())
    for _ in range(2):
        assert ends_in(store) == {cell.address: {"test.loss": 2.5, "train.accuracy": 0.25}}
    found = curves_in(store)
    numbers = {"steps": [0, 10], "mean": [5.0, 2.5], "low": [4.0, 2.0], "high": [6.0, 3.0]}
    assert found["test", "loss"] == {"split": "test", "metric": "loss", **numbers}
    assert set(found) == {("test", "loss"), ("train", "accuracy")}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_are_kept_at_the_end_and_no_points_of_curves(store, value):
    cell = cell_of(0)
    with store.open(cell) as run:
        found = [(0, 7, step, "test", "all", "none", "loss", [2.0, value][step]) for step in (0, 1)]
        run.finish(metrics_frame(found), checkpoints=())
    for _ in range(2):
        assert ends_in(store) == {cell.address: {"test.loss": pytest.approx(value, nan_ok=True)}}
    assert curves_in(store)["test", "loss"]["mean"] == [2.0, None]
    assert [len(store.select(f"test.loss{one}")) for one in ("<0", ">0")] == [value < 0, value > 0]


def test_metrics_are_those_of_the_run_that_is_there_now(store):
    """Trained anew by another version, trained anew and damaged, and removed."""
    cell, listing = cell_of(0), Index(store.root)

    for value in (4.0, 2.0, 1.0):
        with store.open(cell) as run:
            run.finish(metrics_frame([(0, 7, 0, "test", "all", "none", "loss", value)]), checkpoints=())
        if value > 1:
            assert ends_in(store) == {cell.address: {"test.loss": value}}
            store.remove(cell.address)
    run.metrics_path.write_bytes(b"PAR1")
    assert ends_in(store) == {}
    store.remove(cell.address)
    assert listing.entries() == []
    with sqlite3.connect(listing.path) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)


def test_a_store_selects_runs_and_their_metrics_as_one_table(filled):
    named = "model.layers=1"
    wanted = [run for run in filled.runs() if run.spec["model"]["layers"] == 1]
    assert [one.address for one in filled.select(named)] == [run.address for run in wanted] and len(wanted) == 2
    table = filled.metrics(named)
    for run in wanted:
        assert table.filter(table["run"] == run.address).drop("run").equals(run.metrics())
    assert len(table) == sum(len(run.metrics()) for run in wanted)
    assert filled.metrics("layers=7").columns == ["run", *wanted[0].metrics().columns]
    assert len(filled.metrics()) == 2 * len(table)  # the unfinished run has none


def test_a_damaged_table_is_named_when_all_are_wanted(filled):
    path = filled.root / cell_of(1).address / "metrics.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreError, match=str(path)):
        filled.metrics()


def test_a_run_that_may_be_missing_because_it_is_damaged_is_named(store):
    """A damaged table has no loss to compare, a damaged specification no field but the run's own."""
    for number in range(4):
        with store.open(cell_of(number)) as run:
            run.finish(metrics_frame(ROWS[:4]), checkpoints=())
    table, spec = (store.root / cell_of(at).address for at in (1, 2))
    (table / "metrics.parquet").write_bytes(b"PAR1")
    with pytest.warns(RuntimeWarning, match=f"1 damaged run cannot be read and may be missing: {table.name}; "):
        found = store.select("test.loss>-1")
    assert [one.address for one in found] == sorted(cell_of(at).address for at in (0, 2, 3))
    (spec / "spec.json").write_bytes(b"{}")
    Index(store.root).path.unlink()  # which has what the specification said
    with pytest.warns(RuntimeWarning, match=f"1 damaged run .*{spec.name}; `anchorlab runs check`"):
        store.select("model.layers=0")
    for asked, damaged in (((), table), (("model.layers=0",), spec)):
        with pytest.raises(StoreError, match=str(damaged)):
            store.metrics(*asked)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(store.select("state=finished", "model.layers=1")) == 2
        assert [one.address for one in store.select("state=damaged")] == [spec.name]
        store.select()


def test_the_end_is_the_last_step_in_whatever_order_a_table_has(tmp_path):
    """Tables that others wrote need not be sorted."""
    rows = [(0, 7, step, "test", "all", "none", "loss", 100.0 - step) for step in (10, 30, 0, 20)]
    rows += [(1, 8, step, "test", "all", "none", "loss", 200.0 - step) for step in (30, 0)]
    path = tmp_path / cell_of(0).address / "metrics.parquet"
    path.parent.mkdir()
    pl.DataFrame(rows, schema=metrics_schema(), orient="row").write_parquet(path)
    assert ends_of({cell_of(0).address: path}) == {cell_of(0).address: {"test.loss": 120.0}}  # of 70 and 170
    (curve,) = json.loads(zlib.decompress(packed_curves({cell_of(0).address: path}, {})[cell_of(0).address]))
    assert (curve["steps"], curve["mean"][-1]) == ([0, 10, 20, 30], 120.0)


def test_a_table_with_more_rows_than_are_read_at_once_is_read_and_listed(filled, monkeypatch):
    """A run has 18 rows, and 72 are in all: one limit holds for measuring together, a higher one for reading."""
    before = ends_in(filled)
    Index(filled.root).path.unlink()
    monkeypatch.setattr(curves, "MOST_ROWS", 10)
    assert ends_in(filled) == before and len(before) == 4
    for module in (metrics, curves):
        monkeypatch.setattr(module, "MOST_READ", 18)
    with pytest.raises(StoreError, match="has 18 rows or more"):
        next(run for run in filled.runs() if run.finished).metrics()
    with pytest.raises(StoreError, match="these runs have 18 rows of metrics or more"):
        filled.metrics()
