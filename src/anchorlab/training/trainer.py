"""The training loop: train the members of an experiment from their last kept state to the end."""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Shaped
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.models import fast_float32, full_float32
from anchorlab.models.gpu import existing_device
from anchorlab.models.model import Model
from anchorlab.training.cost import LEAST_ROW, mapping_pays
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.evaluation import OBJECTIVE, UNEDITED, Evaluator, MappedEvaluator, Row
from anchorlab.training.executions import Graphs, MappedExecution, MappedGradients, MemberExecution
from anchorlab.training.experiment import Experiment
from anchorlab.training.feed import FixedSampleFeed, make_feed
from anchorlab.training.flat_optimiser import FlatOptimiser, FlatWeights, RowOptimiser
from anchorlab.training.optimisers import StackedOptimiser, undecayed_weights
from anchorlab.training.signals import DelayedSignals

logger = logging.getLogger(__name__)

ExecutionName = Literal["auto", "member", "mapped"]

_REPORT_EVERY = 0.25  # seconds between two reports of progress
_LEAST_TRAINING_PER_KEEPING = 20  # least time between two states, as a multiple of the time to keep one


@dataclass(frozen=True)
class Progress:
    """The progress of training.

    Fields
        step: optimiser steps done
        steps: optimiser steps in total
        metrics: the newest metrics of unedited weights, as `<split> <metric>`, averaged over members and groups
        note: a message for the user, such as that training starts over; usually empty
    """

    step: int
    steps: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class TrainingState:
    """Everything needed to resume training, with the same bytes as if it had never stopped.

    Fields
        step: optimiser steps done
        tensors: `weights.<name>` and `optimiser.<slot>.<name>`
        rows: all metrics measured so far
        resting: the indices of the members that have met the stop rule
        execution: the name of the execution, so that the same one resumes
    """

    step: int
    tensors: Mapping[str, Shaped[Tensor, "member ..."]]
    rows: tuple[Row, ...]
    resting: frozenset[int]
    execution: str


@runtime_checkable
class Keeper(Protocol):
    """A place to keep states and checkpoints, such as a chunk of a run directory."""

    def load(self) -> TrainingState | None:
        """Return the newest state, or None at the beginning."""

    def keep(self, state: TrainingState) -> None:
        """Keep a state in place of the previous one."""

    def checkpoint(self, step: int, weights: Mapping[str, Shaped[Tensor, "member ..."]]) -> None:
        """Keep the weights at a step."""


@dataclass(frozen=True)
class Trained:
    """The result of training: the ensemble at the end, and every measured number."""

    ensemble: Ensemble
    rows: tuple[Row, ...] = field(repr=False)


def fit(
    experiment: Experiment,
    device: str | torch.device = "cpu",
    execution: ExecutionName = "auto",
    keeper: Keeper | None = None,
    report: Callable[[Progress], None] | None = None,
    keep_every: float = 20.0,
    start: Ensemble | None = None,
    idle: frozenset[int] = frozenset(),
) -> Trained:
    """Train all members of an experiment in this process.

    Ctrl-C and SIGTERM take effect at the end of a step, after the state has been kept.

    Resumed training gives the same bytes as uninterrupted training, on the same machine with the same number of threads
    (`torch.get_num_threads`).

    Args:
        experiment: the experiment to train
        device: `cpu`, `cuda` or one of several, such as `cuda:1`
        execution: `member` trains one member after another, `mapped` all at once, `auto` chooses the faster way for the
            device: mapped on CUDA, and on a CPU for eight or more members of a tiny model
        keeper: provides the state to resume from, and receives states and checkpoints
        report: called with the progress a few times per second
        keep_every: seconds between two kept states; longer if keeping a state is slow
        start: the final weights of `experiment.start`; if None, that experiment is trained here first
        idle: the indices of members that are neither trained nor measured, and only fill places in a mapped pass

    Returns: the members at the end, and all metrics.

    Errors: `SpecError` for a device that does not exist, and for `mapped` with a module that torch cannot map.
    """
    device = check_device(device)
    if start is None and experiment.start is not None:
        start = fit(experiment.start, device, execution).ensemble
    with full_float32(), torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        session = Session(experiment, device, execution, keeper, start, idle)
        with fast_float32(), DelayedSignals() as signals:
            session.run(report, keep_every, signals)
    return Trained(session.ensemble, tuple(session.rows))


class Session:
    """Training in progress: the ensemble, everything that changes with it, and the current step."""

    def __init__(
        self,
        experiment: Experiment,
        device: torch.device,
        execution: ExecutionName,
        keeper: Keeper | None = None,
        start: Ensemble | None = None,
        idle: frozenset[int] = frozenset(),
    ) -> None:
        recipe, members, task = experiment.recipe, experiment.members, experiment.task
        self.experiment, self.keeper, self.recipe = experiment, keeper, recipe
        self.mixed = recipe.precision == "bfloat16"
        dtype = torch.float64 if recipe.precision == "float64" else torch.float32
        self.ensemble = experiment.initial_ensemble().to(device)
        if start is not None:
            for weight, value in self.ensemble.weights.items():
                value.copy_(start.weights[weight])
        self.feed = make_feed(task, recipe, members, device, dtype)
        state = keeper.load() if keeper is not None else None
        if state is not None:
            execution = "mapped" if state.execution.startswith("mapped") else "member"
        mapped = self._maps(execution, device)
        self.optimiser: StackedOptimiser | RowOptimiser
        self.execution: MemberExecution | MappedExecution
        self.optimiser, self.execution = self._all_at_once(device) if mapped else self._one_by_one()
        measure = MappedEvaluator if mapped else Evaluator
        fixed = self.feed if isinstance(self.feed, FixedSampleFeed) else None
        self.evaluator = measure(task, recipe.evaluation, members, device, dtype, self.mixed, fixed, recipe.loss)
        self.rows: list[Row] = []
        self.resting = idle
        self.step = 0
        if state is not None:
            self._restore(state)

    def _maps(self, name: ExecutionName, device: torch.device) -> bool:
        """Return whether members are mapped. Errors: `SpecError` for `mapped` if torch cannot map the model."""
        if name == "member" or (name == "auto" and device.type == "cpu" and not mapping_pays(self.experiment)):
            return False
        if isinstance(self.ensemble.template, Model) and self.recipe.loss is None:
            return True
        reason = MappedGradients(self.ensemble, self.experiment.losses, self.mixed).refusal(self.feed.at(0))
        if reason is None:
            return True
        if name == "mapped":
            raise SpecError("execution", f"the model cannot be mapped over members ({reason})", "use member")
        logger.info("members are trained one by one, because the model cannot be mapped over them: %s", reason)
        return False

    @property
    def _undecayed(self) -> frozenset[str]:
        return undecayed_weights(self.ensemble.template, self.recipe.optimiser.undecayed) & {*self.ensemble.trainable}

    def _one_by_one(self) -> tuple[StackedOptimiser, MemberExecution]:
        """Return the optimiser and execution for training one by one; each member's weights begin at a cache line."""
        self.ensemble = self.ensemble.with_weights(
            {name: FlatWeights({name: value}).views[name] for name, value in self.ensemble.weights.items()}
        )
        weights = {name: self.ensemble.weights[name] for name in self.ensemble.trainable}
        without = self._undecayed
        decays = {name: value.new_tensor(name not in without) for name, value in weights.items()} if without else None
        optimiser = StackedOptimiser(self.recipe, self.experiment.members, weights, decays)
        return optimiser, MemberExecution(self.ensemble, optimiser, self.experiment.losses, self.mixed)

    def _all_at_once(self, device: torch.device) -> tuple[RowOptimiser, MappedExecution]:
        """Return the optimiser and execution for mapped training; the trainable weights move into one buffer."""
        flat = FlatWeights({name: self.ensemble.weights[name] for name in self.ensemble.trainable})
        self.ensemble = self.ensemble.with_weights({**self.ensemble.weights, **flat.views})
        graphs = Graphs(device) if device.type == "cuda" else None
        update = RowOptimiser if graphs is None and self.ensemble.parameter_count >= LEAST_ROW else FlatOptimiser
        optimiser = update(self.recipe, self.experiment.members, flat, self._undecayed)
        return optimiser, MappedExecution(self.ensemble, optimiser, self.experiment.losses, self.mixed, graphs)

    @property
    def all_rest(self) -> bool:
        """Whether every member has met its stop rule, or is idle."""
        return len(self.resting) == self.ensemble.size

    def run(self, report: Callable[[Progress], None] | None, keep_every: float, signals: DelayedSignals) -> None:
        """Train from the current step to the end; if a signal arrives, keep a state before it takes effect."""
        recipe, total, unit = self.recipe, self.experiment.steps, self.experiment.steps_per_unit
        if not self.experiment.trained:
            total = 0  # measured once; `TrainedRun` repeats the metrics at all times of the recipe
        after_step = self.experiment.after_step
        members = self.ensemble.with_weights(MappingProxyType(dict(self.ensemble.weights)))  # changed in place only
        kept = reported = time.monotonic()
        pause = keep_every
        while self.step < total and not self.all_rest:
            elapsed, within = divmod(self.step, unit)  # the recipe's time, and steps into its current unit
            if within == 0:
                self._evaluate_and_checkpoint(elapsed)
                if self.all_rest:
                    break
            self.take_step(self.step, recipe.schedule.factor(elapsed))
            self.step += 1
            if after_step is not None:
                after_step(self.step, members)
            now = time.monotonic()
            if report is not None and now - reported > _REPORT_EVERY:
                report(self.progress())
                reported = now
            if self.keeper is not None and (signals.waiting or now - kept > pause):
                self.keeper.keep(self._state())
                kept = time.monotonic()
                pause = max(keep_every, _LEAST_TRAINING_PER_KEEPING * (kept - now))
            signals.deliver()
        self._evaluate_and_checkpoint(-(-self.step // unit), last=True)
        if report is not None:
            report(Progress(total, total, self.progress().metrics))

    def take_step(self, number: int, factor: float) -> None:
        """Take optimiser step `number`, from 0, with all members that do not rest; `factor` scales learning rates."""
        active = [index not in self.resting for index in range(self.ensemble.size)]
        self.execution.step(self.feed.at(number), factor, active, number)

    def _evaluate_and_checkpoint(self, elapsed: int, last: bool = False) -> None:
        """Measure the members, once a step, and keep a checkpoint, each if due at the time `elapsed` or at the end."""
        measured = bool(self.rows) and self.rows[-1].step == self.step
        if (last or self.recipe.evaluation.due(elapsed)) and not measured:
            rows = self.evaluator.measure(self.ensemble, self.step, self.resting)
            self._check_objective(rows)
            self.rows += rows
            self._apply_stop_rule(rows)
        if self.keeper is not None and self.experiment.trained and (last or self.recipe.checkpoints.due(elapsed)):
            self.keeper.checkpoint(self.step, self.ensemble.weights)

    def _check_objective(self, rows: list[Row]) -> None:
        """Raise `SpecError` if the recipe's own loss is not finite for a member with unedited weights."""
        lost = [row for row in rows if row.metric == OBJECTIVE and row.edit == UNEDITED and not isfinite(row.value)]
        if lost and (loss := self.recipe.loss) is not None:
            since = f"after step {self.rows[-1].step} and by step {self.step}" if self.rows else f"at step {self.step}"
            problem = f"{loss.kind!r} became {lost[0].value} for seed {lost[0].seed} {since}"
            raise SpecError("loss", problem, "keep it and its gradient finite, lower the learning rate, or clip")

    def _apply_stop_rule(self, rows: list[Row]) -> None:
        """Add to `resting` the members that meet the stop rule in every group of sequences."""
        stop = self.recipe.stop
        if stop is None:
            return
        judged = [row for row in rows if (row.metric, row.split, row.edit) == (stop.metric, stop.split, UNEDITED)]
        missed = {row.member for row in judged if not stop.reached(row.value)}
        self.resting |= {row.member for row in judged} - missed

    def progress(self) -> Progress:
        """Return the progress, with the newest metrics averaged over members and groups."""
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
        if isinstance(self.execution, MappedExecution):
            self.execution.go_on_as(state.execution)
        self.rows, self.resting, self.step = list(state.rows), self.resting | state.resting, state.step


def check_device(device: str | torch.device) -> torch.device:
    """Return the device of this name. Errors: `SpecError` if it does not exist, or is neither a CPU nor CUDA."""
    found = existing_device(device)
    if found.type not in ("cpu", "cuda"):
        raise SpecError("device", f"{str(device)!r} cannot train", "use cpu or cuda")
    return found
