"""Workers that share a store: killed, added, frozen, failing; the runs are those of this machine alone, bit for bit."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from anchorlab.engine import Worker, plan, run
from anchorlab.engine.progress_files import read_failure
from anchorlab.errors import AnchorlabError, InUseError, SpecError
from anchorlab.runs import Run, RunDirectory, Store, run_directory
from anchorlab.training import Evaluation, Times, trainer
from tests.engine.killed import results, wait_until
from tests.processes import processes
from tests.small_experiments import BREAKING, SAMPLE, STREAM, experiment

pytestmark = pytest.mark.nightly

OFTEN = {"evaluation": Evaluation(every=20, size=8), "checkpoints": Times(every=40), "precision": "float32"}
FOUR = [
    experiment(kind, recipe.replace(duration=160, **OFTEN))
    for kind, recipe in [("decoder", SAMPLE), ("decoder", STREAM), ("recall", SAMPLE), ("own recurrent module", SAMPLE)]
]


def work(root, lease, slowly):
    """A worker that keeps states as often as it can."""
    os.fsync = lambda descriptor: None
    trainer._LEAST_TRAINING_PER_KEEPING = 0
    if slowly:  # by a millisecond a state, so that it can be met at work
        keep = trainer.Session._state
        trainer.Session._state = lambda self: (time.sleep(0.002), keep(self))[1]
    Worker(Store(root), keep_every=0.0, pause=0.05, lease=lease).work(until_empty=True)


def start(root, lease=120.0, slowly=True):
    child = processes.Process(target=work, args=(root, lease, slowly), daemon=True)
    child.start()
    return child


def state_of(process):
    """The letter of the kernel for what a process does: T for one that is stopped."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def chunks(root, what):
    return list(root.rglob(f"state/chunk-*/{what}"))


def finish(store, experiments, **arguments):
    return run(experiments, store, on="folder", **arguments)


@pytest.mark.killed
@pytest.mark.slow
def test_four_workers_two_killed_and_one_added_leave_the_bytes_of_this_machine(tmp_path):
    whole, shared = Store(tmp_path / "whole"), Store(tmp_path / "shared")
    run(FOUR, whole, workers=1)
    reports, found = [], []
    waiting = threading.Thread(
        target=lambda: found.extend(finish(shared, FOUR, report=lambda status: reports.append(status.done)))
    )
    waiting.start()
    workers = [start(shared.root) for _ in range(4)]
    for worker in workers[:2]:
        wait_until(lambda: len(chunks(shared.root, "claim.json")) >= 2 and chunks(shared.root, "step-*"), 60)
        worker.kill()
    workers.append(start(shared.root, slowly=False))
    waiting.join(120)
    assert [one.experiment for one in found] == FOUR
    assert results(shared.root) == results(whole.root)
    assert len({(part["host"], part["torch"]) for one in found for part in one.run.made_by}) == 1
    assert [part["members"] for part in found[0].run.made_by] == [[0], [1], [2]]
    assert reports[-1] > 0 and reports == sorted(reports)
    for worker in workers[2:]:
        worker.join(30)
        assert worker.exitcode == 0


@pytest.mark.killed
def test_a_frozen_worker_costs_its_lease_and_is_no_danger_when_it_wakes(tmp_path):
    one = FOUR[0]
    whole, shared = Store(tmp_path / "whole"), Store(tmp_path / "shared")
    run([one], whole, workers=1)
    assert plan([one], shared, chunks=1) == 1
    frozen = start(shared.root, lease=2.0)
    try:
        wait_until(lambda: chunks(shared.root, "step-*"), 60)
        os.kill(frozen.pid, signal.SIGSTOP)
        began = time.monotonic()
        Worker(shared, keep_every=0.0, pause=0.05, lease=2.0).work(until_empty=True)
        assert 1 < time.monotonic() - began < 30
        os.kill(frozen.pid, signal.SIGCONT)
        frozen.join(30)
        assert frozen.exitcode == 0
    finally:
        frozen.kill()
    assert results(shared.root) == results(whole.root)


def freeze_at(root, moment):
    """A worker that stops itself in the middle of a merge, before the checkpoint or the file that `moment` names."""
    os.fsync = lambda descriptor: None
    if moment == "checkpoint":
        write, at = RunDirectory.write_checkpoint, lambda self, step, tensors: step == 80
    else:
        write, at = run_directory.write_json, lambda folder, name, data: name == moment and (folder / "state").exists()

    def stopping(*arguments):
        if at(*arguments) and not (root / "frozen").exists():
            (root / "frozen").touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return write(*arguments)

    if moment == "checkpoint":
        RunDirectory.write_checkpoint = stopping
    else:
        run_directory.write_json = stopping
    Worker(Store(root), pause=0.05, lease=2.0).work(until_empty=True)


@pytest.mark.killed
@pytest.mark.parametrize(("pieces", "moment"), [(3, "checkpoint"), (3, "spec.json"), (1, "manifest.json")])
def test_a_worker_frozen_in_a_merge_costs_its_lease_and_is_no_danger_when_it_wakes(tmp_path, pieces, moment):
    one = FOUR[0]
    whole, shared = Store(tmp_path / "whole"), Store(tmp_path / "shared")
    run([one], whole, workers=1)
    plan([one], shared, chunks=pieces)
    frozen = processes.Process(target=freeze_at, args=(shared.root, moment), daemon=True)
    frozen.start()
    try:
        wait_until(lambda: (shared.root / "frozen").exists() and state_of(frozen.pid) == "T", 60)
        assert not Run(next(shared.root.glob("*/spec.json")).parent).finished
        began = time.monotonic()
        Worker(shared, pause=0.05, lease=2.0).work(until_empty=True)
        assert time.monotonic() - began < 30
        assert one.cell in shared
        os.kill(frozen.pid, signal.SIGCONT)
        frozen.join(30)
        assert frozen.exitcode == 0
    finally:
        frozen.kill()
    (shared.root / "frozen").unlink()
    assert shared.open(one.cell).problems() == []
    assert results(shared.root) == results(whole.root)


def test_two_owners_by_force_cost_time_and_no_data(tmp_path):
    """The second takes the chunk while the first goes on, unaware; what the first writes then is lost."""
    one, store = experiment(), Store(tmp_path)
    plan([one], store, chunks=1)
    first, second = (store.open(one.cell, lease=lease).chunk(0) for lease in (120.0, 0.0))
    with first:
        first.write_state(1, {}, "first")
        claim = next(store.root.rglob("claim.json"))
        os.utime(claim, (0, 0))  # as if it had been silent
        with second:
            assert second.latest_state().metadata == "first"
            second.write_state(2, {}, "second")
            for write in (first.write_state, first.write_checkpoint):
                with pytest.raises(InUseError, match="taken over by another process"):
                    write(3, {})
            with pytest.raises(InUseError):
                first.finish("first")
            assert second.latest_state().metadata == "second"
            second.finish("second")
    assert first.result() == "second"


def test_a_claim_in_time_is_obeyed(tmp_path):
    one, store = experiment(), Store(tmp_path)
    plan([one], store, chunks=1)
    with store.open(one.cell).chunk(0), pytest.raises(InUseError, match=f"in use by process {os.getpid()} on "):
        store.open(one.cell).chunk(0).__enter__()
    with store.open(one.cell).chunk(0) as chunk:
        assert chunk.latest_state() is None


def test_a_chunk_that_fails_is_set_aside_until_it_is_asked_for_again(tmp_path):
    good, store = experiment(duration=4), Store(tmp_path)
    assert plan([BREAKING, good], store) == 6
    said = []
    assert Worker(store, say=said.append).work(until_empty=True) == 6
    assert sum("failed: ZeroDivisionError: it broke" in text for text in said) == 3
    assert good.cell in store and BREAKING.cell not in store
    chunk = store.open(BREAKING.cell).chunk(1)
    assert read_failure(chunk).startswith("ZeroDivisionError: it broke (")
    assert Worker(store).work(until_empty=True) == 0
    assert plan([BREAKING], store) == 3
    assert read_failure(chunk) is None
    threading.Thread(target=Worker(store).work, args=(True,)).start()
    with pytest.raises(AnchorlabError, match="ZeroDivisionError: it broke"):
        finish(store, [BREAKING, good])


def test_a_run_waits_for_the_one_that_it_starts_from(tmp_path):
    from dataclasses import replace

    first = experiment(duration=4)
    second = replace(experiment(duration=6), start=first)
    whole, store = Store(tmp_path / "whole"), Store(tmp_path / "shared")
    run([second], whole, workers=1)
    assert plan([second], store) == 6
    assert Worker(store).work(until_empty=True) == 6
    assert results(store.root) == results(whole.root)


@pytest.mark.slow
def test_a_chunk_begun_here_is_finished_by_workers_and_the_other_way_round(tmp_path):
    one = experiment(checkpoints=Times(every=10))
    whole = Store(tmp_path / "whole")
    plan([one], whole)
    run([one], whole, workers=1)
    for begun in ("here", "there"):
        store = Store(tmp_path / begun)
        plan([one], store)

        def stop(text_or_status):
            if chunks(store.root, "result.*"):  # noqa: B023 - called in this turn
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            if begun == "here":
                run([one], store, workers=1, report=stop)
            else:
                Worker(store, say=stop).work()
        if begun == "here":
            Worker(store).work(until_empty=True)
        else:
            run([one], store, workers=1)
        assert results(store.root) == results(whole.root)


@pytest.mark.untyped  # a value of another type than the annotation names
def test_an_unknown_backend_is_named(tmp_path):
    with pytest.raises(SpecError, match=r"^on: unknown backend 'foldr'; did you mean 'folder'\?"):
        run([experiment()], Store(tmp_path / "store"), on="foldr")
    assert not (tmp_path / "store").exists()
