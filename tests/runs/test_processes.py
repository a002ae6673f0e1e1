"""Several processes on one store, and processes that are killed."""

import contextlib
import math
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from anchorlab.errors import InUseError, StoreError
from anchorlab.runs import Cell, Store
from anchorlab.runs.atomic_files import check_named_file
from anchorlab.runs.lock import locked
from anchorlab.runs.tensor_file import read_tensors
from tests.processes import processes
from tests.runs.tiny_trainer import contents, train

pytestmark = pytest.mark.killed


@contextlib.contextmanager
def started(target, *arguments):
    """Processes that run `target`, one for each tuple of arguments; killed at the end if still running."""
    children = [processes.Process(target=target, args=each, daemon=True) for each in arguments]
    for child in children:
        child.start()
    try:
        yield children
    finally:
        for child in children:
            child.kill()
            child.join()


def join(children):
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * len(children)


def tensors_of(step):
    return {"weight": torch.full((100, 100), float(step)), "step": torch.tensor(step)}


def write_for_ever(root, cell, begun):
    """Writes checkpoints and states in which every number tells the step."""
    with Store(root).open(cell) as run:
        run.plan([[0]])
        with run.chunk(0) as chunk:
            state = chunk.latest_state()
            step = 0 if state is None else state.step
            begun.set()
            while True:
                step += 1
                if step % 3 == 0:
                    chunk.write_checkpoint(step, tensors_of(step))
                chunk.write_state(step, tensors_of(step), [step] * 1000)


def test_after_a_kill_at_any_moment_the_last_state_is_whole(store, cell):
    chance, kills, kills_in_a_write, reached = random.Random(0), 0, 0, 0
    while kills < 15 or kills_in_a_write == 0 or reached < 6:  # A busy machine needs more of them to come so far.
        begun = processes.Event()
        with started(write_for_ever, (store.root, cell, begun)) as (child,):
            if chance.random() < 0.8:
                begun.wait(60)
            time.sleep(chance.random() * 0.03)
            child.kill()
            child.join()
            assert child.exitcode == -signal.SIGKILL
        assert all(run.problems() == [] for run in store.runs() if run.spec_path.exists())
        kills += 1
        kills_in_a_write += any(store.root.rglob(".*.tmp"))
        with store.open(cell) as run:
            run.plan([[0]])
            with run.chunk(0) as chunk:
                state = chunk.latest_state()
                assert not any(store.root.rglob(".*.tmp"))
                if state is None:
                    continue
                assert state.step >= reached
                reached = state.step
                checkpoints = {step: read_tensors(check_named_file(path)) for step, path in chunk.checkpoints().items()}
                for step, tensors in [(reached, state.tensors), *checkpoints.items()]:
                    assert tensors.keys() == tensors_of(step).keys()
                    assert all(torch.equal(tensors[name], value) for name, value in tensors_of(step).items())
                assert state.metadata == [reached] * 1000
                assert list(checkpoints) == list(range(3, reached + 1, 3))


def train_all(root, cells):
    store = Store(root)
    for cell in cells:
        train(store, cell, wait=math.inf)


def trained_alone(root, cells):
    with started(train_all, (root, cells)) as children:
        join(children)
    return contents(root)


def train_and_remove(root, cells, seed):
    store, chance = Store(root), random.Random(seed)
    for cell in cells:
        train(store, cell, wait=math.inf)
        with contextlib.suppress(StoreError):  # Another process may be writing it, or have removed it already.
            if chance.random() < 0.5:
                store.remove(cell.address)


def test_processes_that_train_and_remove_the_same_cells_never_meet(tmp_path):
    cells = [Cell({"members": [1, 2, index]}) for index in range(4)]
    alone = trained_alone(tmp_path / "alone", cells)
    with started(train_and_remove, *((tmp_path / "store", cells * 2, seed) for seed in range(3))) as children:
        join(children)
    assert trained_alone(tmp_path / "store", cells) == alone


def hold(root, cell, held):
    with Store(root).open(cell):
        held.set()
        time.sleep(60)


def test_a_run_in_use_names_its_process_until_that_ends_also_to_whoever_waits(store, cell):
    held, told = processes.Event(), []
    with started(hold, (store.root, cell, held)) as (child,):
        assert held.wait(60)
        message = f"in use by process {child.pid} on "
        with pytest.raises(StoreError, match=message), store.open(cell):
            pass
        with pytest.raises(InUseError, match=message), store.training(1.0, told.append):
            pass
        assert set(told) == {f"process {child.pid} on {os.uname().nodename}"}
        child.kill()
        child.join()
    with store.training(5.0), store.open(cell) as run:
        assert not run.finished


def count(directory, times):
    for _ in range(times):
        with locked(directory / "lock", math.inf):
            counter = directory / "counter"
            counter.write_text(str(int(counter.read_text()) + 1))


def test_a_lock_is_held_by_one_process_at_a_time(tmp_path):
    (tmp_path / "counter").write_text("0")
    with started(count, *[(tmp_path, 100)] * 4) as children:
        join(children)
    assert (tmp_path / "counter").read_text() == "400"


def test_the_thread_that_holds_a_lock_can_take_it_again(store, cell):
    with store.training(), store.training(), store.open(cell) as run:
        assert not run.finished


def test_a_thread_waits_for_another(store):
    with store.training(), ThreadPoolExecutor(1) as other:
        refused = other.submit(lambda: store.training().__enter__()).exception()
    assert isinstance(refused, InUseError)
