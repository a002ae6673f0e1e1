"""Choose the studies to run within a budget, so that many claims of the papers are settled soon.

A claim is settled in the paper's own setting, by an exact computation, or, for a theorem that names no sizes, by a
numerical check at sizes that we chose. Exact claims and checks of theorems come from the profile `quick`, others from
the profiles that have the paper's setting.
"""

import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from anchorlab.engine import forecast
from anchorlab.errors import SpecError
from anchorlab.findings import ClaimResult, Findings, ledger
from anchorlab.papers.published import published
from anchorlab.progress import Report
from anchorlab.runs import Store
from anchorlab.runs.environment import cores
from anchorlab.studies.profile_names import part_name, part_of
from anchorlab.studies.registry import STUDIES
from anchorlab.studies.registry import study as find_study
from anchorlab.studies.running import experiments_to_run
from anchorlab.studies.study import Study
from anchorlab.training import Experiment
from anchorlab.training.cost import estimated_seconds

SETTLING = ("paper", "exact", "theory")
"""The scopes in which a claim is settled."""

_ROUGH = 4.0  # on a CPU, a study is timed only if its rough estimate is at most this many budgets
_PLANNING, _MOST_PLANNING = 0.1, 60.0  # timing ends after this share of the budget or this many seconds
_UNKNOWN = 600.0  # assumed seconds of a study that trains nothing and is not published


@dataclass(frozen=True)
class Candidate:
    """A study under one profile, with the ids of the claims that it settles."""

    study: Study[Any]
    profile: str
    claims: frozenset[str]
    experiments: tuple[Experiment, ...]


@dataclass(frozen=True)
class Step:
    """A candidate in the order of a plan."""

    candidate: Candidate  # the study under one profile
    claims: frozenset[str]  # the ids of the claims that it settles and no earlier step does
    seconds: float  # estimated time, without the runs that earlier steps train
    rough: bool = False  # whether the time is estimated from counted operations, not from timed training steps
    shared: tuple[str, ...] = ()  # the studies of earlier steps that train some of its runs
    kept: bool = False  # whether some of its runs are in the store


@dataclass(frozen=True)
class Plan:
    """The steps that a budget pays for, and those beyond it, both with the cheapest claims first."""

    within: tuple[Step, ...]
    beyond: tuple[Step, ...]
    planning: float = 0.0  # seconds that the estimates took; the budget pays for them, too

    @property
    def seconds(self) -> float:
        """The estimated seconds of all steps within the budget."""
        return sum(step.seconds for step in self.within)


def candidates(names: Iterable[str], seeds: Sequence[int] | None = None) -> list[Candidate]:
    """Return every profile of the given studies that settles claims, with those claims.

    Studies of pretrained models are left out: their models may have to be fetched. A profile with fewer seeds than
    `seeds` takes the first ones; None means each profile's own.
    """
    found = []
    for name in names:
        one = find_study(name)
        if one.observe is not None:
            continue
        counted = [
            measure
            for measure in one.claims
            if not (measure.precondition or measure.own or one.claim(measure).other_work)
        ]
        exact = frozenset(one.claim(each).id for each in counted if each.exact or each.theory)
        for profile in one.profiles:
            chosen = one.profile(profile)
            papers = frozenset(
                one.claim(each).id for each in counted if chosen.is_papers_setting(each.name) and not each.theory
            )
            settled = papers | exact if papers else exact if profile == "quick" else frozenset()
            if settled:
                name = profile if seeds is None or not one.trains_models else _of_seeds(one, profile, seeds)
                found.append(Candidate(one, name, settled, tuple(experiments_to_run(one, name))))
    return found


def _of_seeds(study: Study[Any], profile: str, seeds: Sequence[int]) -> str:
    """Return the name of a profile with these seeds, or the first of them; its own name if its setting fixes them."""
    own = sorted({seed for one in study.experiments_of(profile) for seed in one.members.seeds})
    taken = list(seeds[: len(own)])
    if taken == own:
        return profile
    try:
        study.experiments_of(name := part_name(profile, taken))
    except SpecError:
        return profile
    return name


def settled_in(kept: Sequence[Findings]) -> dict[str, ClaimResult]:
    """Return the results of the claims that findings settle, by the claims' ids, judged by today's bands.

    Findings of a study that has changed how it measures settle nothing: the study has to run again.
    """
    results = {entry.claim.id: entry.strongest for entry in ledger(_of_today(kept))}
    return {
        name: result
        for name, result in results.items()
        if result.scope in SETTLING and result.verdict != "not measured"
    }


def needing_no_run(settled: Mapping[str, ClaimResult], found: Sequence[Candidate]) -> set[str]:
    """Return the settled claims without those that chosen seeds, such as `paper:1000`, left undecided.

    The candidates have more seeds, or others, unless these are the seeds of one of them.
    """
    profiles = {one.profile for one in found}
    return {
        name
        for name, one in settled.items()
        if one.verdict != "undecided" or part_of(one.profile)[1] is None or one.profile in profiles
    }


def _of_today(kept: Sequence[Findings]) -> Iterator[Findings]:
    for findings in kept:
        if findings.study in STUDIES:
            with suppress(SpecError):
                yield find_study(findings.study).judge_again(findings)


def make_plan(
    found: Sequence[Candidate],
    budget: float,
    settled: Iterable[str] = (),
    store: Store | None = None,
    workers: int | None = None,
    device: str = "cpu",
    report: Report | None = None,
) -> Plan:
    """Return a plan for a budget, the candidates that settle the most open claims per second first.

    Runs that candidates share count once; finished runs cost nothing. On a CPU, candidates far beyond the budget are
    not timed; timing begins with the cheapest candidates, and ends after a tenth of the budget or a minute. The time
    that planning takes is subtracted from the budget, which is in seconds. Claims with the ids `settled` need no run;
    the other arguments are as for `anchorlab.engine.forecast`.
    """
    began, store = time.monotonic(), Store.of(store)
    processes = max(1, workers or cores()) if device == "cpu" else 1
    every = {one.cell.address: one for each in found for one in each.experiments}
    counted = {
        address: 0.0 if one.cell in store else estimated_seconds(one) / processes for address, one in every.items()
    }

    def rough_cost(each: Candidate) -> float:
        return sum(counted[one.cell.address] for one in each.experiments)

    near = sorted((each for each in found if each.experiments), key=rough_cost)
    near = [each for each in near if device != "cpu" or rough_cost(each) <= _ROUGH * budget]
    end, measured = began + min(_PLANNING * budget, _MOST_PLANNING), dict[str, float]()
    for each in near:
        if device == "cpu" and time.monotonic() > end:
            break
        untimed = [one for one in each.experiments if one.cell.address not in measured]
        cells = forecast(untimed, store, workers, device, report=report).cells if untimed else ()
        measured |= {cell.experiment.cell.address: cell.seconds / processes for cell in cells}
    rough, planning = counted.keys() - measured.keys(), time.monotonic() - began
    kept = {address for address, one in every.items() if one.trained and one.cell in store}
    plan = ordered(found, {**counted, **measured}, budget - planning, settled, rough, kept)
    return replace(plan, planning=planning)


def ordered(
    found: Sequence[Candidate],
    costs: Mapping[str, float],
    budget: float,
    settled: Iterable[str] = (),
    rough: Collection[str] = (),
    kept: Collection[str] = (),
) -> Plan:
    """Return a plan with the candidates in order of open claims per second, those that the budget pays for first.

    `costs` are the seconds of every run by its address; `rough` and `kept` are the addresses of runs with rough costs,
    and of runs that are trained already. Claims with the ids `settled` need no run.
    """
    chosen: tuple[list[Step], list[Step]] = [], []
    left, known, paid, spent = list(found), set(settled), dict[str, str](), 0.0
    for steps, limit in zip(chosen, (budget, math.inf), strict=True):
        while left:
            open_ones = [step for one in left if (step := _step(one, costs, known, paid, rough, kept)).claims]
            fitting = [step for step in open_ones if spent + step.seconds <= limit]
            if not fitting:
                break
            best = max(fitting, key=lambda step: len(step.claims) / max(step.seconds, 1e-9))
            steps.append(best)
            spent += best.seconds
            known |= best.claims
            paid = {one.cell.address: best.candidate.study.name for one in best.candidate.experiments} | paid
            left.remove(best.candidate)
    return Plan(tuple(chosen[0]), tuple(chosen[1]))


def _step(
    one: Candidate,
    costs: Mapping[str, float],
    settled: set[str],
    paid: Mapping[str, str],
    rough: Collection[str],
    kept: Collection[str],
) -> Step:
    every = {each.cell.address for each in one.experiments}
    own = every - paid.keys()
    seconds = sum(costs[address] for address in own) if one.experiments else _published_seconds(one)
    shared = tuple(sorted({paid[address] for address in every - own}))
    return Step(one, one.claims - settled, seconds, bool(own & set(rough)), shared, bool(own & set(kept)))


def _published_seconds(one: Candidate) -> float:
    known = [each for each in published() if (each.study, each.profile) == (one.study.name, one.profile)]
    return known[0].provenance.seconds if known else _UNKNOWN
