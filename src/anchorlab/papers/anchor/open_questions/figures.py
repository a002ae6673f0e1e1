"""Figures and tables of the study of Table 1's questions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from anchorlab.findings import DotFigure, Dots, LineFigure, Table, grid, line
from anchorlab.papers.anchor.open_questions.measures import LEARNED, Layers, Outcome, Spike
from anchorlab.studies.kit import (
    ACCURACY,
    MEAN_AND_RANGE,
    along,
    column_table,
    curves_against,
    mean_and_range,
    training_curves,
)
from anchorlab.training import TrainedRun


def accuracy_dots(choices: Mapping[str, Sequence[Outcome]]) -> DotFigure:
    """Return a panel for each choice: test accuracy at each value, a point for each seed."""
    return DotFigure(
        title="Test accuracy by choice",
        caption="One choice is changed at a time from the base setting (bold). A point for each seed, at the end of "
        "training; the line joins the means.",
        panels=tuple(
            Dots(
                choice,
                tuple(one.value.label for one in values),
                grid(torch.stack([one.test for one in values])),
                next(index for index, one in enumerate(values) if one.base),
            )
            for choice, values in choices.items()
        ),
        y_label="test accuracy",
        y_range=(0.0, 1.0),
    )


def speed_curves(runs: Sequence[TrainedRun]) -> LineFigure:
    """Return test accuracy along training on many sequences, a curve for each model."""
    models = [run.experiment.model for run in runs]
    labels = [f"{one.layers} layers, heads: {one.heads}" for one in models]  # type: ignore[attr-defined]
    return training_curves(
        "Test accuracy along training on many sequences", dict(zip(labels, runs, strict=True)), "test"
    )


def spike_curves(run: TrainedRun, rates: Sequence[float]) -> list[LineFigure]:
    """Return training loss and test accuracy of the first seed at each constant learning rate."""
    seeds, first = len(run.experiment.members) // len(rates), run.experiment.members.seeds[0]
    chosen = {f"learning rate {rate:g}": index * seeds for index, rate in enumerate(rates)}
    made = []
    for title, split, metric, log in (
        ("Training loss at a constant learning rate", "train", "loss", True),
        ("Test accuracy at a constant learning rate", "test", "accuracy", False),
    ):
        steps, values = along(run, split, metric)
        lines = (line(label, steps, values[[member]]) for label, member in chosen.items())
        made.append(
            LineFigure(
                title=title,
                caption=f"Seed {first}, without clipping.",
                x_label="steps",
                y_label=f"{split} {metric}",
                lines=tuple(replace(one, low=(), high=()) for one in lines),
                log_y=log,
                y_range=(None, None) if log else ACCURACY,
                seeds=str(first),
            )
        )
    return made


def layer_curves(layers: Layers) -> LineFigure:
    """Return the figure of the best head's attention in both layers along training, up to the last step but one."""
    names = {"shift": "layer 0: shift by one", "broadcast": "layer 1: broadcast the key"}
    steps, values = layers.attention.steps[:-1], layers.attention.values
    return curves_against(
        "Attention of both layers early in training",
        steps,
        {label: values[name][:, :-1] for name, label in names.items()},
        x_label="steps",
        y_label="attention",
        caption="To the previous position in layer 0, from the last position to the key's in layer 1, best head. "
        f"{MEAN_AND_RANGE}",
        y_range=ACCURACY,
    )


def value_table(choices: Mapping[str, Sequence[Outcome]]) -> Table:
    """Return a table with a row for each value of each choice."""
    caption = (
        "The base setting's values have a star. At the end of training, over seeds; how many of them reach "
        f"test accuracy {LEARNED:g}, and after how many steps on average of those that do."
    )
    rows = [_row(one, " *" * one.base) for values in choices.values() for one in values]
    return Table("Every value of every choice", caption, _COLUMNS, tuple(rows))


def speed_table(many: Iterable[Outcome]) -> Table:
    """Return a table with a row for each value compared on many sequences."""
    caption = "As above, for the values whose learning times are compared."
    return Table("On many sequences", caption, _COLUMNS, tuple(map(_row, many)))


_COLUMNS = ("choice", "value", "test mean", "test lowest", "test highest", "train mean", "seeds", "reach", "steps")


def _row(one: Outcome, mark: str = "") -> tuple[str | float | None, ...]:
    reached = one.times[one.times.isfinite()]
    return (
        one.value.choice,
        f"{one.value.label}{mark}",
        *mean_and_range(one.test),
        float(one.train.mean()),
        len(one.test),
        len(reached),
        float(reached.mean()) if len(reached) else None,
    )


def spike_table(found: Sequence[Spike], run: TrainedRun) -> Table:
    """Return a table with a row for each loss spike."""
    members = run.experiment.members
    rates = members.learning_rate or ()
    return column_table(
        "Every loss spike",
        "Steps of the lowest loss before and of the first loss as low after; training loss before and at its peak; "
        "test accuracy before and after; by how much it had risen in as long a time before; the gain beyond that.",
        {
            "learning rate": [rates[one.member] for one in found],
            "seed": [members.seeds[one.member] for one in found],
            "before": [one.before for one in found],
            "after": [one.after for one in found],
            "loss": [one.loss for one in found],
            "peak": [one.peak for one in found],
            "accuracy before": [one.accuracy[0] for one in found],
            "accuracy after": [one.accuracy[1] for one in found],
            "drift": [one.drift for one in found],
            "gain": [one.gain for one in found],
        },
    )
