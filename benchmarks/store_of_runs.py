"""Seconds to build the experiments of a large store, to list its runs, to find some of them and to read their metrics.

    python benchmarks/store_of_runs.py FOLDER [--runs 10000] [--members 4] [--evaluations 20] [--json]

Fills the folder with made-up runs first, where it has fewer: real specifications and files, metrics without training.
The first listing makes the index; the first one with a metric reads every table of metrics.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from anchorlab.models import DecoderSpec
from anchorlab.runs import Index, Store, metrics_frame
from anchorlab.tasks import task
from anchorlab.training import Experiment, Members, Recipe

TASKS = ("anchor/identity", "anchor/composite")


def experiment(index: int, members: int, evaluations: int) -> Experiment:
    """The experiment of one run: neighbours differ in layers, heads, learning rate, task and seeds."""
    rate = (1e-4, 3e-4, 1e-3, 3e-3)[index // 12 % 4]
    name = TASKS[index // 48 % 2]
    return Experiment(
        task(name),
        DecoderSpec(layers=1 + index % 4, heads=1 + index // 4 % 3, width=8, head_width=4),
        Recipe(
            duration=100 * evaluations,
            unit="steps",
            batch=50,
            data={"kind": "sample", "size": 1000},
            optimiser={"kind": "adamw", "learning_rate": rate},
            evaluation={"every": 100},
        ),
        Members(seeds=range(index // 96 * members, (index // 96 + 1) * members)),
        label=name,
    )


def rows(seeds: list[int], splits: tuple[str, ...], evaluations: int, chance: random.Random) -> list[list]:
    """Losses that fall and accuracies that rise, at a member's own pace."""
    found: list[list] = []
    for member, seed in enumerate(seeds):
        pace, end = chance.uniform(1, 8), chance.uniform(0.5, 1)
        for step in range(evaluations + 1):
            learned = end * (1 - math.exp(-pace * step / evaluations))
            for split in splits:
                at = [member, seed, 100 * step, split, "all", "none"]
                found += [[*at, "loss", 5.3 * (1 - learned)], [*at, "accuracy", learned]]
    return found


def fill(folder: Path, runs: int, members: int, evaluations: int) -> None:
    os.fsync = lambda descriptor: None  # type: ignore[assignment]  # made-up runs need not survive a power cut
    store, chance, addresses = Store(folder), random.Random(0), []
    for index in range(runs):
        one = experiment(index, members, evaluations)
        with store.open(one.cell) as run:
            if not run.finished:
                table = metrics_frame(rows(list(one.members.seeds), one.task.splits, evaluations, chance))
                run.finish(table, checkpoints=())
            addresses.append(run.address)
        if (index + 1) % 1000 == 0:
            print(f"{index + 1} of {runs} runs", flush=True)


COMMANDS = {
    "first listing, which makes the index": [],
    "first page": [],
    "a field": ["--where", "model.layers=2"],
    "a field, sorted by another": ["--where", "model.layers=2", "--sort", "learning_rate"],
    "first use of a metric": ["--where", "test.accuracy>0.9"],
    "a metric": ["--where", "test.accuracy>0.9"],
}


def seconds(folder: Path, options: list[str]) -> tuple[float, float]:
    """Wall-clock and processor seconds of `anchorlab runs`, its start included."""
    began, before = time.perf_counter(), os.times()
    command = [sys.executable, "-m", "anchorlab", "runs", "--store", str(folder), *options]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, os.times()
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, busy


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and processor seconds of some work in this process."""
    began, before = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - before


def in_python(store: Store, runs: int, members: int, evaluations: int) -> dict[str, tuple[float, float]]:
    """Seconds of what a study does with its runs."""
    experiment(0, members, evaluations)
    made: list[Experiment] = []
    return {
        "building the experiments": timed(
            lambda: made.extend(experiment(index, members, evaluations) for index in range(runs))
        ),
        "their addresses": timed(lambda: [one.cell.address for one in made]),
        "which of them are finished": timed(lambda: [one.cell in store for one in made]),
        "all metrics as one frame": timed(store.metrics),
        "the metrics of 1000 runs, one by one": timed(lambda: [run.metrics() for run in store.runs()[:1000]]),
    }


def files(root: Path) -> tuple[int, int]:
    """The files and folders below a store, and the bytes that the disk holds for them."""
    paths = list(root.rglob("*"))
    return len(paths), sum(512 * path.lstat().st_blocks for path in paths)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("--runs", type=int, default=10_000)
    options.add_argument("--members", type=int, default=4)
    options.add_argument("--evaluations", type=int, default=20)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    store = Store(chosen.folder)
    if len(store.runs()) < chosen.runs:
        fill(chosen.folder, chosen.runs, chosen.members, chosen.evaluations)
    Index(store.root).path.unlink(missing_ok=True)
    found = {name: seconds(chosen.folder, given) for name, given in COMMANDS.items()}
    found |= in_python(store, chosen.runs, chosen.members, chosen.evaluations)
    inodes, size = (number / chosen.runs for number in files(store.root))
    if chosen.json:
        rows = {name: {"wall": round(wall, 3), "processor": round(busy, 3)} for name, (wall, busy) in found.items()}
        print(json.dumps({"runs": chosen.runs, "inodes": inodes, "bytes": size, "seconds": rows}, indent=2))
        return
    print(f"each run: {inodes:.3g} files and folders, {size / 1000:.3g} kB of the disk")
    print(f"{chosen.runs} runs{'':27}{'wall':>8}{'processor':>11}   seconds")
    for name, (wall, busy) in found.items():
        print(f"{name:38}{wall:>8.2f}{busy:>11.2f}")


if __name__ == "__main__":
    main()
