"""`anchorlab verify`."""

import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.forecast import duration
from anchorlab.cli.terminal.output import print_json, print_problem, print_table, print_text
from anchorlab.errors import AnchorlabError, SpecError
from anchorlab.progress import Report, Status, shown

if TYPE_CHECKING:
    from anchorlab.findings import ClaimResult
    from anchorlab.papers.verifying import Plan, Step
    from anchorlab.runs import Store

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class _OverBudgetError(Exception):
    """The budget has ended while a study trained; its runs keep their state."""


def verify(
    *names: shared.StudyName,
    budget: str = "10m",
    seeds: int | None = None,
    store: shared.StoreFolder = None,
    workers: shared.Workers = None,
    device: shared.Device = "cpu",
    dry_run: shared.Flag = False,
    json: shared.Flag = False,
) -> int:
    """Check the papers' claims in the papers' own settings, as many as a budget of time allows.

    Claims decided by an exact computation need no training. For the others, the time of every study with a profile in
    the paper's own setting is estimated; studies with the most open claims per hour come first, and shared runs are
    trained once. The table at the end has our published value next to the value on this machine.

    At the end of the budget training stops and keeps its state; the same command resumes from there.

    Parameters
    ----------
    names
        Studies, or patterns such as `'truncation/*'`; by default all.
    budget
        Time to spend: `90s`, `10m`, `8h`, `1h30m`.
    seeds
        Most seeds of each study: fewer seeds cost less and give wider intervals; by default all.
    dry_run
        Train nothing: print the order, the time and the claims of every study.
    json
        Print JSON: the plan with `--dry-run`, else an entry for each claim.
    """
    from anchorlab.papers.verifying import candidates, make_plan, settled_in
    from anchorlab.runs import Store
    from anchorlab.studies import STUDIES, kept_findings, study_names

    if seeds is not None and seeds < 1:
        raise SpecError("seeds", f"{seeds} is no number of seeds", "give 1 or more")
    seconds, began = _seconds(budget), time.monotonic()
    kept = Store(store)
    chosen = study_names(names) if names else STUDIES
    found = candidates(chosen, seeds)
    if not found:
        raise SpecError("names", "settle no claim", "name studies with exact claims or a profile `paper`")
    before = settled_in(kept_findings(kept))
    with shown(not json) as show:
        plan = make_plan(found, seconds, before, kept, workers, device, show)
    if dry_run:
        print_json(_plan_data(plan)) if json else _print_plan(plan, budget)
        return 0
    if not json:
        _print_plan(plan, budget)
    failed = run_until(plan, kept, workers, device, began + seconds, json)
    known = {claim for one in found for claim in one.claims}
    settled = {name: one for name, one in settled_in(kept_findings(kept)).items() if name in known}
    rows = _rows(settled)
    if json:
        print_json(rows)
    else:
        _print_rows(rows, len(known))
    return 2 if failed else 0


def _seconds(budget: str) -> float:
    """Return a time such as `1h30m` in seconds. Errors: `SpecError` for anything else."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", budget)
    if not parts or "".join(number + unit for number, unit in parts) != budget:
        raise SpecError("budget", f"{budget!r:.40} is not a time", "write 90s, 10m, 8h or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def run_until(plan: "Plan", kept: "Store", workers: int | None, device: str, end: float, quiet: bool = False) -> bool:
    """Run the studies within the budget until its end; return whether one has failed."""
    from anchorlab.studies import run_study

    failed = False
    for place, step in enumerate(plan.within):
        name, profile = step.candidate.study.name, step.candidate.profile
        try:
            with shown(not quiet) as show:
                run_study(step.candidate.study, profile, kept, workers, device, _until(end, show))
        except _OverBudgetError:
            left = len(plan.within) - place
            if not quiet:
                print_text(f"the budget is spent; the same command goes on with {left} of these studies")
            break
        except AnchorlabError as error:  # the other studies still run
            print_problem(f"{name} failed: {error}")
            failed = True
    return failed


def _until(end: float, show: Report) -> Report:
    """Return a report that raises `_OverBudgetError` from a moment on."""

    def report(status: Status) -> None:
        show(status)
        if time.monotonic() > end:
            raise _OverBudgetError

    return report


def _rows(settled: "Mapping[str, ClaimResult]") -> list[dict[str, Any]]:
    """Return a row for each settled claim: our published result, the one here, and whether they agree."""
    from anchorlab.papers.published import published_entries

    shipped = published_entries()
    rows = []
    for name, result in sorted(settled.items()):
        same = [
            one.result
            for one in (shipped[name].evidence if name in shipped else ())
            if (one.result.scope, one.result.value is None) == (result.scope, False)
        ]
        before = same[0] if same else None
        rows.append(
            {
                "id": name,
                "statement": result.claim.statement,
                "scope": result.scope,
                "published": None if before is None else before.value,
                "published_interval": None if before is None else before.interval,
                "value": result.value,
                "interval": result.interval,
                "n": len(result.units) or None,
                "verdict": result.verdict,
                "published_verdict": None if before is None else before.verdict,
                "agreement": agreement(before, result),
            }
        )
    return rows


def agreement(published: "ClaimResult | None", here: "ClaimResult") -> str:
    """Describe in words whether a value agrees with the published value.

    Two intervals `overlap` or lie `apart`. If either value has no interval, the verdicts are compared: `same verdict`
    or `another verdict`. `not published` if there is no published value.
    """
    if published is None:
        return "not published"
    if published.interval is not None and here.interval is not None:
        (low, high), (from_, to) = published.interval, here.interval
        return "overlap" if low <= to and from_ <= high else "apart"
    return "same verdict" if published.verdict == here.verdict else "another verdict"


def _print_plan(plan: "Plan", budget: str) -> None:
    columns = ("study", "profile", "claims", "time")
    for title, steps in ((f"within {budget}, in this order", plan.within), ("beyond it", plan.beyond)):
        if steps:
            print_table(columns, list(map(_plan_row, steps)), title=title)
            print_text("")
    claims, total = sum(len(step.claims) for step in plan.within), duration(plan.seconds)
    if plan.within:
        print_text(f"{claims} claims in about {total}; analysis and figures of trained runs come on top")
    elif plan.beyond:
        cheapest = min(plan.beyond, key=lambda step: step.seconds)
        print_text(f"nothing fits {budget}; {cheapest.candidate.study.name} takes about {duration(cheapest.seconds)}")
    else:
        print_text("every claim that these studies settle is settled in this store")


def _plan_row(step: "Step") -> tuple[str, str, int, str]:
    rough = "about " if step.rough else ""
    return step.candidate.study.name, step.candidate.profile, len(step.claims), rough + duration(step.seconds)


def _plan_data(plan: "Plan") -> dict[str, Any]:
    def data(step: "Step") -> dict[str, Any]:
        return {
            "study": step.candidate.study.name,
            "profile": step.candidate.profile,
            "claims": sorted(step.claims),
            "seconds": step.seconds,
            "rough": step.rough,
        }

    return {"within": list(map(data, plan.within)), "beyond": list(map(data, plan.beyond)), "seconds": plan.seconds}


def _print_rows(rows: Sequence[Mapping[str, Any]], of: int) -> None:
    if not rows:
        print_text("no claim is settled yet")
        return
    print_table(
        ("claim", "published", "here", "verdict", "agreement"),
        [
            (
                row["id"],
                _value(row["published"], row["published_interval"]),
                _value(row["value"], row["interval"]),
                row["verdict"],
                row["agreement"],
            )
            for row in rows
        ],
    )
    agree = sum(row["agreement"] in ("overlap", "same verdict") for row in rows)
    compared = sum(row["agreement"] != "not published" for row in rows)
    print_text(f"{len(rows)} of {of} claims settled here; {agree} of {compared} agree with what is published")


def _value(value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" + ("" if interval is None else f" ({interval[0]:.3g} to {interval[1]:.3g})")
