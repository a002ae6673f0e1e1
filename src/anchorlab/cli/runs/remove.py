"""`anchorlab runs remove` and `anchorlab runs prune`."""

import re
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anchorlab.cli.options import shared
from anchorlab.cli.runs.list import print_runs, tell_damage
from anchorlab.cli.terminal.output import counted, print_json, print_table, print_text, size_text, waiting
from anchorlab.errors import SpecError
from anchorlab.printable import first_few, printable

if TYPE_CHECKING:
    from anchorlab.runs import Entry

_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400}
_FIRST_PAGE = 50


def remove_(run: shared.StoredRun, /, *, store: shared.StoreFolder = None, yes: shared.Flag = False) -> None:
    """Remove a run after asking on the terminal; without a terminal, only with `--yes`.

    Parameters
    ----------
    yes
        Remove it without asking.
    """
    from anchorlab.runs import entry_of

    kept = shared.existing_store(store)
    found = kept.find(run)
    if not yes:
        entry = entry_of(found)
        details = f" ({entry.name}, {counted(entry.members, 'member')}, {size_text(entry.size)})"
        if not _agreed(found.address, details, "it"):
            return
    print_text(f"removed {kept.remove(found.address)}")


def prune_(
    *kinds: str,
    older_than: str | None = None,
    where: shared.Where = None,
    store: shared.StoreFolder = None,
    yes: shared.Flag = False,
    json: shared.Json = False,
) -> int:
    """Remove runs that no findings need, after listing them and asking; without a kind, only count them.

    The kinds: `orphans` belong to no findings in the store, such as runs of `anchorlab train`; `superseded` belong only
    to earlier findings of a study, or have an outdated format; `unfinished` could be continued, but no process is
    writing them; `damaged` have an unreadable specification. A run in use is never removed, nor is a run from which a
    needed or unfinished run started.

    Parameters
    ----------
    kinds
        Kinds of runs to remove.
    older_than
        Only runs that finished (or began, if unfinished) longer ago than this: `12h`, `30d`, `4w`.
    yes
        Remove them without asking.
    """
    from anchorlab.runs import KINDS, removable, uses
    from anchorlab.runs.references import without_record
    from anchorlab.spec import check_known

    for kind in kinds:
        check_known("kinds", kind, KINDS, "kind")
    oldest = None if older_than is None else time.time() - _age(older_than)
    kept = shared.existing_store(store)
    with waiting("reading the runs of the store", quiet=json):
        fields, wanted, damaged = kept.matching(where or ())
    tell_damage(damaged)
    unknown = without_record(kept.root)
    if "orphans" in kinds and unknown:
        problem = f"findings of {first_few(unknown)} do not say which runs they were made from"
        remedy = "run these studies again, which reuses their runs, or delete their findings"
        raise SpecError("kinds", problem, remedy)
    every = removable(fields.entries, uses(kept.root))
    asked = {one.address for one in wanted if oldest is None or one.modified < oldest}
    found = {kind: [one for one in runs if one.address in asked] for kind, runs in every.items()}
    if not kinds:
        _print_counts(found, unknown, json)
        return 0
    chosen = [one for kind in dict.fromkeys(kinds) for one in found[kind]]
    size = sum(one.size for one in chosen)
    if not chosen:
        print_json({"removed": [], "kept": {}, "bytes": 0}) if json else print_text("nothing to remove")
        return 0
    if not json:
        print_runs(chosen[:_FIRST_PAGE])
        more = f"; {len(chosen) - _FIRST_PAGE} more are not shown" if len(chosen) > _FIRST_PAGE else ""
        print_text(f"{counted(len(chosen), 'run')}, {size_text(size)} in all{more}")
    if not yes and not _agreed(f"{counted(len(chosen), 'run')}, {size_text(size)}", "", "them", quiet=json):
        return 0
    outcome = kept.remove_all(one.address for one in chosen)
    refused = {address: str(error) for address, error in outcome.items() if error is not None}
    freed = sum(one.size for one in chosen if one.address not in refused)
    if json:
        removed = [address for address in outcome if address not in refused]
        print_json({"removed": removed, "kept": refused, "bytes": freed})
    else:
        print_text(f"removed {counted(len(chosen) - len(refused), 'run')}, {size_text(freed)}")
        for error in refused.values():
            print_text(f"kept: {error}", wrapped=False)
    return 2 if refused else 0


def _agreed(what: str, details: str, pronoun: str, quiet: bool = False) -> bool:
    """Ask on the terminal whether to remove runs; anything but `y` or `yes` means no, which is then confirmed.

    Errors: `SpecError` without a terminal to ask on.
    """
    if quiet or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise SpecError("yes", f"cannot ask whether to remove {what}", f"add --yes to remove {pronoun}")
    try:
        agreed = input(printable(f"remove {what}{details}? [y/N] ", lines=True)).strip().lower() in ("y", "yes")
    except EOFError:
        agreed = False
    if not agreed:
        print_text("nothing was removed")
    return agreed


def _age(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([hdw])", text.strip())
    if match is None:
        raise SpecError("older-than", f"{text!r} is not an age", "write hours, days or weeks, such as 12h, 30d or 4w")
    return float(match[1]) * _SECONDS[match[2]]


def _print_counts(found: "dict[str, list[Entry]]", unknown: Sequence[str], json: bool) -> None:
    from anchorlab.runs import KINDS

    sizes = {kind: sum(one.size for one in runs) for kind, runs in found.items()}
    if json:
        rows: dict[str, Any] = {
            kind: {"runs": [one.address for one in runs], "bytes": sizes[kind]} for kind, runs in found.items()
        }
        print_json({**rows, "findings_without_record": list(unknown)})
        return
    rows_shown = [(kind, len(runs), size_text(sizes[kind]), KINDS[kind]) for kind, runs in found.items()]
    print_table(("kind", "runs", "size", "meaning"), rows_shown)
    if unknown:
        findings = f"findings of {first_few(unknown)} do not say which runs they were made from"
        print_text(f"orphans are not certain: {findings}")
    print_text("nothing was removed; name kinds to remove them: anchorlab runs prune superseded")
