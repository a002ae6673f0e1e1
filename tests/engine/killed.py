"""What processes that are to be killed run, and what they leave."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from anchorlab.engine import local, run
from anchorlab.engine.driver import Driver
from anchorlab.engine.plan import planned as planned_for
from anchorlab.runs import Store
from anchorlab.training import Evaluation, Times, trainer
from tests.processes import begin_forked, fork_workers_from_the_same_server, processes
from tests.small_experiments import SAMPLE, STREAM, experiment

_OFTEN = {"evaluation": Evaluation(every=20, size=8), "checkpoints": Times(every=30), "precision": "float32"}
RECIPES = {"sample": SAMPLE.replace(duration=90, **_OFTEN), "stream": STREAM.replace(duration=90, batch=64, **_OFTEN)}
FOUR = [
    experiment(kind, recipe.replace(duration=160, **_OFTEN))
    for kind, recipe in [("decoder", SAMPLE), ("decoder", STREAM), ("recall", SAMPLE), ("own recurrent module", SAMPLE)]
]
LONG = experiment(recipe=SAMPLE.replace(duration=10**7, evaluation=Evaluation(every=10**6, size=4)))


def keep_often():
    """Lets this process keep a state after every step, without waiting for the disk."""
    os.fsync = lambda descriptor: None  # a killed process loses nothing that it has written
    trainer._LEAST_TRAINING_PER_KEEPING = 0


def begin_keeping_often(parent):
    keep_often()
    begin_forked(parent)


def train(root, recipe, execution, workers):
    """Trains to the end; this process and its workers keep states as often as they can."""
    keep_often()
    fork_workers_from_the_same_server()
    local._begin = begin_keeping_often
    run([experiment(recipe=recipe)], Store(root), workers, execution=execution, keep_every=0.0)


def trained(root, train, *arguments):
    """The bytes of a training in a process of its own without interruption."""
    child = processes.Process(target=train, args=(root, *arguments))
    child.start()
    child.join()
    assert child.exitcode == 0
    return results(root)


def check_kills(directory, kills, steps, chance, expected, train, *arguments):
    """Kills a training of so many steps again and again, at random steps; each run ends with the bytes expected.

    Returns how often one was killed that had a state to go on from.
    """
    done = with_state = runs = 0
    while done < kills:
        root, finished = directory / f"killed-{runs}", False
        while not finished and done < kills:
            child = processes.Process(target=train, args=(root, *arguments))
            child.start()
            if chance.random() < 0.2:  # it may not have begun
                child.join(0.3 * chance.random())
            else:
                _wait_for_step(root, chance.randrange(int(1.4 * steps)), child)
                child.join(0.005 * chance.random())  # at any moment of a step
            child.kill()
            child.join()
            assert child.exitcode in (0, -signal.SIGKILL)
            finished = child.exitcode == 0
            done += not finished
            with_state += not finished and any(root.rglob(STATES))
        assert trained(root, train, *arguments) == expected
        runs += 1
    return with_state


def _wait_for_step(root, step, child):
    """Wait until some chunk has kept a state of a step, or until the process has ended."""
    while child.is_alive() and step > _newest(root):
        time.sleep(0.001)


def _newest(root):
    """The step of the newest state, 0 without one."""
    try:
        return max((int(path.name.split(".")[0].removeprefix("step-")) for path in root.rglob(STATES)), default=0)
    except FileNotFoundError:  # a folder is removed meanwhile
        return 0


def train_for_ever(root, workers, progress):
    """Tells the processes that train, once they have begun."""
    os.setsid()
    os.fsync = lambda descriptor: None

    def report(status):
        if status.done:
            progress.put([process.pid for process in multiprocessing.active_children()])

    run([LONG], Store(root), workers, report=report, keep_every=0.0)


STATES = "state/chunk-*/step-*.safetensors"


def planned(experiments, store):
    """Record the plans of runs, with their places in a pass that they share, and train nothing."""
    todo = {one.cell.address: one for one in experiments}
    plans = planned_for(todo, experiments, None, "cpu", "auto", here=False)
    list(Driver(store, todo, plans, None, "cpu", 0.0, lambda status: None)._jobs())


class _Enough(Exception):
    """What a test stops a training with."""


def stop_when(experiments, root, pattern=STATES, count=1, keep_every=0.0, **arguments):
    """Trains in this process until so many files are there, then stops it from within."""

    def report(status):
        if len(list(root.rglob(pattern))) >= count:
            raise _Enough

    with pytest.raises(_Enough):
        run(experiments, root, workers=1, report=report, keep_every=keep_every, **arguments)


def chunks(root, what):
    return list(root.rglob(f"state/chunk-*/{what}"))


def contents(path):
    """Every file below a directory, by its relative name."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def results(path):
    """The files that a run's numbers are in.

    Beside them stand the commit, which may change while the tests run, and the lock of the store.
    """
    beside = ("spec.json", "manifest.json", "lock", "plugins.json")
    return {name: data for name, data in contents(path).items() if not name.endswith(beside)}


def runs_still(process):
    """Whether a process is there and no zombie."""
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # gone meanwhile, or a system without /proc, where it was there
        return not Path("/proc/self").exists()
