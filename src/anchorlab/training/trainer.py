"""The training loop: members of one experiment, from their last kept state to the end."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.models import fast_float32
from anchorlab.models.model import Model
from anchorlab.training.ensemble import Ensemble, initialise
from anchorlab.training.evaluation import UNEDITED, Evaluator, Row
from anchorlab.training.executions import Execution, MappedExecution, MemberExecution
from anchorlab.training.experiment import Experiment
from anchorlab.training.feed import FixedSampleFeed, make_feed
from anchorlab.training.optimisers import StackedOptimiser

logger = logging.getLogger(__name__)

ExecutionName = Literal["auto", "member", "mapped"]

_REPORT_EVERY = 0.25  # seconds between two reports of progress
_KEEPING_COSTS_AT_MOST = 20  # training lasts this many times as long as the keeping of states


@dataclass(frozen=True)
class Progress:
    """How far a training has come: optimiser steps done of all steps, and the newest mean of each plain metric."""

    step: int
    steps: int
    metrics: Mapping[str, float] = field(default_factory=dict)


@runtime_checkable
class Keeper(Protocol):
    """Where a training keeps what it must not lose: a chunk of a run directory, or nothing."""

    def load(self) -> "TrainingState | None":
        """The newest state kept, if any."""

    def keep(self, state: "TrainingState") -> None:
        """Keeps a state in place of the last."""

    def checkpoint(self, step: int, weights: Mapping[str, Tensor]) -> None:
        """Keeps the weights of a step."""


@dataclass(frozen=True)
class TrainingState:
    """All that is needed to go on as if nothing had happened.

    `tensors` holds `weights.<name>` and `optimiser.<slot>.<name>`, each `[member ...]`; `rows` what was measured;
    `resting` the members that have reached their stop rule; `execution` the one that ran, so that the same goes on.
    """

    step: int
    tensors: Mapping[str, Tensor]
    rows: tuple[Row, ...]
    resting: frozenset[int]
    execution: str


@dataclass(frozen=True)
class Trained:
    """What a training leaves: the ensemble at the end and every measured number."""

    ensemble: Ensemble
    rows: tuple[Row, ...]


def fit(
    experiment: Experiment,
    device: str | torch.device = "cpu",
    execution: ExecutionName = "auto",
    keeper: Keeper | None = None,
    report: Callable[[Progress], None] | None = None,
    keep_every: float = 20.0,
    start: Ensemble | None = None,
) -> Trained:
    """Trains all members of an experiment in this process, from `keeper`'s last state if it has one.

    `start` holds the weights of the experiment that this one starts from, whose training it spares; without it that is
    trained here first. `keep_every` is in seconds, stretched where keeping is slow. A run that was stopped anywhere and
    goes on gives the same bytes as one that never was, on the same machine with as many threads
    (`torch.get_num_threads`).

    Errors: `SpecError` where the device does not exist, or for `mapped` with a module that torch cannot map.
    """
    device = check_device(device)
    if start is None and experiment.start is not None:
        start = fit(experiment.start, device, execution).ensemble
    session = _Session(experiment, device, execution, keeper, start)
    with fast_float32():
        session.run(report, keep_every)
    return Trained(session.ensemble, tuple(session.rows))


class _Session:
    """One training in progress."""

    def __init__(
        self,
        experiment: Experiment,
        device: torch.device,
        execution: ExecutionName,
        keeper: Keeper | None,
        start: Ensemble | None,
    ) -> None:
        recipe, members, task = experiment.recipe, experiment.members, experiment.task
        self.experiment, self.keeper, self.recipe = experiment, keeper, recipe
        self.mixed = recipe.precision == "bfloat16"
        dtype = torch.float64 if recipe.precision == "float64" else torch.float32
        seeds = [members.stream("initialisation", index) for index in range(len(members))]
        scales, gamma = members.initialisation_scale, members.gamma
        self.ensemble = initialise(experiment.model, task.shape, seeds, dtype, scales, gamma).to(device)
        if start is not None:
            for weight, value in self.ensemble.weights.items():
                value.copy_(start.weights[weight])
        trainable = {name: self.ensemble.weights[name] for name in self.ensemble.trainable}
        self.optimiser = StackedOptimiser(recipe, members, trainable)
        self.feed = make_feed(task, recipe, members, device, dtype)
        fixed = self.feed if isinstance(self.feed, FixedSampleFeed) else None
        self.evaluator = Evaluator(task, recipe.evaluation, members, device, dtype, self.mixed, fixed)
        self.rows: list[Row] = []
        self.resting: frozenset[int] = frozenset()
        self.step = 0
        name = execution
        state = keeper.load() if keeper is not None else None
        if state is not None:
            self._restore(state)
            name = "mapped" if state.execution == "mapped" else "member"
        self.execution = self._make_execution(name, device)

    def _make_execution(self, name: ExecutionName, device: torch.device) -> Execution:
        arguments = self.ensemble, self.optimiser, self.experiment.task.loss, self.mixed
        if name == "member" or (name == "auto" and device.type == "cpu"):  # there mapping gained nothing at any size
            return MemberExecution(*arguments)
        mapped = MappedExecution(*arguments)
        own = isinstance(self.ensemble.template, Model)
        reason = None if own else mapped.refusal(self.feed.at(self.step))
        if reason is None:
            return mapped
        if name == "mapped":
            raise SpecError("execution", f"the model cannot be mapped over members ({reason})", "use member")
        logger.info("members are trained one by one, the model cannot be mapped over them: %s", reason)
        return MemberExecution(*arguments)

    def run(self, report: Callable[[Progress], None] | None, keep_every: float) -> None:
        """From the current step to the end."""
        recipe, total, unit = self.recipe, self.experiment.steps, self.experiment.steps_per_unit
        kept = reported = time.monotonic()
        pause = keep_every
        while self.step < total and len(self.resting) < self.ensemble.size:
            moment, within = divmod(self.step, unit)
            if within == 0:
                self._visit(moment)
                if len(self.resting) == self.ensemble.size:
                    break
            active = [index not in self.resting for index in range(self.ensemble.size)]
            self.execution.step(self.feed.at(self.step), recipe.schedule.factor(moment), active, self.step)
            self.step += 1
            now = time.monotonic()
            if report is not None and now - reported > _REPORT_EVERY:
                report(self.progress())
                reported = now
            if self.keeper is not None and now - kept > pause:
                self.keeper.keep(self._state())
                kept = time.monotonic()
                pause = max(keep_every, _KEEPING_COSTS_AT_MOST * (kept - now))
        self._visit(-(-self.step // unit), last=True)
        if report is not None:
            report(Progress(total, total, self.progress().metrics))

    def _visit(self, moment: int, last: bool = False) -> None:
        """Measures and keeps what is due at a moment of the recipe's time; twice at one moment is once."""
        measured = bool(self.rows) and self.rows[-1].step == self.step
        if (last or self.recipe.evaluation.due(moment)) and not measured:
            rows = self.evaluator.measure(self.ensemble, self.step, self.resting)
            self.rows += rows
            self._rest(rows)
        if self.keeper is not None and (last or self.recipe.checkpoints.due(moment)):
            self.keeper.checkpoint(self.step, self.ensemble.weights)

    def _rest(self, rows: list[Row]) -> None:
        stop = self.recipe.stop
        if stop is None:
            return
        asked = [row for row in rows if row.metric == stop.metric and row.split == stop.split and row.edit == UNEDITED]
        missed = {row.member for row in asked if not stop.reached(row.value)}
        self.resting |= {row.member for row in asked} - missed

    def progress(self) -> Progress:
        """How far it has come, with the newest plain metrics averaged over members."""
        newest: dict[str, list[float]] = {}
        for row in reversed(self.rows):
            if row.step != self.rows[-1].step:
                break
            if row.edit == UNEDITED:
                newest.setdefault(f"{row.split} {row.metric}", []).append(row.value)
        means = {name: sum(values) / len(values) for name, values in newest.items()}
        return Progress(self.step, self.experiment.steps, means)

    def _state(self) -> TrainingState:
        tensors = {
            **{f"weights.{name}": value for name, value in self.ensemble.weights.items()},
            **{f"optimiser.{name}": value for name, value in self.optimiser.state.items()},
        }
        return TrainingState(self.step, tensors, tuple(self.rows), self.resting, self.execution.name)

    def _restore(self, state: TrainingState) -> None:
        for kind, values in (("weights", self.ensemble.weights), ("optimiser", self.optimiser.state)):
            for name, value in values.items():
                value.copy_(state.tensors[f"{kind}.{name}"])
        self.rows, self.resting, self.step = list(state.rows), state.resting, state.step


def check_device(device: str | torch.device) -> torch.device:
    """The device called so. Errors: `SpecError` for one that is neither a CPU nor CUDA, or is not there."""
    try:
        found = torch.device(device)
        torch.zeros((), device=found)
    except (RuntimeError, AssertionError):
        remedy = "use cpu" if "cuda" in str(device) else "use cpu or cuda"
        raise SpecError("device", f"{str(device)!r} is not there", remedy) from None
    if found.type not in ("cpu", "cuda"):
        raise SpecError("device", f"{str(device)!r} cannot train", "use cpu or cuda")
    return found
