"""`anchorlab claims`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from anchorlab.cli.output import console, number, print_json
from anchorlab.runs import Store
from anchorlab.studies import kept_findings
from anchorlab.studies.findings import ClaimResult

_COLOURS = {"reproduced": "green", "not reproduced": "red", "not measured": "yellow"}


def claims(*, store: Path | None = None, json: bool = False) -> None:
    """List the claims checked so far: the paper's value, ours, the profile, the verdict.

    Parameters
    ----------
    store
        The folder of runs; by default `runs`, or what $ANCHORLAB_STORE says.
    json
        As JSON, for scripts.
    """
    results = [result for findings in kept_findings(Store(store)) for result in findings.claims]
    if json:
        print_json([claim_data(result) for result in results])
    elif not results:
        console.print("no study has been run in this store yet; `anchorlab studies` lists them")
    else:
        print_claims(results)


def claim_data(result: ClaimResult) -> dict[str, Any]:
    """A claim with its verdict as plain data."""
    return {
        "id": result.claim.id,
        "statement": result.claim.statement,
        "source": result.claim.source,
        "paper": result.claim.paper,
        "value": result.value,
        "spread": result.spread,
        "band": result.claim.band,
        "profile": result.profile,
        "verdict": result.verdict,
    }


def print_claims(results: Sequence[ClaimResult]) -> None:
    """The ledger of claims as a table."""
    table = Table("claim", "paper", "ours", "accepted", "profile", "verdict", box=None, header_style="bold",
                  pad_edge=False)
    for result in results:
        spread = f" ({result.spread})" if result.spread else ""
        colour = _COLOURS[result.verdict]
        table.add_row(result.claim.statement, result.claim.paper, number(result.value) + spread,
                      result.claim.band_text, result.profile, f"[{colour}]{result.verdict}[/]")
    console.print(table)
