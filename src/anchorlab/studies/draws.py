"""What a study draws of what it read: figures, tables and views, each made when a report needs it.

A drawing is a function of the study's `Reading` that returns a figure, a table, a view, a list of them, or None for
nothing. The functions here return drawings that many studies share.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from anchorlab.findings import Figure, LineFigure, Reference, Table
from anchorlab.findings.view import AttentionView
from anchorlab.studies import kit
from anchorlab.studies.readings import Evaluated, Quantity, Reading

Drawn = Figure | Table | AttentionView
Draw = Callable[[Any], Drawn | Sequence[Drawn] | None]


@dataclass(frozen=True)
class _AlongTraining:
    """A drawing along training; `evaluated` are the splits and metrics that it reads."""

    draw: Callable[[Reading], LineFigure]
    evaluated: Evaluated

    def __call__(self, seen: Reading) -> LineFigure:
        return self.draw(seen)


def curves(
    title: str,
    split: str,
    metric: str,
    *,
    caption: str = kit.MEAN_AND_RANGE,
    y_label: str = "test accuracy",
    log_y: bool = False,
    learned: float | None = None,
) -> Callable[[Reading], LineFigure]:
    """Return a drawing of a metric along training: a curve for each run, with its range over seeds.

    Args:
        title, split, metric, caption, y_label, log_y: as in `anchorlab.studies.training_curves`
        learned: the level that counts as learned, drawn as a dashed line
    """

    style: dict[str, Any] = {"caption": caption, "y_label": y_label, "log_y": log_y}
    levels = () if learned is None else [Reference("learned", learned)]

    def draw(seen: Reading) -> LineFigure:
        runs = {run.experiment.label: run for run in seen.runs.values()}
        return kit.training_curves(title, runs, split, metric, references=levels, **style)

    return _AlongTraining(draw, ([split], [metric]))


def split_curves(
    title: str, splits: Mapping[str, str], caption: str = kit.MEAN_AND_RANGE
) -> Callable[[Reading], LineFigure]:
    """Return a drawing of the accuracy of the first run alone along training: a curve for each split.

    `splits` names each split's curve, as in `{"test on task": "unseen pair"}`. For another run call
    `anchorlab.studies.kit.split_curves`.
    """
    return _AlongTraining(
        lambda seen: kit.split_curves(title, seen.first, splits, caption=caption), (splits, ["accuracy"])
    )


def against(title: str, quantity: Quantity[Any], x_label: str, y_label: str) -> Callable[[Reading], LineFigure]:
    """Return a drawing of a quantity `[member]` against the labels of the runs, which are numbers: mean and range."""

    def draw(seen: Reading) -> LineFigure:
        values = quantity.of(seen)
        curve = torch.stack(list(values.values())).T  # [member run]
        return kit.curves_against(title, list(values), {y_label: curve}, x_label=x_label, y_label=y_label)

    return draw


def seed_by_seed(title: str, caption: str, *quantities: Quantity[Any]) -> Callable[[Reading], Table]:
    """Return a drawing: a table with a row for each seed, and a column for each quantity `[member]` of each run."""

    def draw(seen: Reading) -> Table:
        columns = {f"{one.heading}, {label}": value for one in quantities for label, value in one.of(seen).items()}
        return kit.seed_table(title, caption, seen.first.experiment.members.seeds, columns)

    return draw


def by_seed(title: str, caption: str, columns: Callable[[Any], Mapping[str, Any]]) -> Callable[[Reading], Table]:
    """Return a drawing: a table with a row for each seed of the first run and columns `[member]` by heading."""
    return lambda seen: kit.seed_table(title, caption, seen.first.experiment.members.seeds, columns(seen))
