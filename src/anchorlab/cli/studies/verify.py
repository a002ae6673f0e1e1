"""`anchorlab verify`."""

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.forecast import duration
from anchorlab.cli.terminal.output import Rows, hand_out, print_json, print_problem, print_table, print_text
from anchorlab.errors import AnchorlabError, SpecError
from anchorlab.progress import Report, Status, shown

if TYPE_CHECKING:
    from anchorlab.findings import ClaimResult
    from anchorlab.papers.verifying import Plan, Step
    from anchorlab.runs import Store
    from anchorlab.studies import Study
    from anchorlab.training import Experiment

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class _OverBudgetError(Exception):
    """The budget has ended while a study trained; its runs keep their state."""


def verify(
    *names: shared.StudyName,
    budget: str = "10m",
    seeds: str | None = None,
    part: Path | None = None,
    only: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None,
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

    At the end of the budget training stops and saves its state; the same command resumes from there.

    With `--part`, the given seeds are trained one by one, and each is kept in a folder as a part: its metrics, where it
    was trained, and what the claims read from its weights. Parts from several people and days make one result. A
    message names the studies that have no parts.

    Parameters
    ----------
    names
        Studies, or patterns such as `'truncation/*'`; by default all.
    budget
        Time to spend: `90s`, `10m`, `8h`, `1h30m`.
    seeds
        Seeds to train, such as `1000:1002` or `1003`: fewer seeds cost less and give wider intervals; by default all
        seeds of each study.
    part
        Folder for parts, such as `docs/gallery/paper-models` in a clone. No claim is judged.
    only
        Labels of the experiments to make parts of, such as `"low frequency"`; by default all.
    dry_run
        Train nothing: print the order, the time and the claims of every study.
    json
        Print JSON: the plan with `--dry-run`, else an entry for each claim.
    """
    from anchorlab.papers.verifying import candidates, make_plan, needing_no_run, settled_in
    from anchorlab.runs import Store
    from anchorlab.studies import STUDIES, kept_findings, study, study_names
    from anchorlab.training.members import read_seeds

    seconds, began = _seconds(budget), time.monotonic()
    kept = Store(store)
    chosen = study_names(names) if names else STUDIES
    numbers = None if seeds is None else read_seeds(seeds)
    if part is not None:
        if numbers is None:
            raise SpecError("seeds", "are missing", "name those to make parts of, as in --seeds 1002")
        if named := [name for name in names if name in STUDIES and study(name).keeps is None]:
            remedy = f"train its seeds in one store: anchorlab study {named[0]} --profile paper"
            raise SpecError("names", f"{named[0]} has claims that read weights, which a part does not keep", remedy)
        parts = _parts(chosen, numbers, only)
        if passed := [name for name in chosen if not _has_parts(study(name))]:
            why = "only papers' own settings have parts, which keep no weights"
            print_problem(f"no part of {', '.join(passed)}: {why}")
        return _make_parts(parts, part, kept, workers, device, began + seconds, dry_run, json)
    if only:
        raise SpecError("only", "takes experiments of parts", "give --part, or use `anchorlab study`")
    found = candidates(chosen, numbers)
    if not found:
        raise SpecError("names", "settle no claim", "name studies with exact claims or a profile `paper`")
    before = needing_no_run(settled_in(kept_findings(kept)), found)
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


@dataclass(frozen=True)
class _Part:
    study: "Study[Any]"
    profile: str
    experiment: "Experiment"

    @property
    def row(self) -> tuple[str, ...]:
        (seed,) = self.experiment.members.seeds
        return self.study.name, self.profile, self.experiment.label, str(seed), self.experiment.cell.address


def _has_parts(one: "Study[Any]") -> bool:
    """Return whether a study has a paper's own setting, and claims that read no weights beyond what a part keeps."""
    return one.keeps is not None and any(about.paper for about in one.profiles.values())


def _parts(names: Sequence[str], seeds: Sequence[int], only: Sequence[str] | None) -> list[_Part]:
    """Return the parts to make of the papers' own settings of some studies, seed by seed.

    Errors: `SpecError` for a label that no experiment has, and for studies without such a setting.
    """
    from anchorlab.spec import unknown_name
    from anchorlab.studies import study
    from anchorlab.studies.profile_names import part_name

    found = [
        _Part(study(name), profile, experiment)
        for name in names
        if _has_parts(study(name))
        for profile, about in study(name).profiles.items()
        if about.paper
        for seed in seeds
        for experiment in study(name).experiments_of(part_name(profile, [seed]))
    ]
    labels = {one.experiment.label for one in found}
    if strange := [label for label in only or () if label not in labels]:
        raise unknown_name("only", strange[0], labels, "experiment")
    chosen = {one.experiment.cell.address: one for one in found if not only or one.experiment.label in only}
    if not chosen:
        raise SpecError("names", "train nothing in a paper's own setting", "name studies with a profile `paper`")
    return list(chosen.values())


def _make_parts(
    wanted: Sequence[_Part],
    folder: Path,
    kept: "Store",
    workers: int | None,
    device: str,
    end: float,
    dry_run: bool,
    json: bool,
) -> int:
    """Train parts until the end of the budget, write each that is finished, and print them."""
    from anchorlab.engine import run
    from anchorlab.runs import Store
    from anchorlab.studies.parts import keep_part

    parts, made, failed = Store(folder), [], False
    todo = [one for one in wanted if one.experiment.cell not in parts]
    if dry_run:
        todo, made = [], todo
    for one in todo:
        try:
            with shown(not json) as show:
                (trained,) = run([one.experiment], kept, workers, device, report=_until(end, show))
            keep_part(one.study, one.profile, trained, parts.root)
        except _OverBudgetError:
            if not json:
                print_text(f"the budget is spent; the same command goes on with {len(todo) - len(made)} of these parts")
            break
        except AnchorlabError as error:  # such as a seed that diverged; the other parts are still made
            print_problem(f"no part of {one.study.name}, {one.experiment.label}, seed {one.row[3]}: {error}")
            failed = True
        else:
            made.append(one)
    columns, title = ("study", "profile", "experiment", "seed", "part"), f"new parts in {folder}"
    rows = Rows(columns, [one.row for one in made], "would be trained" if dry_run else title)
    hand_out(json, rows.data, [rows if made else f"no new part in {folder}"])
    return int(failed)


def _seconds(budget: str) -> float:
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
    def report(status: Status) -> None:
        show(status)
        if time.monotonic() > end:
            raise _OverBudgetError

    return report


def _rows(settled: "Mapping[str, ClaimResult]") -> list[dict[str, Any]]:
    """Return a row for each settled claim: our published result, the one here, and whether they agree."""
    from anchorlab.findings.comparison import compared
    from anchorlab.papers.published import published_entries

    shipped = published_entries()
    rows = []
    for name, result in sorted(settled.items()):
        same = [
            one.result
            for one in (shipped[name].evidence if name in shipped else ())
            if (one.result.scope, one.result.value is None) == (result.scope, False)
            and (result.scope != "theory" or one.result.profile == result.profile)  # sizes differ between profiles
        ]
        before = min(same, key=lambda one: one.profile != result.profile, default=None)  # exact ones have sizes, too
        again = compared(before, result)
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
                "agreement": again.word,
                "difference": again.difference,
                "difference_interval": again.interval,
            }
        )
    return rows


def _print_plan(plan: "Plan", budget: str) -> None:
    columns = ("study", "profile", "claims", "time", "note")
    for title, steps in ((f"within {budget}, in this order", plan.within), ("beyond it", plan.beyond)):
        if steps:
            print_table(columns, list(map(_plan_row, steps)), title=title)
            print_text("")
    claims, total = sum(len(step.claims) for step in plan.within), duration(plan.seconds)
    if plan.within:
        planned = f" after {duration(plan.planning)} of planning" if plan.planning >= 0.5 else ""
        print_text(f"{claims} claims in about {total}{planned}; analysis and figures of trained runs come on top")
    elif plan.beyond:
        cheapest = min(plan.beyond, key=lambda step: step.seconds)
        print_text(f"nothing fits {budget}; {cheapest.candidate.study.name} takes about {duration(cheapest.seconds)}")
    else:
        print_text("every claim that these studies settle is settled in this store")


def _plan_row(step: "Step") -> tuple[str, str, int, str, str]:
    """Return a row of the plan; its note says why the step does not train all runs of its profile."""
    time = f"{'about ' * step.rough}{duration(step.seconds)}"
    used = [*(f"runs of {name}, above" for name in step.shared), *["runs in the store"] * step.kept]
    note = f"uses {' and '.join(used)}" if used else "" if step.candidate.experiments else "trains nothing"
    return step.candidate.study.name, step.candidate.profile, len(step.claims), time, note


def _plan_data(plan: "Plan") -> dict[str, Any]:
    def data(step: "Step") -> dict[str, Any]:
        return {
            "study": step.candidate.study.name,
            "profile": step.candidate.profile,
            "claims": sorted(step.claims),
            "seconds": step.seconds,
            "rough": step.rough,
            "shared": step.shared,
            "kept": step.kept,
        }

    steps = {"within": list(map(data, plan.within)), "beyond": list(map(data, plan.beyond))}
    return {**steps, "seconds": plan.seconds, "planning": plan.planning}


def _print_rows(rows: Sequence[Mapping[str, Any]], of: int) -> None:
    if not rows:
        print_text("no claim is settled yet")
        return
    cells = [
        (
            row["id"],
            _value(row["published"], row["published_interval"]),
            _value(row["value"], row["interval"]),
            row["verdict"],
            f"{row['agreement']}{_of(row['difference_interval'])}",
        )
        for row in rows
    ]
    print_table(("claim", "published", "here", "verdict", "agreement"), cells)
    counted = Counter(row["agreement"] for row in rows)
    words = ", ".join(f"{count} {word}" for word, count in counted.most_common())
    print_text(f"{len(rows)} of {of} claims settled here; next to what is published: {words}")


def _value(value: float | None, interval: tuple[float, float] | None) -> str:
    return "" if value is None else f"{value:.4g}{_of(interval)}"


def _of(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" ({interval[0]:.3g} to {interval[1]:.3g})"
