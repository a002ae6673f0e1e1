"""Uses: which runs the findings of each study were made from, and which runs nothing needs."""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anchorlab.errors import StoreError
from anchorlab.runs.atomic_files import read_json, write_json
from anchorlab.runs.cell import Cell
from anchorlab.runs.entry import Entry

FILE = "runs.json"
"""The file next to `findings.json` that names the runs behind the findings."""

KINDS = {
    "orphans": "no study's findings were made from them",
    "superseded": "only earlier findings of a study were made from them, or their format is older than that of others",
    "unfinished": "begun and not finished, and no process is writing them; training would continue them",
    "damaged": "their specification or manifest cannot be read",
}
"""The kinds of removable runs, with the reason. A run is of at most one kind."""


@dataclass(frozen=True)
class Use:
    """The runs behind the findings of a study under one profile.

    Fields
        runs: the addresses of the runs that the findings were made from, untrained controls included
        earlier: the addresses of other runs, behind earlier findings of this study and profile
    """

    study: str
    profile: str
    runs: frozenset[str]
    earlier: frozenset[str] = frozenset()


def record_use(folder: Path, study: str, profile: str, runs: Iterable[str]) -> None:
    """Record the runs that the findings in `folder` were made from, and keep the addresses of earlier runs.

    A damaged record is replaced, and its earlier runs are lost.
    """
    current, before = set(runs), use_before(folder)
    earlier = set() if before is None else (before.runs | before.earlier) - current
    data = {"study": study, "profile": profile, "runs": sorted(current), "earlier": sorted(earlier)}
    write_json(folder, FILE, data)


def read_use(folder: Path) -> Use | None:
    """Return the runs behind the findings in `folder`; None if they were not recorded.

    Errors: `StoreError` that names a damaged record; ignoring it would make runs that findings need look removable.
    """
    path = folder / FILE
    if not os.path.lexists(path):
        return None
    try:
        match read_json(path, ""):
            case {"study": str(study), "profile": str(profile), "runs": list(runs), "earlier": list(earlier)}:
                return Use(study, profile, frozenset(map(str, runs)), frozenset(map(str, earlier)))
        raise StoreError(FILE)
    except StoreError:
        problem = "damaged: truncated or altered after it was written"
        raise StoreError(f"{path}: {problem}; run its study again, which reuses its runs") from None


def use_before(folder: Path) -> Use | None:
    """Return the record that is about to be replaced; None if it is missing or damaged."""
    with suppress(StoreError):
        return read_use(folder)
    return None


def uses(root: Path) -> list[Use]:
    """Return the recorded uses of all findings in a store, in order of study and profile.

    Errors: `StoreError` that names a damaged record.
    """
    return [use for path in study_files(root, FILE) if (use := read_use(path.parent)) is not None]


def without_record(root: Path) -> list[str]:
    """Return the findings whose runs were not recorded, by folder, such as `anchor-identity/quick`."""
    found = study_files(root, "findings.json")
    return [f"{path.parts[-3]}/{path.parts[-2]}" for path in found if not os.path.lexists(path.with_name(FILE))]


def study_files(root: Path, name: str) -> list[Path]:
    """Return the files called `name` in the folders of every study and profile, in order of study and profile."""
    profiles = (profile for study in _folders(root / "studies") for profile in _folders(study))
    return [Path(profile, name) for profile in profiles if os.path.lexists(f"{profile}/{name}")]


def _folders(folder: Path | str) -> list[str]:
    """Return a folder's subfolders, sorted; none if it does not exist."""
    try:
        with os.scandir(folder) as entries:
            return sorted(one.path for one in entries if one.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def studies_by_run(root: Path) -> dict[str, frozenset[str]]:
    """Return, by a run's address, the names of the studies whose findings were made from it. Errors: as `uses`."""
    found: dict[str, set[str]] = defaultdict(set)
    for use in uses(root):
        for address in use.runs:
            found[address].add(use.study)
    return {address: frozenset(names) for address, names in found.items()}


def removable(entries: Sequence[Entry], uses: Iterable[Use]) -> dict[str, list[Entry]]:
    """Return the removable runs of each kind in `KINDS`.

    A run is not removable if findings in the store were made from it, or if a run behind such findings or an unfinished
    run started from it, directly or through other runs.

    Args:
        entries: all runs of the store
        uses: the recorded uses of all findings in the store
    """
    uses = list(uses)
    earlier = {address for use in uses for address in use.earlier}
    needed = {address for use in uses for address in use.runs}
    newest = max((_format(entry) for entry in entries), default=0)
    # Starts form chains: follow them to the first run.
    start_of = {entry.address: Cell(entry.spec["start"]).address for entry in entries if "start" in entry.spec}
    chain = {*needed, *(entry.address for entry in entries if entry.state == "unfinished")}
    while chain := {start_of[address] for address in chain if address in start_of}:
        needed |= chain
    found: dict[str, list[Entry]] = {kind: [] for kind in KINDS}
    for entry in entries:
        if entry.address in needed:
            continue
        if entry.state != "finished":
            found[entry.state].append(entry)
        elif entry.address in earlier or _format(entry) < newest:
            found["superseded"].append(entry)
        else:
            found["orphans"].append(entry)
    return found


def _format(entry: Entry) -> int:
    value = entry.spec.get("format", 0)
    return value if isinstance(value, int) else 0
