"""A run that was killed, again and again, ends with the bytes of one that never was."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import polars as pl
import pytest

from anchorlab.engine import local, run
from anchorlab.engine.driver import Driver
from anchorlab.errors import AnchorlabError, IncompleteError, StoreError
from anchorlab.runs import Store
from anchorlab.training import SGD, Evaluation, Experiment, Members, Stop, Times
from tests.engine.killed import (
    LONG,
    RECIPES,
    check_kills,
    results,
    runs_still,
    stop_when,
    train,
    train_for_ever,
    trained,
    wait_until,
)
from tests.processes import processes
from tests.runs.tiny_trainer import held
from tests.small_experiments import BREAKING, KINDS, SAMPLE, STREAM, experiment, smoothed, worst

pytestmark = pytest.mark.usefixtures("often")


@pytest.mark.killed
@pytest.mark.parametrize(
    ("execution", "data"),
    [
        ("member", "sample"),
        ("mapped", "stream"),
        pytest.param("member", "stream", marks=pytest.mark.nightly),
        pytest.param("mapped", "sample", marks=pytest.mark.nightly),
    ],
)
def test_killed_at_any_moment_in_this_process(tmp_path, execution, data):
    arguments = (train, RECIPES[data], execution, 1)
    expected, chance = trained(tmp_path / "whole", *arguments), random.Random(f"{execution} {data}")
    assert check_kills(tmp_path, 8, RECIPES[data].duration, chance, expected, *arguments) >= 3


@pytest.mark.killed
def test_killed_at_any_moment_in_two_processes(tmp_path):
    arguments = (train, RECIPES["sample"], "auto", 2)
    expected = trained(tmp_path / "whole", *arguments)
    assert check_kills(tmp_path, 5, RECIPES["sample"].duration, random.Random(0), expected, *arguments) >= 3


EVERY = {"evaluation": Evaluation(every=5, size=8), "checkpoints": Times(every=10)}
VARIED = {
    "bfloat16": experiment(precision="bfloat16", **EVERY),
    "float64": experiment(**EVERY),
    "momentum": experiment("recall", STREAM, optimiser=SGD(momentum=0.9), **EVERY),
    "plain descent": experiment("vectors", STREAM, optimiser=SGD(), **EVERY),
    "epochs": experiment(unit="epochs", duration=10, evaluation=Evaluation(every=2, size=8)),
    "own module": experiment("own module with tied weights", **EVERY),
    "stop rule": experiment(stop=Stop(metric="loss", split="train", value=5.4, direction="below"), **EVERY),
    "sizes": experiment(batch=8, members=Members(seeds=(0, 1), data_size=(16, 40)), **EVERY),
    "own loss": experiment(loss=smoothed(share=0.3), **EVERY),
    "held": experiment(members=Members(seeds=(0, 1), hold={"data": 3, "order": 1}), **EVERY),
}


@pytest.mark.slow
@pytest.mark.equal_bytes
@pytest.mark.parametrize("name", VARIED)
def test_every_recipe_goes_on_with_the_same_bytes(name, tmp_path):
    one = VARIED[name]
    whole, again = Store(tmp_path / "whole"), Store(tmp_path / "again")
    run([one], whole, workers=1)
    stop_when([one], again.root)
    run([one], again, workers=1)
    assert results(again.root) == results(whole.root)


@pytest.mark.equal_bytes
def test_a_run_goes_on_in_the_execution_it_began_with(tmp_path):
    one = experiment(**EVERY, precision="float32")
    whole, again = Store(tmp_path / "whole"), Store(tmp_path / "again")
    run([one], whole, workers=1, execution="member")
    stop_when([one], again.root, execution="member")
    run([one], again, workers=1, execution="mapped")
    assert results(again.root) == results(whole.root)


@pytest.mark.killed
def test_an_unfinished_plan_is_obeyed_with_any_number_of_workers(tmp_path, monkeypatch):
    """Three members in two processes are two chunks, also when one process goes on alone."""
    divided, take = [], Driver._take

    def heard(self, count):
        jobs = take(self, count)
        divided.extend(self._chunks[job.chunks[0]].members.seeds for job in jobs)
        return jobs

    monkeypatch.setattr(Driver, "_take", heard)
    one = experiment(**EVERY, precision="float32")
    whole, again = Store(tmp_path / "whole"), Store(tmp_path / "again")
    with whole.open(one.cell) as directory:
        plan = directory.plan({"chunks": [[0], [1, 2]], "threads": 1, "execution": "mapped"})
    run([one], whole, workers=1, execution="mapped")
    with again.open(one.cell) as directory:
        directory.plan(plan)
    run([one], again, workers=2, execution="mapped")
    assert results(again.root) == results(whole.root)
    assert divided == [(0,), (1, 2)] * 2
    run([one], Store(tmp_path / "alone"), workers=1, execution="mapped")
    assert divided[4:] == [(0, 1, 2)]  # what one process does without a plan


@pytest.mark.equal_bytes
def test_one_by_one_the_division_changes_no_bit(tmp_path):
    one = experiment(**EVERY, precision="float32")
    stores = [Store(tmp_path / name) for name in ("together", "apart")]
    for store, chunks in zip(stores, ([[0, 1, 2]], [[0], [1, 2]]), strict=True):
        with store.open(one.cell) as directory:
            directory.plan({"chunks": chunks, "threads": 1, "execution": "member"})
        run([one], store, workers=1, execution="member")
    assert results(stores[0].root) == results(stores[1].root)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_damaged_state_starts_its_chunk_over_and_says_so(tmp_path, workers):
    """The other chunk goes on from where it was, and the other runs are trained."""
    one, other = experiment(**EVERY), experiment("recall", duration=4)
    whole, again = Store(tmp_path / "whole"), Store(tmp_path / "again")
    for store in (whole, again):
        with store.open(one.cell) as directory:
            directory.plan({"chunks": [[0], [1, 2]], "threads": 1, "execution": "auto"})
    run([one, other], whole, workers=1)
    stop_when([one], again.root)
    (state,) = again.root.rglob("state/chunk-0000.*/step-*.safetensors")
    state.write_bytes(state.read_bytes()[:-5])
    notes = []
    run([one, other], again, workers=workers, report=lambda status: status.note and notes.append(status.note))
    (note,) = notes
    assert note.endswith(
        f"{state.name}: damaged: truncated or altered after it was written; "
        "anchor/identity, seed 0 starts over from its first step"
    )
    assert results(again.root) == results(whole.root)


def test_a_state_of_another_arithmetic_starts_over_and_says_so(tmp_path, monkeypatch):
    """Its steps would be those of two kinds in one run."""
    one, again = experiment(**EVERY), Store(tmp_path / "again")
    run([one], tmp_path / "whole", workers=1)
    with monkeypatch.context() as before:
        before.setattr("anchorlab.training.checkpoint.ARITHMETIC", "1")
        stop_when([one], again.root)
    notes = []
    run([one], again, workers=1, report=lambda status: status.note and notes.append(status.note))
    (note,) = notes
    assert note.endswith(
        "chunk-0000: was kept by a version that computes in another way; "
        "anchor/identity, seeds 0, 1, 2 starts over from its first step"
    )
    assert results(again.root) == results(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["result.*", "checkpoints/step-00000010.*"])
def test_damage_that_is_found_when_a_run_is_merged_is_named_with_its_remedy(tmp_path, name):
    one = experiment(**EVERY)
    again = Store(tmp_path)
    with again.open(one.cell) as directory:
        directory.plan({"chunks": [[0], [1, 2]], "threads": 1, "execution": "auto"})
    stop_when([one], again.root, "state/chunk-*/result.*", keep_every=20.0)
    (file,) = again.root.rglob(f"state/chunk-*/{name}")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)
    remedy = rf"{file.name}: damaged.*; remove the run with `anchorlab runs remove {one.cell.address}`"
    with pytest.raises(StoreError, match=remedy):
        run([one], again, workers=1)
    assert [path.name for path in again.root.rglob("manifest.json")] == []


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_piece_that_fails_is_set_aside_and_the_others_go_on(tmp_path, workers):
    good, other, store = experiment(duration=4), experiment("recall", duration=4), Store(tmp_path)
    with pytest.raises(IncompleteError) as caught:
        run([BREAKING, good, other], store, workers=workers)
    assert good.cell in store and other.cell in store and BREAKING.cell not in store
    seeds = {1: ["breaking, seeds 0, 1, 2"], 2: ["breaking, seed 0", "breaking, seeds 1, 2"]}
    assert sorted(piece for piece, _ in caught.value.failures) == seeds[workers]
    assert " failed: ZeroDivisionError: it broke" in str(caught.value)
    assert len(caught.value.lines) == 1
    assert "\n" not in str(caught.value)


def test_the_only_piece_that_fails_is_its_own_error(tmp_path):
    with pytest.raises(ZeroDivisionError, match="it broke"):
        run([BREAKING], Store(tmp_path), workers=1)


def test_a_run_whose_files_are_damaged_does_not_stop_the_others(tmp_path):
    one, other, store = experiment(**EVERY), experiment(duration=4), Store(tmp_path)
    stop_when([one], store.root)
    plan = store.root / one.cell.address / "state" / "plan.json"
    plan.write_bytes(b"{}")
    with pytest.raises(IncompleteError, match=r"plan\.json: damaged.*remove the run with"):
        run([one, other], store, workers=1)
    assert other.cell in store
    store.remove(one.cell.address)
    run([one, other], store, workers=1)


def test_an_interrupted_run_lets_go_of_its_locks(tmp_path):
    one, store = experiment(**EVERY), Store(tmp_path)
    stop_when([one], store.root)
    with store.open(one.cell) as directory, directory.chunk(0):
        assert not directory.finished


def test_a_chunk_that_another_process_has_begun_fails_and_the_others_are_trained(tmp_path):
    """As a job of Slurm does that an earlier command has sent, when it is queued again."""
    one, other, store = experiment(**EVERY), experiment("recall", duration=4), Store(tmp_path)
    taken = []

    def report(status):
        if status.done and not taken:
            taken.append(store.open(one.cell).chunk(0).__enter__())

    with pytest.raises(IncompleteError, match=r"chunk-0000.*cannot be written: No such file"):
        run([one, other], store, workers=1, report=report, keep_every=0.0)
    assert other.cell in store and one.cell not in store
    run([one], store, workers=1)


def test_whoever_waits_without_a_report_logs_for_whom_once(tmp_path, caplog):
    store, one = Store(tmp_path), experiment(duration=4)
    waiting = threading.Thread(target=run, args=([one], store, 1))
    with held(store.training):
        waiting.start()
        wait_until(lambda: caplog.records)
        time.sleep(0.6)  # it says so again, and does not log it
    waiting.join(60)
    assert one.cell in store
    (record,) = caplog.records
    assert (
        record.getMessage() == f"waiting for process {os.getpid()} on {os.uname().nodename}, which trains in {tmp_path}"
    )


def train_at_once(root, outcome):
    try:
        run([experiment(recipe=RECIPES["sample"])], Store(root), 1)
    except AnchorlabError as error:
        outcome.put(str(error))
    else:
        outcome.put("finished")


@pytest.mark.killed
def test_two_processes_that_train_the_same(tmp_path):
    expected = trained(tmp_path / "alone", train, RECIPES["sample"], "auto", 1)
    outcome = processes.Queue()
    children = [processes.Process(target=train_at_once, args=(tmp_path / "both", outcome)) for _ in range(2)]
    for child in children:
        child.start()
    said = [outcome.get(timeout=60) for _ in children]
    for child in children:
        child.join(60)
    assert said == ["finished"] * 2
    assert results(tmp_path / "both") == expected


@pytest.mark.killed
@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_workers_end_with_the_run(tmp_path, how):
    progress = processes.Queue()
    child = processes.Process(target=train_for_ever, args=(tmp_path, 2, progress))
    child.start()
    try:
        workers = progress.get(timeout=60)
        assert len(workers) == 2
        assert all(runs_still(worker) for worker in workers)
        if how == "killed":
            child.kill()
        else:
            os.killpg(child.pid, signal.SIGINT)
        wait_until(lambda: not any(runs_still(worker) for worker in workers))
        child.join(30)
        assert child.exitcode not in (None, 0)
    finally:
        child.kill()
    with Store(tmp_path).training(5.0), Store(tmp_path).open(LONG.cell) as directory:
        assert not directory.finished


@pytest.mark.killed
def test_a_worker_that_is_killed_costs_its_job_alone(tmp_path, monkeypatch):
    """The one that is killed has begun: a process that dies before that ends the training."""
    one, other = experiment(duration=400, **EVERY), experiment("recall", duration=400, **EVERY)
    team, dead, start = [], [], local._Process.start

    def noted(self, job):
        team.append(self)
        start(self, job)

    def killed(status):
        if status.done and not dead:
            dead.append(team[0]._number.result())
            os.kill(dead[0], signal.SIGKILL)

    monkeypatch.setattr(local._Process, "start", noted)
    store = Store(tmp_path)
    with pytest.raises(IncompleteError, match="a training process was killed by SIGKILL: out of memory") as caught:
        run([one, other], store, workers=2, report=killed)
    assert len(caught.value.failures) == 1
    assert sum(cell in store for cell in (one.cell, other.cell)) == 1
    run([one, other], store, workers=2)


@pytest.mark.killed
def test_a_dead_worker_is_an_error_of_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_begin", _die)
    with pytest.raises(AnchorlabError, match="a training process died") as caught:
        run([experiment(members=Members(seeds=(0, 1)))], Store(tmp_path), workers=2)
    assert "\n" not in str(caught.value)


def _die(parent):
    os._exit(1)


SCRIPT = """
import sys
import threading
import time
from pathlib import Path
sys.path[:0] = {paths!r}
from tests.engine.killed import results, experiment, RECIPES, run, Store
if __name__ == "__main__":
    for data in RECIPES:
        for execution in ("member", "mapped"):
            run([experiment("vectors", RECIPES[data], duration=40)], Store(Path(sys.argv[1]) / data / execution), 1,
                execution=execution)
"""


@pytest.mark.killed
def test_two_processes_compute_the_same_bytes(tmp_path):
    """Products, sums and exponentials give the same last bits in any process, wherever its memory lies."""
    here = Path(__file__).parent
    script = SCRIPT.format(paths=[str(here), str(here.parent)])
    children = []
    for seed in ("1", "2"):
        padding = "x" * int(seed) * 4099  # moves what lies behind it in memory
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PADDING": padding}
        children.append(subprocess.Popen([sys.executable, "-c", script, str(tmp_path / seed)], env=environment))
    assert [child.wait(timeout=120) for child in children] == [0, 0]
    found = [results(tmp_path / seed) for seed in ("1", "2")]
    assert len(found[0]) >= 4 * 2
    assert {name for name in found[0] if found[0][name] != found[1][name]} == set()


def test_a_stop_rule_gives_the_same_checkpoints_however_members_are_divided(tmp_path):
    """Members that rest early stand in later checkpoints with their last weights, also in a chunk of their own."""
    bound = 5.35
    stop = Stop(metric="loss", split="train", value=bound, direction="below")
    recipe = SAMPLE.replace(
        duration=60,
        schedule={"kind": "constant"},
        stop=stop,
        evaluation=Evaluation(every=5, size=24),
        checkpoints=Times(every=20),
    )
    one = Experiment(*KINDS["decoder"], recipe, Members(seeds=(0, 1, 2)))
    stores = [Store(tmp_path / name) for name in ("together", "apart")]
    with stores[1].open(one.cell) as directory:
        directory.plan({"chunks": [[0], [1], [2]], "threads": 1, "execution": "auto"})
    together, apart = (run([one], store, workers=1)[0] for store in stores)
    ends = dict(together.metrics.group_by("member").agg(pl.col("step").max()).rows())
    assert len(set(ends.values())) > 1
    assert apart.checkpoints == together.checkpoints
    for step in together.checkpoints:
        assert worst(apart.ensemble(step).weights, together.ensemble(step).weights) < 1e-12


def test_what_a_process_leaves_that_was_killed_just_after_finishing_is_removed(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(self):
        raise Killed

    one, store = experiment(**EVERY), Store(tmp_path)
    with monkeypatch.context() as changed, pytest.raises(Killed):
        changed.setattr("anchorlab.runs.RunDirectory._clear", killed)
        run([one], store, workers=1)
    directory = store.root / one.cell.address
    assert one.cell in store and (directory / "state").exists()
    run([one], store, workers=1)
    assert sorted(path.name for path in directory.iterdir()) == [
        "checkpoints",
        "manifest.json",
        "metrics.parquet",
        "spec.json",
    ]
