"""The report: what was injected, what has happened, and what it has cost, as the docs show it."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from anchorlab.findings.provenance import hardware
from anchorlab.runs.environment import environment
from tests.faults.case import Case


@dataclass
class Part:
    """All cases of one kind of fault.

    Fields
        name: of the part, such as `kills, four workers on a folder`
        asked: how many faults were to happen
    """

    name: str
    asked: int
    cases: list[Case] = field(default_factory=list)

    @property
    def done(self) -> int:
        """How many faults have happened."""
        return sum(len(one.faults) for one in self.cases)

    @property
    def failed(self) -> list[Case]:
        """The cases in which a fault has cost something."""
        return [one for one in self.cases if one.cost]


def report(parts: Sequence[Part], seed: int, seconds: float) -> str:
    """Return the report in Markdown."""
    found = environment()
    rows = [
        (one.name, one.done, len(one.cases), sum(case.late for case in one.cases), len(one.failed)) for one in parts
    ]
    lines = [
        f"Seed {seed} · {hardware()} · torch {found['torch']} · commit {found['commit'] or 'unknown'}"
        f" · {seconds / 60:.0f} minutes.",
        "",
        *_table(("Fault", "happened", "studies or files", "came too late", "cost something"), rows),
        "",
        "Where the kills struck:",
        "",
        *_by_place([one for one in parts if one.name.startswith("kills")]),
        "",
        "What the flipped bits did, by the kind of file:",
        "",
        *_of_flips([case for one in parts if one.name.startswith("bit") for case in one.cases]),
    ]
    if failed := [case for one in parts for case in one.failed]:
        lines += ["", "What it cost:", "", *(f"- `{case.name}`: {_shown(case.cost)}" for case in failed)]
    return "\n".join(lines) + "\n"


def _shown(cost: Iterable[str]) -> str:
    """Return what a case has cost, without the folder that it was in."""
    return re.sub(r"\S*/disk/store/", "store/", "; ".join(cost))


def _by_place(parts: Sequence[Part]) -> list[str]:
    counts = {one.name.partition(", ")[2]: Counter(f.place for c in one.cases for f in c.faults) for one in parts}
    places = sorted({place for found in counts.values() for place in found})
    return _table(("Place", *counts), [(place, *(found[place] for found in counts.values())) for place in places])


def _of_flips(cases: Iterable[Case]) -> list[str]:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for case in cases:
        for one in case.faults:
            counts.setdefault((one.role, one.place), Counter())["undetected" if case.cost else one.act] += 1
    acts = ("detected", "harmless", "undetected")
    rows = [(f"{role}: {place}", *(found[act] for act in acts)) for (role, place), found in sorted(counts.items())]
    return _table(("File", *acts), rows)


def _table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> list[str]:
    return [_row(head), _row(["---"] + ["---:"] * (len(head) - 1)), *map(_row, rows)]


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
