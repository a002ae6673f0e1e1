"""`make faults`: hundreds of kills, full disks, flipped bits and chunks with two owners, and what they cost.

    python -m tests.faults --kills 200 --full 20 --flips 1000 --owners 20 --seed 0 --report FILE
    python -m tests.faults --seed 0 --only folder:17

The exit code is 1 if any fault has cost something; that case can be repeated alone by its name.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from tests.faults import bit_flips, full_disk, kills, two_owners
from tests.faults.case import Case
from tests.faults.judge import Reference, reference
from tests.faults.kills import CREWS
from tests.faults.report import Part, report
from tests.small_disk import NoDiskError

_TELL_EVERY = 10.0  # seconds

SHARES = {"local": 35, "processes": 20, "folder": 35, "ray": 10}
"""Per cent of the kills."""

NAMES = {
    "local": "kills, one process",
    "processes": "kills, two processes of this machine",
    "folder": "kills, four workers on a folder",
    "ray": "kills, three nodes of Ray",
    "full-disk": "full disk",
    "bit-flip": "bit flips",
    "two-owners": "two owners of a chunk",
}


def main(arguments: list[str]) -> int:
    """Inject the faults and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    for name, count in (("kills", 200), ("full", 20), ("flips", 1000), ("owners", 20), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--only", metavar="CASE")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as temporary:
        folder, began = Path(temporary), time.monotonic()
        expected = reference(folder / "reference")
        if asked.only:
            case = alone(asked.only, asked.seed, expected, folder)
            print(f"{case.name}: {len(case.faults)} faults, {case.faults}", *case.cost, sep="\n  ")
            return bool(case.cost)
        parts = []
        for name, count in counts(asked.kills, asked.full, asked.flips, asked.owners).items():
            if count:
                parts.append(play(name, count, asked.seed, expected, folder))
        seconds = time.monotonic() - began
    text = report(parts, asked.seed, seconds)
    if asked.report:
        asked.report.write_text(text)
    print(text)
    failed = [case for part in parts for case in part.failed]
    for case in failed:
        print(f"repeat it: python -m tests.faults --seed {asked.seed} --only {case.name}")
    return bool(failed)


def counts(kills: int, full: int, flips: int, owners: int) -> dict[str, int]:
    """Return how many faults there are to be of each kind; the kills are shared by the backends."""
    shares = {name: kills * share // 100 for name, share in SHARES.items()}
    shares["local"] += kills - sum(shares.values())
    return {**shares, "full-disk": full, "bit-flip": flips, "two-owners": owners}


def cases(name: str, count: int, seed: int, expected: Reference, folder: Path) -> Iterator[Case]:
    """Yield the cases of one kind until so many faults have happened."""
    if name in CREWS:
        return kills.cases(name, count, seed, expected, folder)
    part = {"full-disk": full_disk, "bit-flip": bit_flips, "two-owners": two_owners}[name]
    return part.cases(count, seed, expected, folder)


def alone(case: str, seed: int, expected: Reference, folder: Path) -> Case:
    """Repeat one case by its name."""
    name, _, number = case.partition(":")
    if name in CREWS:
        return kills.case(name, int(number), seed, expected, folder / name)
    if name == "bit-flip":
        return bit_flips.case(int(number), seed, expected, bit_flips.prepare(expected, folder), folder)
    part = {"full-disk": full_disk, "two-owners": two_owners}[name]
    return part.case(int(number), seed, expected, folder / name)


def play(name: str, count: int, seed: int, expected: Reference, folder: Path) -> Part:
    """Inject the faults of one kind, and tell how it goes."""
    part, began, told = Part(NAMES[name], count), time.monotonic(), 0.0
    try:
        for case in cases(name, count, seed, expected, folder):
            part.cases.append(case)
            for words in case.cost:
                print(f"{case.name}: {words}", flush=True)
            if time.monotonic() - told > _TELL_EVERY and part.done:
                told = time.monotonic()
                left = (told - began) / part.done * max(0, count - part.done)
                print(f"{part.name}: {part.done} of {count}, {left / 60:.0f} min left", flush=True)
    except (NoDiskError, ImportError) as error:
        print(f"{part.name}: left out, {error}")
    return part


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
