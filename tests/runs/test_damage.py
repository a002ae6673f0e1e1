"""Whatever byte is lost or changed: the error names the file."""

import random
import shutil

import pytest

from anchorlab.errors import StoreError
from anchorlab.runs import Store
from tests.runs.tiny_trainer import FINISHED, begin, settled, train


def truncated(content, chance):
    return content[: chance.randrange(len(content))]


def flipped(content, chance):
    position = chance.randrange(len(content))
    return content[:position] + bytes([content[position] ^ (1 << chance.randrange(8))]) + content[position + 1 :]


def lengthened(content, chance):
    return content + bytes([chance.randrange(256)])


DAMAGES = [truncated, flipped, lengthened]


def read_everything(store, address):
    run = store.find(address)
    run.metrics()
    for step in run.checkpoints():
        run.read_checkpoint(step)
    return run.spec, run.label, run.environments


@pytest.mark.parametrize("name", sorted(FINISHED))
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_a_finished_run_is_named(store, cell, name, damage):
    path = train(store, cell).path / name
    content, chance = path.read_bytes(), random.Random(name)
    for _ in range(40):
        path.write_bytes(damage(content, chance))
        with pytest.raises(StoreError) as caught:
            read_everything(store, cell.address)
        assert str(caught.value).startswith(f"{path}: damaged")
        assert f"anchorlab runs remove {cell.address}" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert [problem.startswith(f"{path}: damaged") for problem in store.find(cell.address).problems()] == [True]
    path.write_bytes(content)
    assert read_everything(store, cell.address)[0] == cell.spec


@pytest.mark.parametrize("name", sorted(FINISHED))
def test_a_missing_file_of_a_finished_run_is_named(store, cell, name):
    path = train(store, cell).path / name
    path.unlink()
    with pytest.raises(StoreError, match="missing") as caught:
        read_everything(store, cell.address)
    assert str(caught.value).startswith(f"{path}: missing")
    assert store.find(cell.address).problems() == [str(caught.value)]


def test_a_run_that_lost_its_manifest_is_not_taken_for_an_unfinished_one(store, cell):
    train(store, cell).manifest_path.unlink()
    with pytest.raises(StoreError, match=r"manifest.json: missing"), store.open(cell):
        pass


def test_a_run_under_another_address_is_named(store, cell):
    run = train(store, cell)
    shutil.copytree(run.path, run.path.with_name("0" * 20))
    with pytest.raises(StoreError, match=rf"0000/spec.json: belongs to the run {cell.address}"):
        _ = store.find("0000").spec
    assert store.find("0000").problems() == [
        f"{store.root / ('0' * 20)}/spec.json: belongs to the run {cell.address}; "
        f"remove the run with `anchorlab runs remove {'0' * 20}` and train it again"
    ]


@pytest.fixture
def unfinished(store, cell):
    """A run with one chunk finished and one with a state, two checkpoints behind."""
    return begin(store, cell)


def files_of(run):
    return sorted(path for path in run.path.rglob("*") if path.is_file() and path.name != "lock")


@pytest.fixture
def copies(tmp_path, store, unfinished):
    """Each file of the unfinished run, in a copy of the store of its own."""
    files = files_of(unfinished)
    # specification and plan, the state of one chunk and the result of the other, three checkpoints of each
    assert len(files) == 2 + 2 + 6

    def generate():
        for path in files:
            copy = Store(tmp_path / "copy")
            shutil.copytree(store.root, copy.root)
            yield copy, copy.root / path.relative_to(store.root)
            shutil.rmtree(copy.root)

    return generate


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_any_file_of_an_unfinished_run_is_named(cell, copies, damage):
    for store, path in copies():
        path.write_bytes(damage(path.read_bytes(), random.Random(path.name)))
        assert [line.startswith(f"{path}: damaged") for line in store.find(cell.address).problems()] == [True]
        with pytest.raises(StoreError) as caught:
            train(store, cell)
        assert settled(caught.value).startswith(f"{settled(path)}: damaged")


def test_a_missing_file_of_an_unfinished_run_is_named_or_computed_again(tmp_path, cell, copies):
    whole = train(Store(tmp_path / "whole"), cell)
    for store, path in copies():
        path.unlink()
        if path.parent.name.startswith("chunk-"):  # A state or a result: as if the chunk had not come so far.
            assert train(store, cell).metrics().equals(whole.metrics())
        else:
            with pytest.raises(StoreError) as caught:
                train(store, cell)
            assert settled(caught.value).startswith(f"{settled(path)}: missing")


def test_a_damaged_run_can_be_listed_removed_and_trained_again(store, cell):
    run = train(store, cell)
    for path in files_of(run):
        path.write_bytes(b"")
    assert [found.address for found in store.runs()] == [cell.address]
    store.remove(cell.address)
    assert train(store, cell).problems() == []


def test_a_run_that_has_only_its_folder_yet_is_not_damaged(store, cell):
    """A process was killed, or is, before it has written the specification."""
    folder = store.root / cell.address
    folder.mkdir(parents=True)
    for name in ("lock", ".0123456789abcdef.tmp"):
        (folder / name).write_bytes(b"half")
        assert store.find(cell.address).problems() == []
        assert [one.state for one in store.select()] == ["unfinished"]
    assert train(store, cell).problems() == []
    assert [(one.state, one.label) for one in store.select()] == [("finished", cell.label)]


def test_an_unfinished_run_has_no_metrics_yet(unfinished):
    with pytest.raises(StoreError, match="not finished; train it again"):
        unfinished.metrics()
