"""What a store says that it has kept survives a power cut at any moment: states, finished runs and removals."""

import os
import random

import pytest

from anchorlab.runs import Cell, Store
from anchorlab.runs.chunk_directory import ChunkDirectory
from tests.faults.durable import Account, PowerCut, begin_account, keep_account
from tests.faults.roles import Place, start
from tests.runs.tiny_trainer import train

pytestmark = [pytest.mark.killed, pytest.mark.slow, pytest.mark.nightly]

CELL = Cell({"task": {"name": "tiny"}, "members": [3, 1, 4], "format": 1}, label="tiny one")
SHARES = (0.0, 0.5, 1.0)


def _train(place):
    store = Store(place.root)
    train(store, CELL)
    (place.folder / "finished").touch()


def _remove(place):
    Store(place.root).remove(CELL.address)


def until(number, work, place):
    """Do some work until a file or folder is synchronised for the `number`-th time; end without doing that."""
    count = 0

    def counted(descriptor):
        nonlocal count
        count += 1
        if count == number:
            os._exit(9)

    def told(chunk, step, tensors, metadata=None, write=ChunkDirectory.write_state):
        write(chunk, step, tensors, metadata)
        (place.folder / chunk.path.name).write_text(str(step))

    os.fsync, ChunkDirectory.write_state = counted, told
    keep_account(place.root, place.account)
    work(place)
    os._exit(0)


def cuts(work, folder, prepare=()):
    """Yield the place of a store after a power cut at every moment of some work, and whether the work was done."""
    for share in SHARES:
        for number in range(1, 1000):
            place = Place(folder / f"{share}-{number}")
            place.root.mkdir(parents=True)
            for one in prepare:
                one(place)
            begin_account(place.root, place.account)
            child = start(until, number, work, place)
            child.join()
            power = PowerCut(place.root, Account(place.account), random.Random(number))
            power.kept_share = share
            power.happen()
            yield place, child.exitcode == 0
            if child.exitcode == 0:
                break
            assert child.exitcode == 9


def table(root):
    return Store(root).find(CELL.address).metrics().rows()


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    root = tmp_path_factory.mktemp("reference")
    train(Store(root), CELL)
    return table(root)


def test_states_and_finished_runs_survive(tmp_path, numbers):
    seen = set()
    for place, done in cuts(_train, tmp_path):
        store = Store(place.root)
        assert store.problems() == []
        finished = (place.folder / "finished").exists()
        assert finished == done and (CELL in store) >= finished
        if CELL not in store:
            with store.open(CELL) as run:
                run.plan([CELL.spec["members"][:2], CELL.spec["members"][2:]])
                for index in range(2):
                    told = place.folder / f"chunk-{index:04d}"
                    with run.chunk(index) as chunk:
                        state = None if chunk.finished else chunk.latest_state()
                        if told.exists() and not chunk.finished:
                            assert state is not None and state.step >= int(told.read_text())
                            seen.add(state.step)
            train(store, CELL)
        assert table(place.root) == numbers
    assert seen == {2, 4, 6}


def test_a_run_is_removed_as_a_whole(tmp_path, numbers):
    def trained(place):
        train(Store(place.root), CELL)

    left = set()
    for place, _ in cuts(_remove, tmp_path, (trained,)):
        store = Store(place.root)
        assert store.problems() == []
        left.add(CELL in store)
        assert CELL not in store or table(place.root) == numbers
    assert left == {True, False}
