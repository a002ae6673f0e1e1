"""Ctrl-C ends a command with exit code 130 and one line."""

import os
import signal
import subprocess
import sys
import time

import pytest

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
