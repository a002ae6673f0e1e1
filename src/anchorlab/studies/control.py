"""Controls: what the claims of a study give on members that were never trained.

The runs of a control are those of the study's experiments with the initial weights at all times; the same analysis and
the same measures read them. A claim whose band accepts the control says little about what training does.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from anchorlab.engine import Status, run
from anchorlab.errors import StoreError
from anchorlab.findings import Control, Findings
from anchorlab.runs import Store
from anchorlab.studies.claim import Measure, as_control
from anchorlab.studies.study import Study
from anchorlab.training import Ensemble, Experiment, TrainedRun

CHOSEN = "initial weights of the members judged after training"
"""The note of a control whose members were chosen by what they reach in training."""


def with_controls(
    study: Study[Any],
    findings: Findings,
    store: Store | None = None,
    trained: Sequence[TrainedRun] = (),
    device: str = "cpu",
    report: Callable[[Status], None] | None = None,
) -> Findings:
    """Return findings of a study, each claim with what untrained members give.

    Exact claims, and studies without experiments, have no control. A claim may presuppose training: it may judge only
    members that learned the task. Then the control has the initial weights of those members, if the trained runs are
    given, and no value otherwise. Where the analysis or a measure fails on untrained members, the control's note names
    the error.

    Args:
        study: the study
        findings: its findings under one of its profiles
        store: where the evaluations of untrained members are kept; by default the folder `runs`
        trained: the runs behind the findings, in the order of the experiments
        device: `cpu` or `cuda`
        report: called with the progress

    Errors: those of `anchorlab.engine.run`.
    """
    measures = {study.claim(measure).id: measure for measure in study.claims if not measure.exact}
    experiments = control_experiments(study, findings.profile)
    if not experiments:
        return findings
    runs = run(experiments, store, device=device, report=None if report is None else partial(_renamed, report))
    setting = study.profile(findings.profile).setting
    found = _controls(study, measures, runs, setting)
    open_claims = {
        one.claim.id: one for one in findings.claims if one.value is not None and _is_open(found.get(one.claim.id))
    }
    if trained and open_claims:
        chosen = {name: measures[name] for name in open_claims}
        again = _controls(study, chosen, [_BeforeTraining(one) for one in trained], setting)
        for name, control in again.items():
            ours = open_claims[name]
            if control.value is not None and (control.value, control.note) != (ours.value, ours.spread or ""):
                found[name] = replace(control, note="; ".join(filter(None, (CHOSEN, control.note))))
    claims = [replace(one, untrained=found.get(one.claim.id, one.untrained)) for one in findings.claims]
    return replace(findings, claims=tuple(claims))


def control_experiments(study: Study[Any], profile: str) -> list[Experiment]:
    """Return the untrained experiments that the controls of a study need: none if all its claims are exact."""
    if all(measure.exact for measure in study.claims):
        return []
    return [experiment.untrained() for experiment in study.experiments_of(profile)]


class _BeforeTraining(TrainedRun):
    """The initial weights of trained members, with the metrics that training led them to.

    So a measure chooses the members by what they learned. One that reads metrics alone gives what it gave before.
    """

    def __init__(self, trained: TrainedRun) -> None:
        super().__init__(trained.run)

    def ensemble(self, step: int | None = None) -> Ensemble:
        return self.experiment.untrained().initial_ensemble()


def _is_open(control: Control | None) -> bool:
    """Return whether untrained members do not meet what a claim presupposes."""
    return control is not None and control.value is None


def _controls(
    study: Study[Any], measures: dict[str, Measure[Any]], runs: Sequence[TrainedRun], setting: Any
) -> dict[str, Control]:
    """Return what measures give on runs, by the ids of their claims."""
    seen = _attempt(lambda: study.analyse(runs, setting).seen)
    if isinstance(seen, Control):
        return dict.fromkeys(measures, seen)
    return {name: _attempt(partial(_control, study, one, seen)) for name, one in measures.items()}


def _control(study: Study[Any], measure: Measure[Any], seen: Any) -> Control:
    return as_control(study.claim(measure), measure(seen))


def _attempt(compute: Callable[[], Any]) -> Any:
    """Return what `compute` returns, or a control that names the error which untrained members caused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as means of nothing, where no member learned
            return compute()
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001 - an analysis may fail in any way on members that learned nothing
        return Control(None, f"fails: {type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": "))


def _renamed(report: Callable[[Status], None], status: Status) -> None:
    report(replace(status, label="untrained members"))
