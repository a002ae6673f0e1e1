"""Plays the faults of one kind, and tells how it goes."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from tests.faults import bit_flips, full_disk, kills, power_cuts, stopped, two_owners
from tests.faults.case import Case
from tests.faults.judge import Reference, reference
from tests.faults.kills import CREWS
from tests.faults.ray_crew import stop_cluster
from tests.faults.report import Part
from tests.faults.roles import end_with_parent
from tests.small_disk import NoDiskError

_TELL_EVERY = 20.0  # seconds

SHARES = {"local": 58, "processes": 6, "folder": 28, "ray": 8}
"""Per cent of the kills."""

NAMES = {
    "local": "kills, one process",
    "processes": "kills, two processes of this machine",
    "folder": "kills, four workers on a folder",
    "ray": "kills, three nodes of Ray",
    "full-disk": "full disk",
    "bit-flip": "bit flips",
    "two-owners": "two owners of a chunk",
    power_cuts.NEWEST: "power cut, newest files empty",
    power_cuts.UNSYNCHRONISED: "power cut, what was not synchronised lost",
    "stopped": "workers stopped beyond their lease",
}


_CASE: dict[str, Callable[[int, int, Reference, Path], Case]] = {
    **{backend: partial(kills.case, backend) for backend in CREWS},
    "full-disk": full_disk.case,
    "bit-flip": bit_flips.case,
    "two-owners": two_owners.case,
    **{kind: partial(power_cuts.case, kind) for kind in power_cuts.KINDS},
    "stopped": stopped.case,
}


def counts(kills: int, full: int, flips: int, owners: int, cuts: int, stopped: int) -> dict[str, int]:
    """Return how many faults there are to be of each kind; the kills are shared by the backends."""
    shares = {name: kills * share // 100 for name, share in SHARES.items()}
    shares["local"] += kills - sum(shares.values())
    cut = dict.fromkeys(power_cuts.KINDS, cuts)
    of_stores = {"full-disk": full, "bit-flip": flips, "two-owners": owners, **cut}
    return {**shares, **of_stores, "stopped": stopped}


def alone(name: str, seed: int, expected: Reference, folder: Path) -> Case:
    """Play one case by its name, such as `local:17`; what it leaves is kept if it has cost something."""
    kind, _, number = name.partition(":")
    place, began = folder / f"{kind}-{number}", time.monotonic()
    found = _CASE[kind](int(number), seed, expected, place)
    found.name, found.seconds = name, time.monotonic() - began
    if not found.cost:
        shutil.rmtree(place, ignore_errors=True)
    return found


def cases(kind: str, count: int, seed: int, expected: Reference, folder: Path) -> Iterator[Case]:
    """Yield cases of one kind until `count` faults have happened."""
    done = number = 0
    while done < count:
        found = alone(f"{kind}:{number}", seed, expected, folder)
        done += len(found.faults)
        number += 1
        yield found


@contextmanager
def prepared() -> Iterator[tuple[Reference, Path]]:
    """Run the reference, and give it with the folder for the cases."""
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        yield reference(folder / "reference"), folder


def play(name: str, count: int, seed: int) -> Part:
    """Inject the faults of one kind, and tell how it goes. To be called in a process of its own."""
    torch.set_num_threads(1)
    end_with_parent()
    part, told = Part(NAMES[name], count), 0.0
    try:
        with prepared() as (expected, folder):
            began = time.monotonic()
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
    finally:
        if name == "ray":
            stop_cluster()
    return part
