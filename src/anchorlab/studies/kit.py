"""Common tools of studies: numbers read from runs, curves along training, tables by seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.findings import LineFigure, Map, MapFigure, Reference, Table, grid, line
from anchorlab.findings.limits import Range
from anchorlab.tasks import Batch, Task
from anchorlab.training import TrainedRun

Values = TypeVar("Values")

MEAN_AND_RANGE = "Mean over seeds."
"""The caption of curves over seeds; the line below a figure says what its bands are, if it has any."""

ACCURACY = (0.0, 1.02)
"""The y axis of accuracies, with room above a curve at 1."""


def at_end(run: TrainedRun, split: str, metric: str, edit: str = "none", group: str = "all") -> Float[Tensor, "member"]:
    """Return each member's final value of a metric.

    Args:
        run: a finished run
        split: `train`, `test`, ...
        metric: `loss`, `accuracy`, ...
        edit: the name of a weight edit that was evaluated during training
        group: the sequences of one group; `all` for all of them

    Errors: `SpecError` for an unknown name, and for a metric that was not measured for every member.
    """
    last = run.metric(metric, split, group, edit).group_by("member", maintain_order=True).last()
    if last.height != len(run.experiment.members):
        problem = f"was measured for {last.height} of {len(run.experiment.members)} members"
        raise SpecError(metric, f"{problem} on {split}, edit {edit}, group {group}", "choose another")
    return torch.tensor(last["value"].to_list())


def read(run: TrainedRun, kind: type[Values], measure: Callable[[TrainedRun], Values]) -> Values:
    """Return what `measure` finds in a run; each field of the result is a reading, as in `TrainedRun.reading`.

    Args:
        run: a finished run, with weights or kept without them
        kind: the type of the result, a dataclass of tensors `[member ...]`
        measure: measures the run's weights, at most once
    """
    measured = cache(partial(measure, run))

    def field(name: str) -> Shaped[Tensor, "member ..."]:
        return run.reading(f"{kind.__name__}.{name}", lambda _: getattr(measured(), name))

    return kind(**{one.name: field(one.name) for one in fields(kind)})  # type: ignore[arg-type]


def along(
    run: TrainedRun, split: str, metric: str, edit: str = "none", group: str = "all"
) -> tuple[list[int], Float[Tensor, "member step"]]:
    """Return the optimiser steps at which a metric was evaluated, and its values; NaN where a member has none.

    Arguments as in `at_end`.
    """
    table = run.metric(metric, split, group, edit)
    steps, place = np.unique(table["step"].to_numpy(), return_inverse=True)
    values = np.full((len(run.experiment.members), len(steps)), np.nan)
    values[table["member"].to_numpy(), place] = table["value"].to_numpy()
    return steps.tolist(), torch.from_numpy(values)


def along_units(
    run: TrainedRun, split: str, metric: str, edit: str = "none", group: str = "all"
) -> tuple[list[float], Float[Tensor, "member step"]]:
    """Return a metric as `along` does, with times in the recipe's own unit: epochs or steps."""
    steps, values = along(run, split, metric, edit, group)
    return [step / run.experiment.steps_per_unit for step in steps], values


def train_size(run: TrainedRun) -> int:
    """Return the number of training sequences of a run that was trained on a fixed sample."""
    return run.experiment.recipe.data.size  # type: ignore[union-attr]


def mean_and_range(values: Float[Tensor, "member"]) -> tuple[float, float, float]:
    """Return the mean, lowest and highest value, as cells of a table."""
    return float(values.mean()), float(values.min()), float(values.max())


def example(task: Task, batch: Batch, among: Bool[Tensor, "batch"]) -> tuple[int, tuple[str, ...]]:
    """Return the index in a batch of the first sequence that `among` selects, and its tokens as text."""
    place = int(among.nonzero()[0])
    return place, tuple(token.text for token in task.render(batch.inputs[place : place + 1])[0].tokens)


def training_curves(
    title: str,
    runs: Mapping[str, TrainedRun],
    split: str,
    metric: str = "accuracy",
    *,
    caption: str = MEAN_AND_RANGE,
    y_label: str = "test accuracy",
    log_y: bool = False,
    references: Sequence[Reference] = (),
    bands: bool = True,
) -> LineFigure:
    """Return the figure of a metric along training, a curve for each run by its label.

    A curve is the mean over seeds, with their range if `bands` is set. Accuracies have an axis from 0 to 1, other
    metrics an axis that fits the data.
    """
    curves = [(label, run, split) for label, run in runs.items()]
    found = _along_training(title, curves, metric, caption, y_label)
    lines = found.lines if bands else tuple(replace(one, low=(), high=()) for one in found.lines)
    return replace(found, lines=lines, log_y=log_y, references=tuple(references))


def split_curves(
    title: str,
    run: TrainedRun,
    splits: Mapping[str, str],
    metric: str = "accuracy",
    *,
    caption: str = MEAN_AND_RANGE,
    y_label: str = "accuracy",
) -> LineFigure:
    """Return the figure of one run's metric along training, a curve with its range over seeds for each split.

    `splits` names each split's curve. Accuracies have an axis from 0 to 1, other metrics an axis that fits the data.
    """
    curves = [(label, run, split) for split, label in splits.items()]
    return _along_training(title, curves, metric, caption, y_label)


def _along_training(
    title: str, curves: Sequence[tuple[str, TrainedRun, str]], metric: str, caption: str, y_label: str
) -> LineFigure:
    """Return the figure of a metric along training, with a curve for each label, run and split."""
    lines = tuple(line(label, *along_units(run, split, metric)) for label, run, split in curves)
    y_range = ACCURACY if metric == "accuracy" else (None, None)
    return LineFigure(title, caption, curves[0][1].experiment.recipe.unit, y_label, lines, y_range=y_range)


def curves_against(
    title: str,
    x: Sequence[int | float],
    curves: Mapping[str, Shaped[Tensor, "member x"]],
    *,
    x_label: str,
    y_label: str,
    caption: str = MEAN_AND_RANGE,
    log_x: bool = False,
    log_y: bool = False,
    y_range: Range = (None, None),
    references: Sequence[Reference] = (),
) -> LineFigure:
    """Return the figure of values `[member x]` against a quantity: a curve with its range over seeds for each label."""
    lines = tuple(line(label, x, values) for label, values in curves.items())
    return LineFigure(title, caption, x_label, y_label, lines, log_x, log_y, y_range, tuple(references))


def attention_maps(
    title: str, maps: Mapping[str, Float[Tensor, "query key"]], ticks: Sequence[str] = (), *, caption: str, seed: int
) -> MapFigure:
    """Return the figure of attention patterns `[query key]`, each with its name, six in a row, on a scale from 0 to 1.

    `ticks` are the tokens of the sequence, `seed` is the model's.
    """
    drawn = [Map(name, grid(values), tuple(ticks), tuple(ticks)) for name, values in maps.items()]
    rows = tuple(tuple(drawn[first : first + 6]) for first in range(0, len(drawn), 6))
    return MapFigure(title=title, caption=caption, maps=rows, value_range=(0.0, 1.0), seeds=str(seed))


def column_table(title: str, caption: str, columns: Mapping[str, Any]) -> Table:
    """Return a table from columns: values `[row]`, a tensor or a sequence, by heading.

    Integer tensors are shown as integers; a float that is not finite is shown as a dash.
    """
    values = [one.tolist() if isinstance(one, Tensor) else list(one) for one in columns.values()]
    return Table(title=title, caption=caption, columns=tuple(columns), rows=tuple(zip(*values, strict=True)))


def seed_table(title: str, caption: str, seeds: Sequence[int], columns: Mapping[str, Any]) -> Table:
    """Return a table with a row for each seed and a column of values `[member]` for each heading.

    Values are shown as in `column_table`.
    """
    return column_table(title, caption, {"seed": seeds, **columns})


def mean_table(
    title: str, caption: str, heading: str, rows: Mapping[str, Mapping[str, Float[Tensor, "member"]]]
) -> Table:
    """Return a table of means over seeds, with named columns and a row for each label under `heading`."""
    names = next(iter(rows.values()))
    means = {name: [float(row[name].mean()) for row in rows.values()] for name in names}
    return column_table(title, caption, {heading: rows, **means})
