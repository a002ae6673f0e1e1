"""Uses: which runs the findings of the studies in a store were made from."""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anchorlab.errors import StoreError
from anchorlab.runs.files import read_json, write_json

FILE = "runs.json"
"""The file beside `findings.json` that names the runs behind them."""


@dataclass(frozen=True)
class Use:
    """The runs behind the findings of a study under one profile.

    Fields
        runs: the addresses of the runs that the findings were made from, their untrained controls included
        earlier: those of runs that earlier findings of this study and profile were made from
    """

    study: str
    profile: str
    runs: frozenset[str]
    earlier: frozenset[str] = frozenset()


def record_use(folder: Path, study: str, profile: str, runs: Iterable[str]) -> None:
    """Record beside findings, in `folder`, the runs that they were made from, and keep the earlier ones' names.

    A damaged record is written anew.
    """
    current, before = set(runs), use_before(folder)
    earlier = set() if before is None else (before.runs | before.earlier) - current
    data = {"study": study, "profile": profile, "runs": sorted(current), "earlier": sorted(earlier)}
    write_json(folder, FILE, data)


def read_use(folder: Path) -> Use | None:
    """Return the runs behind the findings in `folder`; None if they were not recorded.

    Errors: `StoreError` that names a damaged record: without it, runs that findings need pass for runs nobody needs.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        data = read_json(path, "")
        return Use(data["study"], data["profile"], frozenset(data["runs"]), frozenset(data["earlier"]))
    except (StoreError, KeyError, TypeError):
        problem = "damaged: truncated or altered after it was written"
        raise StoreError(f"{path}: {problem}; run its study again, which reuses its runs") from None


def use_before(folder: Path) -> Use | None:
    """Return what a record says that is about to be written anew; None for a damaged one, too."""
    with suppress(StoreError):
        return read_use(folder)
    return None


def uses(root: Path) -> list[Use]:
    """Return the recorded uses of all findings in the store of this root, by study and profile.

    Errors: `StoreError` that names a damaged record.
    """
    folders = sorted(path.parent for path in (root / "studies").glob(f"*/*/{FILE}"))
    return [use for use in map(read_use, folders) if use is not None]


def studies_by_run(root: Path) -> dict[str, frozenset[str]]:
    """Return the names of the studies whose findings were made from a run, by its address. Errors: as `uses`."""
    found: dict[str, set[str]] = defaultdict(set)
    for use in uses(root):
        for address in use.runs:
            found[address].add(use.study)
    return {address: frozenset(names) for address, names in found.items()}
