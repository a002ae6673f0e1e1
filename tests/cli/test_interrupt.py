"""Ctrl-C ends a command with exit code 130 and one line."""

import os
import signal
import subprocess
import sys

import pytest

MAIN = "import sys; from anchorlab.cli import main; sys.exit(main())"
SAID = "anchorlab: interrupted; run the same command again to continue from the last state\n"


def test_an_interrupted_command_returns_130(anchorlab, small, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("anchorlab.engine.run", interrupted)
    said = anchorlab("train", "anchor/identity", *small)
    assert (said.code, said.out, said.err) == (130, "", SAID)


@pytest.mark.killed
@pytest.mark.slow
def test_an_interrupted_training_of_two_processes_exits_with_130(workplace, small):
    options = [option for option in small if not option.startswith(("--recipe.duration", "--workers"))]
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "train", "anchor/identity", *options, "--recipe.duration=10000000", "--workers=2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # its own process group, which a terminal interrupts as a whole
    )
    assert process.stderr is not None
    for line in process.stderr:
        if " left" in line:  # training goes on
            break
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err[-len(SAID) :]) == (130, "", SAID)
    assert "Traceback" not in err
