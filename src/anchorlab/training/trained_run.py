"""Finished runs, for reading: metrics, and members at every checkpoint."""

from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

from torch import nn

from anchorlab.errors import SpecError, StoreError
from anchorlab.runs import Run
from anchorlab.runs.metrics import last_metrics, select_metric
from anchorlab.training.ensemble import Ensemble, initialise
from anchorlab.training.evaluation import UNEDITED
from anchorlab.training.executions import member_module
from anchorlab.training.experiment import Experiment

if TYPE_CHECKING:
    import polars as pl


class TrainedRun:
    """A finished run: the experiment, its metrics, and its members at every checkpoint.

    The run of an untrained experiment has the initial weights, and what they measure, at all times of its recipe.

    Errors: `StoreError` for an unfinished run, and from every reader, naming the missing or altered file.
    """

    def __init__(self, run: Run) -> None:
        if not run.finished:
            raise StoreError(f"{run.path}: not finished; train it again to continue from its last state")
        self.run = run

    def __repr__(self) -> str:
        return f"TrainedRun({self.run.address}, {self.run.label!r})"

    def _repr_html_(self) -> str:
        """Return the label, the address and the last metrics, for a notebook."""
        last = last_metrics(self.metrics)
        return f"<p><b>{escape(self.run.label)}</b> {self.run.address}</p>{last._repr_html_()}"

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment that was trained."""
        return Experiment.from_json(self.run.spec, self.run.label)

    @cached_property
    def metrics(self) -> "pl.DataFrame":
        """All metrics, with columns member, seed, step, split, group, edit, metric, value."""
        measured = self.run.metrics()
        if self.experiment.trained:
            return measured
        import polars as pl

        times = pl.DataFrame({"step": self.experiment.steps_at(self.experiment.recipe.evaluation)})
        return measured.drop("step").join(times, how="cross").select(measured.columns)

    def metric(self, metric: str, split: str = "test", group: str = "all", edit: str = UNEDITED) -> "pl.DataFrame":
        """Return one metric over training, with columns member, step, value.

        Args:
            metric: a name such as `loss` or `accuracy`
            split: the split it was measured on
            group: the group of sequences; `all` for every sequence of the split
            edit: the name of a weight edit of the recipe's evaluation; `none` for the weights as trained

        Errors: `SpecError` that names the argument and the nearest known name.
        """
        return select_metric(self.metrics, metric, split, group, edit)

    @property
    def checkpoints(self) -> list[int]:
        """The optimiser steps whose weights were kept, ascending; the last is the end of training."""
        if self.experiment.trained:
            return self.run.checkpoints()
        return self.experiment.steps_at(self.experiment.recipe.checkpoints)

    def ensemble(self, step: int | None = None) -> Ensemble:
        """Return all members at the checkpoint of `step`, or at the end of training when None.

        Errors: `StoreError` for a step without a checkpoint.
        """
        if not self.experiment.trained:
            return self._initial_ensemble
        weights = self.run.read_checkpoint(self.checkpoints[-1] if step is None else step)
        blank = initialise(self.experiment.model, self.experiment.task.shape, [0])
        return blank.with_weights({name: weights[name] for name in blank.weights})

    @cached_property
    def _initial_ensemble(self) -> Ensemble:
        return self.experiment.initial_ensemble()

    def model(self, member: int = 0, step: int | None = None) -> nn.Module:
        """Return one member as a separate module, at the checkpoint of `step`, or at the end when None.

        Errors: `SpecError` for a member that does not exist.
        """
        size = len(self.experiment.members)
        if not 0 <= member < size:
            raise SpecError("member", f"there is no member {member}", f"choose one from 0 to {size - 1}")
        return member_module(self.ensemble(step).select([member]), 0)
