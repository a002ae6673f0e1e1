"""What processes that are to be killed run, and what they leave."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from anchorlab.engine import run
from anchorlab.runs import Store
from anchorlab.training import Evaluation, Times, trainer
from tests.small_experiments import SAMPLE, STREAM, experiment

_OFTEN = {"evaluation": Evaluation(every=20, size=8), "checkpoints": Times(every=30), "precision": "float32"}
LONGER = SAMPLE.replace(duration=400, **_OFTEN)
RECIPES = {"sample": SAMPLE.replace(duration=90, **_OFTEN), "stream": STREAM.replace(duration=90, batch=64, **_OFTEN)}
LONG = experiment(recipe=SAMPLE.replace(duration=10**7, evaluation=Evaluation(every=10**6, size=4)))


def train(root, recipe, execution, workers, begun):
    """Trains to the end, keeping states as often as it can; tells when the first steps are done."""
    os.fsync = lambda descriptor: None  # a killed process loses nothing that it has written
    trainer._REPORT_EVERY = 0.0

    def report(status):
        if status.done:
            begun.set()

    run([experiment(recipe=recipe)], Store(root), workers, execution=execution, report=report, keep_every=0.0)
    begun.set()  # there may have been nothing left to do


def train_for_ever(root, workers, progress):
    """Tells the processes that train, once they have begun."""
    os.setsid()
    os.fsync = lambda descriptor: None

    def report(status):
        if status.done:
            progress.put([process.pid for process in multiprocessing.active_children()])

    run([LONG], Store(root), workers, report=report, keep_every=0.0)


STATES = "state/chunk-*/step-*.safetensors"


class _Enough(Exception):
    """What a test stops a training with."""


def stop_when(experiments, root, pattern=STATES, count=1, keep_every=0.0, **arguments):
    """Trains in this process until so many files are there, then stops it from within."""

    def report(status):
        if len(list(root.rglob(pattern))) >= count:
            raise _Enough

    with pytest.raises(_Enough):
        run(experiments, root, workers=1, report=report, keep_every=keep_every, **arguments)


def contents(path):
    """Every file below a directory, by its relative name."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def results(path):
    """The files that a run's numbers are in.

    Beside them stand the commit, which may change while the tests run, and a lock file. The kernel holds the lock and
    lets go of it with the process; one killed between finishing a run and removing the file leaves that behind. A
    worker that is killed leaves its folder in `workers`.
    """
    beside, workers = ("spec.json", "manifest.json", "lock"), "workers/"
    found = contents(path).items()
    return {name: data for name, data in found if not name.endswith(beside) and not name.startswith(workers)}


def runs_still(process):
    """Whether a process is there and no zombie."""
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # gone meanwhile, or a system without /proc, where it was there
        return not Path("/proc/self").exists()


def wait_until(holds, seconds=30.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
