"""What ends a command early: Ctrl-C and SIGTERM, pieces that fail, disks that are full."""

import os
import signal
import subprocess
import sys
import time

import pytest

from anchorlab.engine import run
from anchorlab.errors import IncompleteError, StoreError
from anchorlab.runs import Store
from anchorlab.training import Evaluation, Times
from tests.small_disk import NoDiskError, small_disk
from tests.small_experiments import BREAKING, experiment, worst

MAIN = """import signal, sys; from anchorlab.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts the tests in the background ignores it
sys.exit(main())"""
SAID = "anchorlab: interrupted; run the same command again to continue from the last state\n"


def test_an_interrupted_command_returns_130(anchorlab, small, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("anchorlab.engine.run", interrupted)
    said = anchorlab("train", "anchor/identity", *small)
    assert (said.code, said.out, said.err) == (130, "", SAID)


def begun(small, *options):
    """A command that trains for ever, in its own process group, which a terminal interrupts as a whole."""
    kept = [option for option in small if not option.startswith(("--recipe.duration", "--workers"))]
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "train", "anchor/identity", *kept, "--recipe.duration=10000000", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if " left" in line:  # training goes on
            break
    return process


def states(workplace):
    return set((workplace / "runs").rglob("state/chunk-*/step-*.safetensors"))


@pytest.mark.killed
@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "number", "times", "to_all"),
    [
        (1, signal.SIGTERM, 1, False),  # `kill`
        (2, signal.SIGINT, 5, True),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in [
                (1, signal.SIGINT, 1, True),
                (2, signal.SIGINT, 1, True),
                (1, signal.SIGINT, 5, True),
                (2, signal.SIGTERM, 1, False),
                (1, signal.SIGTERM, 1, True),  # a scheduler
                (2, signal.SIGTERM, 1, True),
            ]
        ),
    ],
)
def test_a_training_that_is_ended_keeps_its_state_and_says_how_to_go_on(
    workplace, small, workers, number, times, to_all
):
    code, word = (130, "interrupted") if number == signal.SIGINT else (143, "terminated")
    process = begun(small, f"--workers={workers}")
    before = states(workplace)  # none, unless twenty seconds have passed
    for _ in range(times):
        (os.killpg if to_all else os.kill)(process.pid, number)
        time.sleep(0.1)
    out, err = process.communicate(timeout=60)
    said = SAID.replace("interrupted", word)
    assert (process.returncode, out, err[-len(said) :]) == (code, "", said)
    assert "Traceback" not in err
    assert states(workplace) - before
    assert len(states(workplace)) <= workers  # one may have been starting still


def test_the_pieces_that_failed_are_listed_with_exit_code_1(anchorlab, small, monkeypatch):
    def failing(experiments, store, *rest, **named):
        return run([BREAKING, *experiments], store, workers=1)

    monkeypatch.setattr("anchorlab.engine.run", failing)
    said = anchorlab("train", "anchor/identity", *small)
    assert (said.code, said.out) == (1, "")
    assert said.err.splitlines() == [
        "anchorlab: breaking, seeds 0, 1, 2 failed: ZeroDivisionError: it broke",
        "anchorlab: everything else is finished; run the same command again to try these once more",
    ]


@pytest.fixture
def disk(tmp_path):
    """A function that gives a file system of so many kilobytes; called again, it changes the size."""
    with small_disk(tmp_path / "disk") as sized:
        try:
            sized(20)
        except NoDiskError as error:
            pytest.skip(str(error))
        yield sized


LARGE = experiment(checkpoints=Times(every=10), evaluation=Evaluation(every=10, size=8))  # four checkpoints of 254 kB


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [[[0, 1, 2]], [[0], [1, 2]]])
def test_a_full_disk_is_named_and_the_run_goes_on_where_there_is_space_again(tmp_path, disk, chunks):
    """It ends on a disk that holds its checkpoints once, and one of them twice."""
    expected = run([LARGE], Store(tmp_path / "whole"), workers=1)[0]
    store = Store(disk(20) / "runs")
    with store.open(LARGE.cell) as directory:
        directory.plan({"chunks": chunks, "threads": 1, "execution": "auto"})
    for size in (40, 300, 600, 900):
        disk(size)
        error = (StoreError, IncompleteError)  # one piece has failed, or more than one
        with pytest.raises(error, match=r"cannot be written: No space left on device$") as caught:
            run([LARGE], store, workers=1)
        assert "{" not in str(caught.value) and "\n" not in str(caught.value)
    disk(1450)
    found = run([LARGE], store, workers=1)[0]
    assert found.metrics.drop("value").equals(expected.metrics.drop("value"))
    for step in expected.checkpoints:
        assert worst(found.ensemble(step).weights, expected.ensemble(step).weights) < 1e-12
    assert found.run.problems() == []
