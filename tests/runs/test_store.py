import subprocess
import sys
from itertools import pairwise

import pytest

from anchorlab.errors import StoreError
from anchorlab.runs import Cell, Store
from tests.runs.tiny_trainer import contents, train

CELLS = [Cell({"members": [1, index, 2]}) for index in range(20)]


def test_the_root_is_given_or_from_the_environment_or_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANCHORLAB_STORE", raising=False)
    assert Store().root == tmp_path / "runs"
    monkeypatch.setenv("ANCHORLAB_STORE", str(tmp_path / "elsewhere"))
    assert Store().root == tmp_path / "elsewhere"
    assert Store("here").root == tmp_path / "here"
    assert Store().runs() == [] and list(tmp_path.iterdir()) == []


def test_runs_are_found_by_the_beginning_of_their_address(store):
    for cell in CELLS:
        with store.open(cell):
            pass
    addresses = sorted(cell.address for cell in CELLS)
    assert [run.address for run in store.runs()] == addresses
    for address in addresses:
        assert store.find(address).address == address
        assert store.find(address[:10].upper()).address == address
    shared = next(a[0] for a, b in pairwise(addresses) if a[0] == b[0])
    with pytest.raises(StoreError, match=r"ambiguous .* write more digits"):
        store.find(shared)


@pytest.mark.parametrize("prefix", ["", "xyz", "..", "../..", "*", "0" * 21])
def test_an_unknown_address_is_an_error_with_a_remedy_and_removes_nothing(store, cell, prefix):
    before = contents(train(store, cell).path)
    for act in (store.find, store.remove):
        with pytest.raises(StoreError, match=r"anchorlab runs|write the first digits"):
            act(prefix)
    assert contents(store.root / cell.address) == before


def test_other_files_in_the_root_are_left_alone(store, cell):
    train(store, cell)
    (store.root / "notes.txt").write_text("mine")
    (store.root / "figures").mkdir()
    assert [run.address for run in store.runs()] == [cell.address]
    assert store.remove(cell.address[:8]) == cell.address
    assert {path.name for path in store.root.iterdir()} == {"notes.txt", "figures", "lock"}
    assert cell not in store


def test_removing_clears_what_a_killed_remover_left(store, cell):
    train(store, cell)
    (store.root / f".removed-{'1' * 20}-00000000" / "checkpoints").mkdir(parents=True)
    assert [run.address for run in store.runs()] == [cell.address]
    store.remove(cell.address)
    assert [path.name for path in store.root.iterdir()] == ["lock"]


def test_removing_a_link_to_a_run_is_refused_and_nothing_is_lost(tmp_path, store, cell):
    path = train(store, cell).path
    before, elsewhere = contents(path), tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert store.find(cell.address).problems() == []
    with pytest.raises(StoreError, match=f"is a link to {elsewhere}; delete the link, or both, by hand"):
        store.remove(cell.address)
    assert path.is_symlink() and contents(elsewhere) == before


def test_a_root_that_cannot_be_made_is_named(tmp_path, cell):
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError, match=str(root)), Store(root).open(cell):
            pass
    with pytest.raises(StoreError, match=r"file: is a file; give the store a folder$"):
        Store(tmp_path / "file")


def test_size_and_time_are_those_of_the_files(store, cell):
    run = train(store, cell)
    assert run.size == sum(len(content) for content in contents(run.path).values())
    assert run.modified == pytest.approx(run.manifest_path.stat().st_mtime, rel=0, abs=1e-6)  # of a float, microseconds


def test_importing_runs_imports_nothing_heavy():
    code = (
        "import anchorlab.runs, sys; print([m for m in ('torch', 'polars', 'numpy', 'pydantic') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_a_store_with_packs_names_the_version_that_unpacks_it(store, cell):
    train(store, cell)
    (store.root / "packs").mkdir()
    (store.root / "packs" / "lock").touch()  # what 0.2 leaves after it has unpacked
    assert [run.address for run in Store(store.root).runs()] == [cell.address]
    (store.root / "packs" / "runs.0123.sqlar").touch()
    with pytest.raises(StoreError, match=r"packs: holds packed runs.*anchorlab 0\.2: `anchorlab runs unpack`$"):
        Store(store.root)
