"""The accuracies that seeds reach under each value of a choice, how soon they learn, and what changed weights do."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import DotFigure, Dots, LineFigure, Table, grid
from anchorlab.lens import first_crossing
from anchorlab.papers.anchor.open_questions.choices import BASE, COMPARED, MANY, TOGETHER, Choices, Label, Value
from anchorlab.papers.anchor.perturbed import MOVE, MOVES, on_own_sequences, rise_in_loss
from anchorlab.studies.kit import MEAN_AND_RANGE, along, at_end, curves_against, mean_and_range, training_curves
from anchorlab.training import TrainedRun

LEARNED = 0.9  # with at least this test accuracy the task counts as learned


@dataclass(frozen=True)
class Outcome:
    """The results of all seeds under one value of a choice."""

    value: Value
    base: bool  # whether the value is the base setting's
    steps: int  # the length of training
    test: Float[Tensor, "seed"]  # test accuracy at the end
    train: Float[Tensor, "seed"]  # training accuracy at the end
    times: Float[Tensor, "seed"]  # the step at which test accuracy first reaches `LEARNED`, NaN for never

    @property
    def until(self) -> Float[Tensor, "seed"]:
        """Steps until the task is learned; the length of training if it never is."""
        return self.times.nan_to_num(nan=float(self.steps))


def outcomes(runs: Mapping[Label, TrainedRun], setting: Choices) -> dict[str, tuple[Outcome, ...]]:
    """Return the outcomes of each choice, in the order of its values."""
    everyone, seeds = slice(None), setting.base.seeds
    together = {one: slice(at * seeds, (at + 1) * seeds) for at, one in enumerate(setting.together)}
    every = [
        _outcome(one, setting, runs[TOGETHER], together[one])
        if one in together
        else _outcome(one, setting, runs.get(one, runs[BASE]), everyone)
        for one in setting.values
    ]
    return {choice: tuple(one for one in every if one.value.choice == choice) for choice in setting.amounts}


def on_many(runs: Mapping[Label, TrainedRun]) -> dict[Value, TrainedRun]:
    """Return the run on many sequences of each value whose learning time is compared."""
    compared = (Value(choice, amount) for choice, amounts in COMPARED.items() for amount in amounts)
    return {one: runs.get((MANY, one), runs[MANY]) for one in compared}


def timed(runs: Mapping[Label, TrainedRun], setting: Choices) -> dict[Value, Outcome]:
    """Return, for each value whose learning time is compared, its outcome on many sequences."""
    return {one: _outcome(one, setting, run, slice(None)) for one, run in on_many(runs).items()}


def _outcome(value: Value, setting: Choices, run: TrainedRun, members: slice) -> Outcome:
    steps, accuracy = along(run, "test", "accuracy")
    return Outcome(
        value,
        setting.is_base(value),
        run.experiment.steps,
        at_end(run, "test", "accuracy")[members],
        at_end(run, "train", "accuracy")[members],
        first_crossing(steps, accuracy, LEARNED)[members],
    )


def effect(accuracy: Float[Tensor, "value seed"]) -> Float[Tensor, "measured"]:
    """Return each seed's accuracy at the best value minus that at the worst, both chosen by the other seeds.

    Zero on average if the value makes no difference, whereas the highest mean minus the lowest is never negative.
    Empty for a single seed.
    """
    seeds = accuracy.shape[1]
    if seeds < 2:
        return accuracy.new_empty(0)
    others, each = accuracy.sum(dim=1, keepdim=True) - accuracy, torch.arange(seeds)
    return accuracy[others.argmax(dim=0), each] - accuracy[others.argmin(dim=0), each]


def accuracy_dots(choices: Mapping[str, Sequence[Outcome]]) -> DotFigure:
    """Return a figure with a panel for each choice: test accuracy at each value, a point for each seed."""
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
    """Return the figure of test accuracy along training on many sequences, a curve for each model."""
    models = [run.experiment.model for run in runs]
    labels = [f"{one.layers} layers, heads: {one.heads}" for one in models]  # type: ignore[attr-defined]
    return training_curves(
        "Test accuracy along training on many sequences", dict(zip(labels, runs, strict=True)), "test"
    )


def value_table(choices: Mapping[str, Sequence[Outcome]]) -> Table:
    """Return a table with a row for each value of each choice."""
    caption = (
        "The base setting's values have a star. Accuracies at the end of training, over seeds; how many seeds "
        f"reach test accuracy {LEARNED:g}, and after how many steps these seeds do so on average."
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


def left_out(run: TrainedRun) -> Float[Tensor, "count seed"]:
    """Return a run's test accuracy with all layers, without the last, the last two and so on to the first alone."""
    edits = run.experiment.recipe.evaluation.edits
    return torch.stack([at_end(run, "test", "accuracy", edit) for edit in ("none", *edits)])


def left_out_table(found: Mapping[Value, Float[Tensor, "count seed"]]) -> Table:
    """Return a table with a row for each number of layers left out of each model."""
    rows = [
        (one.choice, one.label, count, *mean_and_range(accuracy))
        for one, by_count in found.items()
        for count, accuracy in enumerate(by_count)
    ]
    return Table(
        "Layers left out after training",
        "Test accuracy of models trained on many sequences, without their last layers' weights; layer norms stay.",
        ("choice", "value", "layers left out", "mean", "lowest", "highest"),
        tuple(rows),
    )


def rises(runs: Mapping[Value, TrainedRun]) -> dict[Value, Float[Tensor, "move seed"]]:
    """Return how much each model's loss on its training sequences rises by each move."""
    distinct = {id(run): run for run in runs.values()}  # the base setting is a value of every choice
    measured = {key: on_own_sequences(rise_in_loss, run, MOVES) for key, run in distinct.items()}
    return {one: measured[id(run)] for one, run in runs.items()}


def compared(found: Mapping[Value, Float[Tensor, "move seed"]], choice: str) -> Float[Tensor, "value seed"]:
    """Return the log of the rise of the loss if weights move by `MOVE`, by value of a choice; NaN without a rise."""
    at = MOVES.index(MOVE)
    rise = torch.stack([one[at] for value, one in found.items() if value.choice == choice])
    return rise.where(rise > 0, torch.nan).log()


def rise_curves(found: Mapping[Value, Float[Tensor, "move seed"]]) -> LineFigure:
    """Return the figure of the rise of the loss against the size of the move, a curve for each model."""
    return curves_against(
        "Rise of the loss where all weights move at random",
        MOVES,
        {f"{one.choice}: {one.label}": rise.T for one, rise in found.items()},
        x_label="move, in units of each weight tensor's norm",
        y_label="rise of the loss (nats)",
        caption=f"Measured on training sequences, for models trained on many sequences. {MEAN_AND_RANGE}",
        log_x=True,
        log_y=True,
    )
