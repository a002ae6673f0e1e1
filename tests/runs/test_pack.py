"""Packed runs read as runs in folders do, whoever packs them meanwhile, and wherever packing is killed."""

import hashlib
import os
import shutil
import sqlite3
import threading
import zlib
from io import BytesIO
from stat import S_ISDIR

import polars as pl
import pytest

from anchorlab.errors import InUseError, StoreError
from anchorlab.runs import Cell, Index, Run, Store, curves, entry_of, metrics, metrics_frame, pack, packing
from anchorlab.runs.lock import Lock
from tests.runs.tiny_trainer import FINISHED, contents, train

pytestmark = pytest.mark.nightly

COUNT = 5


def cell_of(number):
    return Cell({"model": {"layers": number % 2}, "members": [3, 1, 4 + number], "format": 1}, label="tiny")


@pytest.fixture
def filled(store):
    for number in range(COUNT):
        train(store, cell_of(number))
    return store


def seen(store):
    """Everything that readers see of the runs of a store."""
    listing = Index(store.root)
    entries = listing.entries()
    ends, curves = listing.ends(entries), listing.curves(entries)
    found = {}
    for run, entry in zip(store.runs(), entries, strict=True):
        weights = {step: run.read_checkpoint(step)["weight"].tolist() for step in run.checkpoints()}
        found[run.address] = (
            *(run.finished, run.spec, run.label, run.environments, run.made_by, run.modified, weights),
            *(run.problems(), run.metrics().rows(), ends[run.address], curves[run.address]),
            *(listing.curves_of(run.address), entry_of(run)._replace(spec=run.spec), entry.size, entry.changed),
            *(entry.state, dict(entry.spec), store.find(run.address[:12]).address, Cell(run.spec) in store),
        )
    return found, store.metrics().rows(), [one.address for one in store.select("layers=1")]


def folders(store):
    return {path.name for path in store.root.iterdir() if len(path.name) == 20}


def packs(store):
    return sorted((store.root / "packs").glob("*.sqlar"))


def test_packed_runs_read_as_they_did(filled):
    before, sizes = seen(filled), [run.size for run in filled.runs()]
    assert len(before[0]) == COUNT
    assert filled.pack() == sorted(before[0])
    assert [run.size for run in filled.runs()] == sizes
    assert folders(filled) == set() and len(packs(filled)) == 1
    assert seen(filled) == before
    shutil.rmtree(filled.root / "index")
    assert seen(filled) == before
    assert filled.pack() == []


def test_unpacking_gives_back_every_byte(filled):
    before = {name: content for name, content in contents(filled.root).items() if not name.startswith("index")}
    times = {run.address: run.manifest_path.stat().st_mtime_ns for run in filled.runs()}
    filled.pack()
    assert filled.unpack() == sorted(times)
    after = contents(filled.root)
    assert {name: after[name] for name in before} == before
    assert {name for name in after.keys() - before if not name.startswith("index")} == {"packs/lock"}
    assert {run.address: run.manifest_path.stat().st_mtime_ns for run in filled.runs()} == times


def test_a_pack_is_an_sqlite_archive(filled):
    """As https://sqlite.org/sqlar.html defines it: compressed where `sz` says that the content is longer."""
    before = contents(filled.root)
    filled.pack()
    found = {}
    with sqlite3.connect(packs(filled)[0]) as archive:
        for name, mode, size, data in archive.execute("SELECT name, mode, sz, data FROM sqlar"):
            found[name] = data if size == len(data) else zlib.decompress(data)
            assert mode == 0o100644 and len(found[name]) == size
    assert found == {name: content for name, content in before.items() if not name.startswith("index")}
    assert len(found) == COUNT * len(FINISHED)
    digest = hashlib.sha256(packs(filled)[0].read_bytes()).hexdigest()
    assert packs(filled)[0].name == f"runs.{digest[:32]}.sqlar"


def test_a_packed_run_is_not_trained_again(filled):
    filled.pack()
    with filled.open(cell_of(2)) as run:
        assert run.finished
        with pytest.raises(StoreError, match="finished, cannot be written"):
            run.finish(metrics_frame([]))
    assert folders(filled) == set()


def test_where_there_is_nothing_to_pack_nothing_is_made(store):
    assert store.pack() == store.unpack() == []
    assert not store.root.exists()
    with store.open(cell_of(0)):
        pass
    assert store.pack() == store.unpack() == []
    assert {path.name for path in store.root.iterdir()} == {cell_of(0).address, "index"}


def test_conditions_choose_what_is_packed_and_unpacked(filled):
    odd = sorted(cell_of(number).address for number in (1, 3))
    assert filled.pack("layers=1") == odd
    assert folders(filled) == {cell_of(number).address for number in (0, 2, 4)}
    before = seen(filled)
    assert filled.unpack("layers=0") == []
    assert filled.unpack("layers=1") == odd
    assert seen(filled) == before and packs(filled) == []


def test_what_is_new_is_on_the_disk_before_what_is_old_goes(filled, monkeypatch):
    events = []

    def heard(name, what):
        operation = getattr(os, name)

        def hear(*arguments, **options):
            if (told := what(*map(str, arguments))) is not None:
                events.append(told)
            return operation(*arguments, **options)

        monkeypatch.setattr(os, name, hear)

    heard("fsync", lambda descriptor: "directory" if S_ISDIR(os.fstat(int(descriptor)).st_mode) else "file")
    heard("sync", lambda: "all")
    heard("replace", lambda old, new: "pack is named" if new.endswith(".sqlar") else None)
    heard("rename", lambda old, new: "folder goes" if ".removed" in new else "folder is named")
    heard("unlink", lambda path: "pack goes" if path.endswith(".sqlar") else None)
    filled.pack()
    assert events[:3] == ["file", "pack is named", "directory"]
    assert events.count("folder goes") == COUNT and "folder goes" not in events[:3]
    events.clear()
    filled.unpack()
    assert events[: COUNT + 3] == ["all", *["folder is named"] * COUNT, "directory", "pack goes"]


def test_small_packs_are_put_together(filled):
    before = seen(filled)
    filled.pack("layers=1")
    filled.pack()
    assert len(packs(filled)) == 1 and folders(filled) == set()
    assert seen(filled) == before


def test_packs_have_a_largest_size(filled, monkeypatch):
    before = seen(filled)
    monkeypatch.setattr(packing, "MOST_RUNS", 2)
    filled.pack()
    assert [len(one.keys) for one in pack.packs_of(filled.root)] in ([1, 2, 2], [2, 1, 2], [2, 2, 1])
    assert seen(filled) == before


def test_a_pack_takes_no_more_rows_than_are_read_at_once(filled, monkeypatch):
    """A run has 18 rows. Readers say that a pack of an earlier version is too long, and leave out none of its rows."""
    before = seen(filled)
    filled.pack()
    for module in (metrics, pack):
        monkeypatch.setattr(module, "MOST_ROWS", 60)
    with pytest.raises(StoreError, match="has 60 rows of metrics or more; run `anchorlab runs unpack`, then"):
        filled.metrics()
    monkeypatch.setattr(packing, "MOST_ROWS", 60)
    filled.unpack()
    filled.pack()
    assert sorted(len(one.keys) for one in pack.packs_of(filled.root)) == [2, 3]
    assert seen(filled) == before


def test_a_run_with_more_rows_than_a_pack_takes_is_read_and_listed(filled, monkeypatch):
    """A run has 18 rows, and 90 are in all: a limit on rows holds for packs, a higher one for reading."""
    before = seen(filled)
    shutil.rmtree(filled.root / "index")
    for module in (metrics, pack, packing, curves):
        monkeypatch.setattr(module, "MOST_ROWS", 10)
    assert filled.pack() == []
    assert seen(filled) == before
    for module in (metrics, curves):
        monkeypatch.setattr(module, "MOST_READ", 18)
    with pytest.raises(StoreError, match="has 18 rows or more"):
        filled.runs()[0].metrics()
    with pytest.raises(StoreError, match="these runs have 18 rows of metrics or more"):
        filled.metrics()


def test_what_stays_in_its_folder(filled, monkeypatch):
    damaged, noted, linked, packed, misnamed = (cell_of(number).address for number in range(COUNT))
    large = Cell({"members": [3, 1, 4], "text": "much " * 1000}, label="large")
    train(filled, large)
    monkeypatch.setattr(packing, "SMALL", 5000)
    (filled.root / noted / "notes.txt").write_text("mine")
    (filled.root / damaged / "checkpoints" / "step-00000002.safetensors").write_bytes(b"altered")
    elsewhere = shutil.move(filled.root / linked, filled.root.parent / linked)
    (filled.root / linked).symlink_to(elsewhere)
    (filled.root / misnamed).rename(filled.root / ("0" * 20))
    with filled.open(cell_of(COUNT)):
        pass
    before = {run.address: (contents(run.path), run.problems()) for run in filled.runs()}
    assert filled.pack() == [packed]
    del before[packed]
    assert {run.address: (contents(run.path), run.problems()) for run in filled.runs() if run.pack is None} == before


def test_packed_runs_can_be_removed(filled):
    filled.pack()
    gone, *others = sorted(cell_of(number).address for number in range(COUNT))
    before = seen(filled)
    assert filled.remove(gone[:10]) == gone
    found = seen(filled)
    assert found[0] == {address: before[0][address] for address in others}
    assert {row[0] for row in found[1]} == set(others)
    assert len(packs(filled)) == 1
    assert filled.remove_all(others) == dict.fromkeys(others)
    assert filled.runs() == [] and packs(filled) == []
    train(filled, cell_of(0))
    assert [run.problems() for run in filled.runs()] == [[]]


def test_a_folder_counts_before_a_pack(filled):
    """As where a store was put together by copying another one's folders into it."""
    address = cell_of(0).address
    copy = shutil.copytree(filled.root / address, filled.root.parent / address)
    filled.pack()
    os.utime(shutil.copytree(copy, filled.root / address) / "manifest.json", ns=(1, 1))
    assert Run(filled.root / address).changed == 1
    assert len(filled.runs()) == len(Index(filled.root).entries()) == COUNT
    assert filled.pack() == [address]
    assert folders(filled) == set() and len(filled.runs()) == COUNT


def test_a_folder_that_cannot_be_packed_leaves_the_packs_as_they_are(filled):
    address = cell_of(0).address
    copy = shutil.move(filled.root / address, filled.root.parent / address)
    filled.pack()
    before = contents(filled.root / "packs")
    (shutil.copytree(copy, filled.root / address) / "checkpoints/step-00000002.safetensors").write_bytes(b"altered")
    assert filled.pack() == []
    assert contents(filled.root / "packs") == before
    assert folders(filled) == {address}


@pytest.mark.parametrize("damage", ["x'00'", "zeroblob(sz)"], ids=["cannot be unpacked", "unpacks to other bytes"])
def test_a_whole_folder_takes_the_place_of_a_damaged_copy_in_a_pack(filled, damage):
    """As where somebody has found the damage, and copied the folder from elsewhere."""
    address = cell_of(0).address
    copy, expected = shutil.copytree(filled.root / address, filled.root.parent / address), seen(filled)
    filled.pack()
    with sqlite3.connect(packs(filled)[0]) as archive:
        name = f"{address}/checkpoints/step-00000002.safetensors"
        archive.execute(f"UPDATE sqlar SET data = {damage} WHERE name = ?", (name,))
    assert len(filled.problems()) == 2
    with pytest.raises(StoreError, match="damaged"):
        packing.unpack_runs(filled.root, [address])
    assert len(packs(filled)) == 1 and folders(filled) == set()
    shutil.copytree(copy, filled.root / address)
    assert filled.pack() == [address]
    assert seen(filled) == expected and filled.problems() == [] and folders(filled) == set()


@pytest.mark.parametrize("what", ["pack", "unpack"])
@pytest.mark.parametrize("emptied", ["manifest.json", "*"])
def test_a_folder_that_a_power_cut_has_emptied_does_not_take_the_place_of_the_pack(filled, what, emptied):
    """The folder had its name before its files were on the disk."""
    expected, copy = seen(filled), shutil.copytree(filled.root, filled.root.parent / "copy")
    filled.pack()
    folder = shutil.copytree(copy / cell_of(0).address, filled.root / cell_of(0).address)
    for path in folder.rglob(emptied):
        if path.is_file():
            path.write_bytes(b"")
    if what == "pack":
        assert packing.pack_runs(filled.root, [folder.name], lambda run: shutil.rmtree(run.path)) == [folder.name]
        assert folders(filled) == set()
    else:
        assert packing.unpack_runs(filled.root, [folder.name]) == [folder.name]
        assert folders(filled) == {folder.name}
    assert seen(filled) == expected and filled.problems() == []


def test_a_damaged_folder_with_files_of_its_own_leaves_the_pack_as_it_is(filled):
    copy = shutil.copytree(filled.root / cell_of(0).address, filled.root.parent / cell_of(0).address)
    filled.pack()
    folder = shutil.copytree(copy, filled.root / copy.name)
    (folder / "manifest.json").write_bytes(b"")
    (folder / "notes.txt").write_text("mine")
    before = contents(folder), contents(filled.root / "packs")
    assert packing.pack_runs(filled.root, [folder.name], lambda run: shutil.rmtree(run.path)) == []
    with pytest.raises(StoreError, match=f"^{folder}/manifest.json: .*; a pack holds the run: move this folder"):
        packing.unpack_runs(filled.root, [folder.name])
    assert (contents(folder), contents(filled.root / "packs")) == before
    assert folders(filled) == {folder.name} and not list(filled.root.glob(".unpacked-*"))


def test_a_run_that_killed_processes_have_left_in_two_packs_is_packed_once(filled):
    expected, folder = seen(filled), filled.root / "packs"
    filled.pack()
    first, both, last, *others = sorted(cell_of(number).address for number in range(COUNT))
    (whole,) = pack.packs_of(filled.root)
    for addresses in ([first, both], [both, last], others):
        packing._write(folder, whole.runs(addresses))
    whole.path.unlink()
    packing.unpack_runs(filled.root, others)
    assert len(packs(filled)) == 2 and filled.pack() == others
    assert seen(filled) == expected and len(packs(filled)) == 1


def test_a_pack_without_runs_is_damaged(filled):
    filled.pack()
    (path,) = packs(filled)
    with sqlite3.connect(path) as archive:
        archive.execute("DELETE FROM manifests")
    fresh = path.rename(path.with_name(f"runs.{'0' * 32}.sqlar"))
    with pytest.raises(StoreError, match=f"^{fresh}: damaged: altered after it was written"):
        filled.runs()


def test_a_run_that_is_removed_while_it_is_packed_stays_removed(filled, monkeypatch):
    address, write = cell_of(0).address, packing.write_pack

    def removed_meanwhile(*arguments):
        if (filled.root / address).is_dir():
            Store(filled.root).remove(address)
        return write(*arguments)

    monkeypatch.setattr(packing, "write_pack", removed_meanwhile)
    assert address not in filled.pack()
    assert len(filled.runs()) == COUNT - 1 and folders(filled) == set()


def test_a_damaged_pack_is_named(filled):
    filled.pack()
    (path,) = packs(filled)
    altered, cut, *others = (cell_of(number).address for number in range(COUNT))
    with sqlite3.connect(path) as archive:
        update = "UPDATE sqlar SET data = ?, sz = ? WHERE name = ?"
        archive.execute(update, (b"altered", 7, f"{altered}/metrics.parquet"))
        archive.execute(update, (b"cut", 1000, f"{cut}/checkpoints/step-00000002.safetensors"))
    problems = {run.address: run.problems() for run in filled.runs()}
    assert [problems[address] for address in others] == [[], [], []]
    assert problems[altered][0].startswith(f"{filled.root / altered}/metrics.parquet: damaged: 7 bytes where ")
    assert problems[cut][0].startswith(f"{path}: damaged: ")
    assert len(problems[altered]) == len(problems[cut]) == 1
    assert filled.problems()[0].startswith(f"{path}: damaged: altered after it was written")
    assert sorted(filled.problems()[1:]) == sorted([*problems[altered], *problems[cut]])
    path.write_bytes(path.read_bytes()[:1000])
    fresh = path.rename(path.with_name(f"runs.{'0' * 32}.sqlar"))
    with pytest.raises(StoreError, match=f"^{fresh}: damaged: altered after it was written; put a copy in its place"):
        filled.runs()


def test_an_altered_table_of_all_metrics_is_not_read(filled):
    """It is as good a table as the one that was written; only its numbers are others."""
    filled.pack()
    (path,) = packs(filled)
    with sqlite3.connect(path) as archive:
        table = pl.read_parquet(archive.execute("SELECT data FROM tables").fetchone()[0])
        buffer = BytesIO()
        table.with_columns(pl.col("value") * 2).write_parquet(buffer)
        archive.execute("UPDATE tables SET data = ?", (buffer.getvalue(),))
    with pytest.raises(StoreError, match=f"^{path}: damaged: altered after it was written"):
        filled.metrics()


def test_two_processes_do_not_pack_at_once(filled, monkeypatch):
    monkeypatch.setattr(packing, "_PATIENCE", 0.0)
    other = Lock(filled.root / "packs" / "lock")
    other.acquire()
    with pytest.raises(InUseError, match="packs: in use by process"):
        filled.pack()
    other.release()
    assert len(filled.pack()) == COUNT


def test_readers_read_while_others_pack(filled):
    expected, failures, ended = seen(filled), [], threading.Event()

    def read():
        while not ended.is_set():
            try:
                assert seen(Store(filled.root)) == expected
            except BaseException as error:  # noqa: BLE001 - shown by the test
                failures.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(8):
            assert len(filled.pack()) == COUNT
            assert len(filled.unpack()) == COUNT
    finally:
        ended.set()
        reader.join()
    assert failures == []


class Killed(BaseException):
    """Ends everything, also what tidies up on the way out."""


class Killer:
    """Kills before the operation on files of a number, and lets none happen after it."""

    OPERATIONS = ("rename", "replace", "unlink", "rmdir", "mkdir", "utime", "sync")

    def __init__(self, monkeypatch, number):
        self.left = number
        for name in self.OPERATIONS:
            monkeypatch.setattr(os, name, self._guarded(getattr(os, name)))

    def _guarded(self, operation):
        def guarded(*arguments, **options):
            self.left -= 1
            if self.left < 0:
                raise Killed
            return operation(*arguments, **options)

        return guarded


@pytest.mark.slow
@pytest.mark.parametrize("what", ["pack", "unpack", "put together", "remove"])
def test_a_kill_at_any_moment_loses_nothing_and_nothing_is_there_twice(filled, tmp_path, what):
    victim = cell_of(0).address
    if what in ("unpack", "remove"):
        filled.pack()
    elif what == "put together":
        filled.pack("layers=1")
    expected, kills = seen(filled), 0
    after = {address: found for address, found in expected[0].items() if what != "remove" or address != victim}

    def work(store):
        if what == "remove":
            store.remove_all([victim])
        else:
            store.unpack() if what == "unpack" else store.pack()

    for number in range(400):
        store = Store(shutil.copytree(filled.root, tmp_path / f"killed {number}"))
        with pytest.MonkeyPatch.context() as patch:
            Killer(patch, number)
            try:
                work(store)
            except Killed:
                kills += 1
            else:
                break
        found = seen(store)[0]
        assert found == expected[0] or found == after
        if victim in found:
            work(store)
        store.unpack() if what == "unpack" else store.pack()
        assert seen(store)[0] == after
        assert (packs(store), folders(store)) == ([], after.keys()) if what == "unpack" else folders(store) == set()
        assert not [path for path in store.root.rglob("*") if path.name.startswith(".")]
    else:
        pytest.fail("never came to its end")
    assert kills >= 3
    assert seen(store)[0] == after


def test_all_metrics_are_those_of_the_runs(filled):
    filled.pack("layers=1")
    whole = filled.metrics()
    parts = [run.metrics().select(pl.lit(run.address).alias("run"), pl.all()) for run in filled.runs()]
    assert whole.equals(pl.concat(parts))
    assert filled.metrics("layers=0").equals(whole.filter(pl.col("run").is_in(folders(filled))))
