"""Kill trainings at random, on this machine or on Ray: `python -m tests.engine.kills --on local --kills 30`.

Each strike kills the driver, its whole process group or one worker. Each training is killed up to five times and then
runs to its end; it must leave the same bytes as an uninterrupted one.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from anchorlab.engine import Ray, run
from anchorlab.runs import Store
from tests.engine.killed import FOUR, results

PATIENCE = 300.0  # seconds for one training
COMMAND = "from tests.engine.kills import train; train({root!r}, {on!r})"


def train(root, on):
    """Train four experiments, with states as often as possible."""
    where = Ray(modules=("tests.engine.slowed",)) if on == "ray" else "local"
    run(FOUR, Store(root), 2 if on == "local" else None, on=where, keep_every=0.0)


def children(process):
    """The processes below a process that train, by their command lines."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = path.joinpath("cmdline").read_bytes()
            group = os.getpgid(int(path.name))
        except (OSError, ValueError):
            continue
        if group == process and (b"loky" in words or b"ray::" in words) and b"resource_tracker" not in words:
            found.append(int(path.name))
    return found


def strike(process, chance):
    """Kill the driver, its group or one worker; return the name of what was killed."""
    what = chance.choice(["task", "driver", "group"])
    tasks = children(process.pid)
    if what == "task" and tasks:
        os.kill(chance.choice(tasks), signal.SIGKILL)
        return what
    (os.killpg if what == "group" else os.kill)(process.pid, signal.SIGKILL)
    return "group" if what == "group" else "driver"


def begin(root, on):
    """Start a training in a group of processes of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", COMMAND.format(root=str(root), on=on)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)


def states(root):
    """The states and results; where they change, the training goes on."""
    return set(root.rglob("state/chunk-*/*.safetensors"))


def killed(folder, on, kills, seed):
    """Kill trainings so often in all; return what was struck, and the trainings that ended with other bytes."""
    chance, struck, wrong = random.Random(seed), [], []
    whole = folder / "whole"
    run(FOUR, Store(whole), 1)
    expected, number = results(whole), 0
    while len(struck) < kills:
        root = folder / str(number)
        for _ in range(chance.randint(1, 5)):
            before, end = states(root), time.monotonic() + PATIENCE
            process = begin(root, on)
            while process.poll() is None and states(root) == before and time.monotonic() < end:
                time.sleep(0.02)
            time.sleep(chance.random())
            if process.poll() is None:
                struck.append(strike(process, chance))
            process.wait(PATIENCE)
        if begin(root, on).wait(PATIENCE) != 0:  # a task that was killed is told as a failure, once
            begin(root, on).wait(PATIENCE)
        if results(root) != expected:
            wrong.append(number)
        number += 1
    return struck, wrong


def main():
    """Read the options, kill, and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", choices=["local", "ray"], default="local")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        struck, wrong = killed(Path(folder), asked.on, asked.kills, asked.seed)
    counts = ", ".join(f"{what} {struck.count(what)}" for what in ("task", "driver", "group"))
    print(f"{len(struck)} kills on {asked.on} ({counts}): {len(wrong)} trainings ended with other bytes")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
