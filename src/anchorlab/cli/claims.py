"""`anchorlab claims`."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from anchorlab.cli.output import Flag, Json, number, print_json, print_text

if TYPE_CHECKING:
    from anchorlab.findings.findings import ClaimResult, Findings
    from anchorlab.studies import Study

_MARKS = {"reproduced": ("✓", "green"), "not reproduced": ("✗", "red"), "not measured": ("—", "yellow")}


def claims(
    *names: str,
    measured: Flag = False,
    store: Path | None = None,
    json: Json = False,
) -> None:
    """List every claim: the paper's value, ours, the profile, the verdict.

    A study that has not been run in this store has its claims listed as not measured.

    Parameters
    ----------
    names
        Only the claims of these studies: names, or patterns such as `'anchor/*'`.
    measured
        Only the claims of studies that have been run.
    store
        The folder of runs; by default `runs`, or what $ANCHORLAB_STORE says.
    json
        As JSON, for scripts.
    """
    from anchorlab.runs import Store
    from anchorlab.spec import unknown_name
    from anchorlab.studies import STUDIES, kept_findings
    from anchorlab.studies import study as find_study

    kept = kept_findings(Store(store))
    run = {findings.study for findings in kept}
    known = {*STUDIES, *run}
    for name in names:
        if not any(fnmatchcase(one, name) for one in known):
            raise unknown_name("study", name, known, "study")

    def asked(study: str) -> bool:
        return not names or any(fnmatchcase(study, name) for name in names)

    kept = [findings for findings in kept if asked(findings.study)]
    missing = [] if measured else [find_study(name) for name in STUDIES if name not in run and asked(name)]
    if json:
        rows = [claim_data(result) for findings in kept for result in findings.claims]
        unmeasured = [claim_data(claim.judge(None, "")) for study in missing for claim in study.claims]
        print_json(rows + [{**row, "profile": None} for row in unmeasured])
    elif not kept and not missing:
        print_text("none of these studies has been run in this store yet")
    else:
        print_claims(kept)
        _print_missing(missing)


def claim_data(result: "ClaimResult") -> dict[str, Any]:
    """A claim with its verdict as plain data."""
    return {
        "id": result.claim.id,
        "statement": result.claim.statement,
        "source": result.claim.source,
        "paper": result.claim.paper,
        "value": result.value,
        "spread": result.spread,
        "detail": result.detail,
        "band": result.claim.band,
        "profile": result.profile,
        "verdict": result.verdict,
    }


def print_claims(kept: "Sequence[Findings]") -> None:
    """The ledger of claims, study by study: each with its verdict, and the paper's value beside ours."""
    for findings in kept:
        head = Text.assemble((findings.study, "bold"), f"  profile {findings.profile}")
        _print_ledger(head.append(f", {reproduced_text(findings)}"), findings.claims)


def reproduced_text(findings: "Findings") -> str:
    """How many claims were reproduced, in words."""
    reproduced = sum(result.verdict == "reproduced" for result in findings.claims)
    return f"{reproduced} of {len(findings.claims)} claims reproduced"


def _print_missing(studies: "Sequence[Study]") -> None:
    """The claims of studies that have not been run."""
    for study in studies:
        head = Text.assemble((study.name, "bold"), f"  not run yet, {len(study.claims)} claims")
        _print_ledger(head, [claim.judge(None, "") for claim in study.claims])


def _print_ledger(head: Text, results: "Sequence[ClaimResult]") -> None:
    print_text(head)
    lines = Table.grid(padding=(0, 1))
    for result in results:
        symbol, colour = _MARKS[result.verdict]
        lines.add_row(Text(symbol, f"bold {colour}"), Text(result.claim.statement))
        lines.add_row("", _values(result, colour))
    print_text(Padding(lines, (0, 0, 1, 2)))


def _values(result: "ClaimResult", colour: str) -> Text:
    told = Text(result.verdict, colour)
    if result.value is not None:
        told.append(" · ours ", "default").append(number(result.value), "bold default")
    if result.spread:
        told.append(f" ({result.spread})", "default")
    if result.detail:
        told.append(f" ({result.detail})", "default")
    return told.append(f" · paper {result.claim.paper} · accepted {result.claim.band_text}", "dim default")
