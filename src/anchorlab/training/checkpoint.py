"""Keeping a training in a chunk of a run directory, and reading trained ensembles back."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from anchorlab.errors import StoreError
from anchorlab.runs import ChunkDirectory, Run, RunDirectory, metrics_frame
from anchorlab.runs.metrics import last_metrics
from anchorlab.training.ensemble import Ensemble, initialise
from anchorlab.training.evaluation import Row
from anchorlab.training.experiment import Experiment
from anchorlab.training.trainer import TrainingState

if TYPE_CHECKING:
    import polars as pl


class ChunkKeeper:
    """Keeps states and checkpoints in a chunk that is open for writing."""

    def __init__(self, chunk: ChunkDirectory) -> None:
        self.chunk = chunk

    def load(self) -> TrainingState | None:
        """The chunk's newest state."""
        kept = self.chunk.latest_state()
        if kept is None:
            return None
        rows = tuple(Row(*row) for row in kept.metadata["rows"])
        return TrainingState(
            kept.step, kept.tensors, rows, frozenset(kept.metadata["resting"]), kept.metadata["execution"]
        )

    def keep(self, state: TrainingState) -> None:
        """Writes a state in place of the last."""
        metadata = {
            "rows": [list(row) for row in state.rows],
            "resting": sorted(state.resting),
            "execution": state.execution,
        }
        self.chunk.write_state(state.step, state.tensors, metadata)

    def checkpoint(self, step: int, weights: Mapping[str, Tensor]) -> None:
        """Writes the chunk's part of a checkpoint."""
        self.chunk.write_checkpoint(step, weights)


def merge(directory: RunDirectory, experiment: Experiment, plan: Sequence[Sequence[int]]) -> None:
    """Puts the finished chunks of a run together: checkpoints stacked over all members, one table of metrics.

    The checkpoints are those that are due, and the end. Members that reached their stop rule in different chunks may
    have ended at different steps: a chunk that ended earlier stands in a later checkpoint with its last weights.
    """
    chunks = [directory.chunk(index) for index in range(len(plan))]
    rows = [
        (members[row[0]], *row[1:])
        for chunk, members in zip(chunks, plan, strict=True)
        for row in chunk.result()["rows"]
    ]
    steps = [chunk.checkpoints() for chunk in chunks]
    unit, end = experiment.steps_per_unit, max(each[-1] for each in steps)
    due = [
        step
        for step in sorted(set().union(*steps))
        if step == end or (step % unit == 0 and experiment.recipe.checkpoints.due(step // unit))
    ]
    for step in due:
        parts = [
            chunk.read_checkpoint(max(one for one in known if one <= step))
            for chunk, known in zip(chunks, steps, strict=True)
        ]
        directory.write_checkpoint(step, {name: torch.cat([part[name] for part in parts]) for name in parts[0]})
    directory.finish(metrics_frame(rows))


class TrainedRun:
    """A finished run: what was trained, everything measured, and the ensemble at every checkpoint.

    Errors of all readers: `StoreError` that names a missing or altered file.
    """

    def __init__(self, run: Run) -> None:
        if not run.finished:
            raise StoreError(f"{run.path}: not finished; train it again to go on from its last state")
        self.run = run

    def __repr__(self) -> str:
        return f"TrainedRun({self.run.address}, {self.run.label!r})"

    def _repr_html_(self) -> str:
        """In a notebook: what it is, and its metrics at each member's end."""
        last = last_metrics(self.metrics)
        return f"<p><b>{escape(self.run.label)}</b> {self.run.address}</p>{last._repr_html_()}"

    @cached_property
    def experiment(self) -> Experiment:
        """What was trained."""
        return Experiment.from_json(self.run.spec, self.run.label)

    @cached_property
    def metrics(self) -> "pl.DataFrame":
        """Every measured number: columns member, seed, step, split, group, edit, metric, value."""
        return self.run.metrics()

    @property
    def checkpoints(self) -> list[int]:
        """The optimiser steps of which weights were kept, ascending; the last is the end."""
        return self.run.checkpoints()

    def ensemble(self, step: int | None = None) -> Ensemble:
        """The members as they were at a checkpoint; None: at the end."""
        weights = self.run.read_checkpoint(self.checkpoints[-1] if step is None else step)
        blank = initialise(self.experiment.model, self.experiment.task.shape, [0])
        return blank.with_weights({name: weights[name] for name in blank.weights})
