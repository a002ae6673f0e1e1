"""`make faults`: kills, power cuts, full disks, flipped bits, two owners, stopped workers.

    python -m tests.faults --kills 200 --full 20 --flips 1000 --owners 10 --cuts 50 --stopped 10
    python -m tests.faults --seed 0 --jobs 4 --report FILE
    python -m tests.faults --seed 0 --only folder:17

Kinds of faults are played side by side, each in a process of its own.

The exit code is 1 if any fault has cost something; that case can be repeated alone by its name.
"""

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.faults.play import alone, counts, play, prepared
from tests.faults.report import report

COUNTS = {"kills": 200, "full": 20, "flips": 1000, "owners": 10, "cuts": 50, "stopped": 10}
"""How many faults of each kind there are to be, by default."""


def main(arguments: list[str]) -> int:
    """Inject the faults and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    for name, count in (*COUNTS.items(), ("seed", 0), ("jobs", 4)):
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--only", metavar="CASE")
    asked = parser.parse_args(arguments)
    wanted = counts(*(getattr(asked, name) for name in COUNTS))
    began = time.monotonic()
    if asked.only:
        with prepared() as (expected, folder):
            case = alone(asked.only, asked.seed, expected, folder)
        print(f"{case.name}: {len(case.faults)} faults, {case.faults}", *case.cost, sep="\n  ")
        return bool(case.cost)
    with ProcessPoolExecutor(asked.jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        played = [pool.submit(play, name, count, asked.seed) for name, count in wanted.items() if count]
        for _ in as_completed(played):  # so that a long run leaves what it has found when it is ended
            parts = [one.result() for one in played if one.done()]
            text = report(parts, asked.seed, time.monotonic() - began)
            if asked.report:
                asked.report.write_text(text)
    print(text)
    failed = [case for part in parts for case in part.failed]
    for case in failed:
        print(f"repeat it: python -m tests.faults --seed {asked.seed} --only {case.name}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
