"""`anchorlab claims`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from anchorlab.cli.output import Json, number, print_json, print_text

if TYPE_CHECKING:
    from anchorlab.studies.findings import ClaimResult, Findings

_MARKS = {"reproduced": ("✓", "green"), "not reproduced": ("✗", "red"), "not measured": ("—", "yellow")}


def claims(*, store: Path | None = None, json: Json = False) -> None:
    """List the claims checked so far: the paper's value, ours, the profile, the verdict.

    Parameters
    ----------
    store
        The folder of runs; by default `runs`, or what $ANCHORLAB_STORE says.
    json
        As JSON, for scripts.
    """
    from anchorlab.runs import Store
    from anchorlab.studies import kept_findings

    kept = kept_findings(Store(store))
    if json:
        print_json([claim_data(result) for findings in kept for result in findings.claims])
    elif not kept:
        print_text("no study has been run in this store yet; `anchorlab studies` lists them")
    else:
        print_claims(kept)


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
        reproduced = sum(result.verdict == "reproduced" for result in findings.claims)
        head = Text.assemble((findings.study, "bold"), f"  profile {findings.profile}")
        print_text(head.append(f", {reproduced} of {len(findings.claims)} claims reproduced"))
        lines = Table.grid(padding=(0, 1))
        for result in findings.claims:
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
