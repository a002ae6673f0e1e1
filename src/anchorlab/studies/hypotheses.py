"""Your own hypotheses about the runs of a study, as a file declares them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import wraps
from typing import Any

import torch
from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.findings import Band
from anchorlab.findings.claims import check_band
from anchorlab.spec import Spec, check_known
from anchorlab.studies.claim import Measure, Measured, over
from anchorlab.studies.draws import Draw
from anchorlab.studies.kit import at_end
from anchorlab.studies.readings import Reading
from anchorlab.studies.study import Study
from anchorlab.training import TrainedRun


class Hypothesis(Spec):
    """A statement about a metric at the end of training, averaged over the members of some runs.

    Each seed is one unit of the interval, even if it occurs in several runs.
    `runs` selects experiments by their labels, with `*` for any text. Exactly one of `at_least`, `at_most` and `within`
    gives the values that support the statement.
    """

    name: str
    statement: str
    split: str = "test"
    metric: str = "accuracy"
    runs: str = "*"
    at_least: float | None = None
    at_most: float | None = None
    within: tuple[float, float] | None = None

    @model_validator(mode="after")
    def _one_band(self) -> "Hypothesis":
        if sum(one is not None for one in (self.at_least, self.at_most, self.within)) != 1:
            raise SpecError(self.name, "needs one band", "give at_least, at_most or within")
        check_band(self.band, self.name)
        return self

    @property
    def band(self) -> Band:
        """The values that support the hypothesis."""
        return self.within or (self.at_least, self.at_most)

    def measure(self) -> Measure[Any]:
        """Return the measure of the hypothesis, a function of `WithRuns`."""

        def measured(seen: WithRuns) -> Measured:
            labelled = zip(seen.runs.values(), seen.labels, strict=True)
            chosen = [run for run, label in labelled if fnmatchcase(label, self.runs)]
            return over(_by_seed(chosen, self.split, self.metric))

        where = "" if self.runs == "*" else f" of {self.runs}"
        words = f"{self.metric} on {self.split}{where} at the end, mean over members"
        return Measure(
            self.name, self.statement, "our own hypothesis", "none", words, self.band, False, measured, own=True
        )


def _by_seed(runs: Sequence[TrainedRun], split: str, metric: str) -> Float[Tensor, "seed"]:
    """Return the mean over the members of each seed: members that share a seed are not independent."""
    found: dict[int, list[Tensor]] = {}
    for run in runs:
        for seed, value in zip(run.experiment.members.seeds, at_end(run, split, metric), strict=True):
            found.setdefault(seed, []).append(value)
    return torch.stack([torch.stack(values).mean() for values in found.values()])


class WithRuns(Reading):
    """A study's reading, with the label of each run.

    The labels are those of this study's experiments: a stored run keeps the label of the study that trained it first.
    """

    def __init__(self, own: Reading, labels: Sequence[str]) -> None:
        super().__init__(own.runs, own.setting)
        self.own, self.labels = own, labels


def with_hypotheses(study: Study[Any], hypotheses: Sequence[Hypothesis]) -> Study[Any]:
    """Return a study that judges hypotheses about its runs, in addition to its own claims.

    Errors: `SpecError` for a study that trains nothing, and for two claims with the same name.
    """
    if not hypotheses:
        return study
    if not study.trains_models:
        raise SpecError("hypothesis", f"{study.name} trains nothing", "leave it out")
    known = {measure.name for measure in study.claims}
    for one in hypotheses:
        if one.name in known:
            raise SpecError(f"hypothesis.{one.name}", f"{study.name} has a claim of this name", "choose another")
        known.add(one.name)
    assert study.reads is not None

    @wraps(study.reads, updated=())
    def reads(runs: Mapping[Any, TrainedRun], setting: Any) -> WithRuns:
        labels = [experiment.label for experiment in study.labelled(setting).values()]
        return WithRuns(study.see(list(runs.values()), setting), labels)

    claims = (*map(_of_own, study.claims), *(one.measure() for one in hypotheses))
    return replace(study, claims=claims, reads=reads, draws=[*map(_drawn, study.draws)], smoke=None)


def check_runs(study: Study[Any], profile: str, hypotheses: Sequence[Hypothesis]) -> None:
    """Raise `SpecError` for a hypothesis about runs, a split or a metric missing from a profile of the study."""
    experiments = study.experiments_of(profile)
    for one in hypotheses:
        at = f"hypothesis.{one.name}"
        chosen = [each for each in experiments if fnmatchcase(each.label, one.runs)]
        if not chosen:
            (nearest,) = get_close_matches(one.runs, [each.label for each in experiments], n=1, cutoff=0.0)
            raise SpecError(f"{at}.runs", f"no run is named {one.runs!r}", f"the nearest is {nearest!r}")
        for experiment in chosen:
            check_known(f"{at}.split", one.split, experiment.splits, "split")
            check_known(f"{at}.metric", one.metric, experiment.metrics, "metric")


def _of_own(measure: Measure[Any]) -> Measure[Any]:
    return replace(measure, function=lambda seen: measure(seen.own), case=())


def _drawn(draw: Draw) -> Draw:
    return wraps(draw, updated=())(lambda seen: draw(seen.own))
