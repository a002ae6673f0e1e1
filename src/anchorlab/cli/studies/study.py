"""`anchorlab study`."""

import json as json_module
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from anchorlab.cli.options import shared
from anchorlab.cli.options.endpoint import PretrainedOptions
from anchorlab.cli.options.fields import Fields, as_written, nested, part, written
from anchorlab.cli.studies.claims import claim_data, print_claims, print_origin, verdicts_text
from anchorlab.cli.terminal.output import Rows, check_file, hand_out, print_json, print_problem, print_table, print_text
from anchorlab.errors import AnchorlabError, IncompleteError, SpecError
from anchorlab.progress import shown

if TYPE_CHECKING:
    from anchorlab.engine import On
    from anchorlab.engine.pool import Backend
    from anchorlab.findings import Findings
    from anchorlab.language.endpoint import Access
    from anchorlab.runs import Store
    from anchorlab.studies import Study
    from anchorlab.studies.selection import Chosen
    from anchorlab.training import Experiment


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Changes to the studies.

    Parameters
    ----------
    vary
        TOML file with changes to the study, written as a file that varies a study but without the field `study`.
    seeds
        Seeds of all members: `1000:1003` for 1000 to 1002, or a list such as `1000,1004`.
    task
        Field of the tasks, such as `--task.placement.length 12`.
    model
        Field of the models, such as `--model.heads 3`.
    recipe
        Field of the training, such as `--recipe.learning-rate 1e-3`.
    members
        Setting of all members, such as `--members.initialisation-scale 0.5`.
    """

    vary: Path | None = None
    seeds: str | None = None
    task: Annotated[Fields, part("task")] = None
    model: shared.ModelFields = None
    recipe: shared.RecipeFields = None
    members: shared.MemberFields = None

    def applied(self, chosen: "Chosen", profile: str) -> "list[tuple[Study[Any], str]]":
        """Return a study with the values of the options, and its profile, once for each combination of listed values.

        A list is one value where the field itself holds a list. If only seeds are given, the profile's name selects
        them, unless the study is from a file. Without options, the study itself is returned.
        Errors: `SpecError` that names the field as it was written.
        """
        from anchorlab.studies.profile_names import part_name
        from anchorlab.training.field_paths import SHORT_PATHS, values_by_path
        from anchorlab.training.members import read_seeds

        parts = {"task": self.task, "model": self.model, "recipe": self.recipe, "members": self.members}
        with as_written([*written(parts), "seeds"], SHORT_PATHS):
            values = values_by_path({part: nested(fields, part) for part, fields in parts.items()})
            numbers = None if self.seeds is None else read_seeds(self.seeds)
            if numbers and not values and chosen.source is None and chosen.code is None:
                at = part_name(profile, numbers)
                chosen.study.experiments_of(at)  # mistakes show before anything is trained
                return [(chosen.study, at)]
            return [(found, profile) for found in chosen.studies(profile, values, numbers)]


@dataclass(frozen=True)
class _Planned:
    study: "Study[Any]"
    source: "Chosen"
    profile: str


@dataclass(frozen=True)
class _Outcome:
    """A study that has run: its findings, and their page unless claims alone were measured; or an error."""

    planned: _Planned
    findings: "Findings | None" = None
    page: Path | None = None
    error: str = ""
    code: int = 0

    def data(self) -> dict[str, Any]:
        """Return the outcome as JSON data."""
        about = {"study": self.planned.study.name, "profile": self.planned.profile}
        if self.findings is None:
            return {**about, "error": self.error}
        return {
            **about,
            "report": self.page and str(self.page.absolute()),
            "claims": [claim_data(result) for result in self.findings.claims],
            "provenance": json_module.loads(self.findings.to_json())["provenance"],
        }

    def print(self) -> None:
        """Print the claims, and where the findings come from."""
        if self.findings is not None:
            print_claims([self.findings])
            print_origin(self.findings, self.page)

    @property
    def row(self) -> tuple[str, str, str]:
        if self.findings is None:
            return self.planned.study.name, "failed", ""
        seconds = self.findings.provenance.seconds
        return self.planned.study.name, verdicts_text(self.findings.claims), f"{seconds:.0f} s"


@dataclass(frozen=True)
class _Runner:
    store: "Store"
    of: PretrainedOptions
    access: "Access | None"
    where: shared.PlaceOptions
    on: "On | Backend"
    parts: "Sequence[Store]"
    claims: Sequence[str]
    quiet: bool

    def run(self, planned: _Planned, report: Path | None = None) -> _Outcome:
        """Run a study and write its page, by default next to its findings."""
        from anchorlab.report import write_report
        from anchorlab.studies import findings_directory, run_study

        chosen = planned.study
        at = chosen.profile_of(planned.profile, self.of.address(), self.of.revision)
        with shown(not self.quiet) as show, planned.source.named():
            findings = run_study(
                chosen, at, self.store, self.where.workers, self.where.device, show, self.of.download, self.access,
                on=self.on, parts=self.parts, claims=self.claims,
            )  # fmt: skip
        if self.claims:
            return _Outcome(planned, findings)
        page = report or findings_directory(self.store, chosen.name, at) / "report.html"
        write_report(findings, page)
        return _Outcome(planned, findings, page)

    def run_or_fail(self, planned: _Planned) -> _Outcome:
        """Run a study and print its outcome; an error must not stop the studies after it."""
        try:
            outcome = self.run(planned)
        except AnchorlabError as error:
            return _Outcome(planned, error=str(error), code=1 if isinstance(error, IncompleteError) else 2)
        except Exception as error:  # noqa: BLE001 - its traceback is shown, and the other studies still run
            traceback.print_exc(file=sys.stderr)
            return _Outcome(planned, error=f"{type(error).__name__}: {error}", code=2)
        if not self.quiet:
            outcome.print()
            print_text("")
        return outcome


def study(
    name: shared.StudyName,
    /,
    *names: shared.StudyName,
    profile: str | None = None,
    store: shared.StoreFolder = None,
    report: Path | None = None,
    json: shared.Flag = False,
    dry_run: shared.DryRun = False,
    claim: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None,
    only: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None,
    parts: Annotated[list[Path] | None, Parameter(negative="", consume_multiple=True)] = None,
    changes: Annotated[Changes | None, Parameter(name="*", group="Changes to the study")] = None,
    of: Annotated[PretrainedOptions | None, Parameter(name="*", group="Pretrained models")] = None,
    where: shared.Place = shared.HERE,
) -> int:
    """Run studies: train what the store lacks, analyse the runs, check the claims, write the report.

    Studies of pretrained models train nothing; they measure the model named by their profile, or by `--model`.

    With `--seeds`, a built-in study is judged on these seeds alone, in the same setting. With changed fields, a study
    is trained and judged under a name that shows the change, such as `anchor/identity-heads-3`; several values, such as
    `--model.heads 2,3`, make several such studies. The claims of a study with changed fields are hypotheses, supported
    or not supported.

    Each study gets its own page. If one of several fails, the others still run; the error is printed at the end, with
    exit code 2. If a chunk of a run (some members) fails, all others are still trained; the exit code is then 1.

    Parameters
    ----------
    name
        Name from `anchorlab studies`; a pattern such as `'anchor/*'` for several; a Python file with your study;
        or a TOML file that varies a study.
    names
        Further names, patterns or files.
    profile
        `quick` shows the phenomenon on two cores in minutes; `scaled` is nearer to the paper and takes hours; `paper`
        is the paper's own setting. By default the TOML file's, or `quick`.
    report
        HTML file for one page with all these studies; with several, each also has its own page in the store.
    json
        Print the claims as JSON: an object for one study, a list for several or a pattern.
    claim
        Measure only the claims with these names, such as `enough-data`, and train only the runs that they read. Their
        values are printed and not kept.
    only
        Train only the experiments with these labels, such as `"low frequency"`, without claims and report; `--dry-run`
        lists the labels.
    parts
        Further folders of runs, which are only read: seeds that were trained there are not trained again.
    """
    from anchorlab.runs import Store
    from anchorlab.studies.registry import is_pattern
    from anchorlab.studies.selection import chosen_studies

    kept, changes, of = Store(store), changes or Changes(), of or PretrainedOptions()
    known = chosen_studies((name, *names), changes.vary)
    single = not names and not is_pattern(name)
    if not single and profile is not None and not any(profile in one.study.profiles for one in known):
        known[0].study.profile(profile)  # raises, and names the profiles that there are
    plan = [
        _Planned(found, one, at)
        for one in known
        for found, at in changes.applied(one, profile or one.changes.profile or "quick")
    ]
    for option, given in (("report", report is not None), ("only", bool(only)), ("dry-run", dry_run)):
        if claim and given:
            raise SpecError(option, "cannot be combined with --claim", "leave out one of them")
    if only and report is not None:
        raise SpecError("report", "cannot be combined with --only", "leave out one of them")
    check_file(report, "report")
    on = where.backend()
    access = of.access(" ".join([*(one.profile for one in plan), str(of.address())]))
    if missing := [folder for folder in parts or () if not folder.is_dir()]:
        raise SpecError("parts", f"{missing[0]} is not a folder", "name a folder of runs")
    runner = _Runner(kept, of, access, where, on, list(map(Store, parts or ())), claim or (), quiet=json)
    if only:
        return _train_only(plan, only, runner, dry_run)
    if dry_run:
        _print_forecast(plan, runner)
        return 0
    if single and len(plan) == 1:
        outcome = runner.run(plan[0], report)
        if json:
            print_json(outcome.data())
        else:
            outcome.print()
        return 0
    outcomes = [runner.run_or_fail(one) for one in plan]
    found = [outcome.findings for outcome in outcomes if outcome.findings is not None]
    if report is not None and found:
        from anchorlab.report import write_report

        write_report(found, report)
    if json:
        print_json([outcome.data() for outcome in outcomes])
    else:
        print_table(("study", "claims", "time"), [outcome.row for outcome in outcomes], title="summary")
        for one in outcomes:
            if one.error:
                print_problem(f"{one.planned.study.name} failed: {one.error}")
        if report is not None and found:
            print_text(f"report of all: {report.absolute()}", wrapped=False)
    return max(outcome.code for outcome in outcomes)


def _train_only(plan: Sequence[_Planned], labels: Sequence[str], runner: _Runner, dry_run: bool) -> int:
    from anchorlab.cli.terminal.forecast import print_forecast
    from anchorlab.spec import unknown_name
    from anchorlab.studies.members import asked, run_with_parts

    every = [one for planned in plan for one in planned.study.experiments_of(planned.profile)]
    known = {one.label for one in every}  # several studies may have experiments of one label
    if strange := [label for label in labels if label not in known]:
        raise unknown_name("only", strange[0], known, "experiment")
    named = {one.cell.address: one for label in labels for one in every if one.label == label}
    chosen, where = list(named.values()), runner.where
    if dry_run:
        wanted = asked(chosen, [runner.store, *runner.parts])
        print_forecast(wanted, runner.store, where.workers, where.device, runner.quiet)
        return 0
    with shown(not runner.quiet) as show:
        runs = run_with_parts(chosen, runner.store, runner.parts, where.workers, where.device, show, runner.on)
    shown_runs = Rows(("experiment", "run"), [(one.experiment.label, one.run.address) for one in runs])
    hand_out(runner.quiet, shown_runs.data, [shown_runs])
    return 0


def _print_forecast(plan: Sequence[_Planned], runner: _Runner) -> None:
    """Print what studies would train; studies of pretrained models train nothing."""
    from anchorlab.cli.terminal.forecast import print_forecast
    from anchorlab.studies import experiments_to_run
    from anchorlab.studies.members import asked

    experiments: list[Experiment] = []
    studies: dict[str, str] = {}
    for planned in plan:
        with planned.source.named():
            for one in asked(experiments_to_run(planned.study, planned.profile), [runner.store, *runner.parts]):
                experiments.append(one)
                studies.setdefault(one.cell.address, planned.study.name)
    print_forecast(experiments, runner.store, runner.where.workers, runner.where.device, runner.quiet, studies)
    silent = [planned.study.name for planned in plan if planned.study.observe is not None]
    if silent and not runner.quiet:
        print_text(f"not included, since they train nothing: {', '.join(silent)}")
