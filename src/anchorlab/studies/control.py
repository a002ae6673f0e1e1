"""Controls: the values of a study's claims on members that were never trained, or trained on another task.

The former keep their initial weights; the latter have the same model, recipe and seeds, but were trained on the study's
`other_task`. The same analysis and measures read both, on the study's own sequences. If a claim's band accepts the
untrained members, the claim says little about training; if it accepts members trained on another task, it says little
about training on this one.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from anchorlab.engine import On
from anchorlab.engine.pool import Backend
from anchorlab.errors import StoreError
from anchorlab.findings import Control, Findings, Table
from anchorlab.progress import Report
from anchorlab.runs import Store
from anchorlab.studies.claim import Measure, as_control
from anchorlab.studies.kit import at_end, mean_and_range
from anchorlab.studies.members import run_with_parts
from anchorlab.studies.profile_names import part_of
from anchorlab.studies.some_claims import NotTrainedError
from anchorlab.studies.study import Study
from anchorlab.training import Ensemble, Experiment, TrainedRun

CHOSEN = "initial weights of the members judged after training"
"""The note of a control whose members were chosen by what they reach in training."""

ELSEWHERE = "Members trained on another task"
"""The title of the table of the second control's metrics on the task that its members learned."""


def with_controls(
    study: Study[Any],
    findings: Findings,
    store: Store | None = None,
    trained: Sequence[TrainedRun] = (),
    device: str = "cpu",
    report: Report | None = None,
    workers: int | None = None,
    on: On | Backend = "local",
    parts: Sequence[Store] = (),
) -> Findings:
    """Return findings whose claims also have their values on untrained members and on members trained on another task.

    Exact claims, and studies without experiments, have no control. If a claim judges only members that learned the
    task, the control uses the initial weights of those members if the trained runs are given, and has no value
    otherwise. Weights trained on another task replace the trained weights, but the metrics stay, so that the same seeds
    are judged; a claim that reads only metrics has no such control. If the analysis or a measure fails on a control,
    its note names the error.

    Args:
        study, findings: the study, and its findings under one of its profiles
        store, device, report, workers, on, parts: for the runs of the controls, as for `run_study`
        trained: the runs behind the findings, in the order of the experiments

    Errors: as `anchorlab.engine.run`.
    """
    measures = {study.claim(measure).id: measure for measure in study.claims if not measure.exact}
    experiments = control_experiments(study, findings.profile)
    if not experiments:
        return findings
    elsewhere = other_experiments(study, findings.profile, trained) if trained else {}
    show = None if report is None else lambda status: report(replace(status, label="controls"))
    asked = [*experiments, *elsewhere.values()]
    shared = workers if elsewhere else None  # untrained members cost less than the start of a process
    runs = run_with_parts(asked, Store.of(store), parts, shared, device, show, on)
    untrained, others = runs[: len(experiments)], dict(zip(elsewhere, runs[len(experiments) :], strict=True))
    setting = study.profile(findings.profile).setting
    ours = {one.claim.id: Control(one.value, one.spread or "") for one in findings.claims if one.value is not None}
    judged = {name: measure for name, measure in measures.items() if name in ours}

    def swapped(weights: Sequence[TrainedRun]) -> dict[str, Control]:
        return _controls(study, judged, [Swapped(*both) for both in zip(trained, weights, strict=True)], setting)

    never = _controls(study, measures, untrained, setting)
    is_open = any(never[name].value is None for name in judged)
    for name, control in (swapped(untrained) if trained and is_open else {}).items():
        if never[name].value is None and control.value is not None and control != ours[name]:
            never[name] = replace(control, note="; ".join(filter(None, (CHOSEN, control.note))))
    claims = [replace(one, untrained=never.get(one.claim.id, one.untrained)) for one in findings.claims]
    if not others:
        return replace(findings, claims=tuple(claims))
    found = swapped([others.get(index, one) for index, one in enumerate(trained)])
    initial = swapped([untrained[index] if index in others else one for index, one in enumerate(trained)])
    for name in judged:
        # A value that is the same for all weights reads none, unless untrained members give it with their own metrics.
        if ours[name] == found[name] == initial[name] != never[name]:
            del found[name]
    claims = [replace(one, other_task=found.get(one.claim.id)) for one in claims]
    return replace(findings, claims=tuple(claims), tables=(*findings.tables, _table(list(others.values()))))


def control_experiments(study: Study[Any], profile: str) -> list[Experiment]:
    """Return the untrained experiments that the controls of a study need: none if all its claims are exact."""
    if all(measure.exact for measure in study.claims):
        return []
    return [experiment.untrained() for experiment in study.experiments_of(profile)]


def other_experiments(study: Study[Any], profile: str, trained: Sequence[TrainedRun] = ()) -> dict[int, Experiment]:
    """Return the trainings on another task for a study's controls, by the index of the experiment each controls.

    Empty for chosen seeds of a paper's own setting, where the copies would cost as much as the seeds. Runs of the
    experiments whose weights were not read, each given as a `Swapped`, need no control.
    """
    if study.other_task is None or (part_of(profile)[1] is not None and study.profile(profile).paper):
        return {}
    closed = {index for index, one in enumerate(trained) if isinstance(one, Swapped) and not one.opened}
    read = [(index, one) for index, one in enumerate(study.experiments_of(profile)) if index not in closed]
    tasks = [(index, one, study.other_task(one)) for index, one in read]
    return {index: replace(one, task=task, label=f"{one.label}, control") for index, one, task in tasks if task}


def trainings(study: Study[Any], profile: str) -> list[Experiment]:
    """Return the trainings of a study: its experiments, then their copies on another task."""
    return [*study.experiments_of(profile), *other_experiments(study, profile).values()]


class Swapped(TrainedRun):
    """A run with its own metrics and the weights of another run; `opened` is whether these were read.

    So a measure selects the same members as on the run itself, and a measure of metrics alone keeps its value.
    """

    def __init__(self, trained: TrainedRun, weights: TrainedRun) -> None:
        super().__init__(trained.run, trained.experiment)
        self._weights, self.opened = weights, False

    def ensemble(self, step: int | None = None) -> Ensemble:
        """Return the members of the other run."""
        self.opened = True
        return self._weights.ensemble(step)

    @property
    def _readings(self) -> dict[str, Tensor]:
        self.opened = True
        return self._weights._readings


def _table(others: Sequence[TrainedRun]) -> Table:
    rows = []
    for one in others:
        of = one.experiment
        metric = "accuracy" if "accuracy" in of.metrics else "loss"
        rows += [
            (of.task.name, f"{metric}, {split}", *mean_and_range(at_end(one, split, metric))) for split in of.splits
        ]
    return Table(
        ELSEWHERE,
        "The second control: the same model, recipe and seeds. What its members reach on the task that they learned.",
        ("their task", "measured", "mean", "lowest", "highest"),
        tuple(rows),
    )


def _controls(
    study: Study[Any], measures: dict[str, Measure[Any]], runs: Sequence[TrainedRun], setting: Any
) -> dict[str, Control]:
    """Return what measures give on runs, by the ids of their claims."""
    seen = _attempt(lambda: study.see(runs, setting))
    if isinstance(seen, Control):
        return dict.fromkeys(measures, seen)
    return {name: _attempt(partial(_control, study, one, seen)) for name, one in measures.items()}


def _control(study: Study[Any], measure: Measure[Any], seen: Any) -> Control:
    return as_control(study.claim(measure), measure(seen))


def _attempt(compute: Callable[[], Any]) -> Any:
    """Return what `compute` returns, or a control without a value whose note names the error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as means of nothing, if no member learned
            return compute()
    except (StoreError, NotTrainedError):
        raise
    except Exception as error:  # noqa: BLE001 - an analysis may fail in any way on members that learned nothing
        return Control(None, f"fails: {type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": "))
