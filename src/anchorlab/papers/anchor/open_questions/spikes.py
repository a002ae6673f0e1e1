"""Loss spikes at constant learning rates, and what test accuracy gains over each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anchorlab.findings import Line, LineFigure, Table, numbers
from anchorlab.studies.kit import ACCURACY, along, column_table
from anchorlab.training import TrainedRun

PEAK, WINDOW = 10, 5  # a spike is a loss of at least `PEAK` times the lowest of the `WINDOW` evaluations before


@dataclass(frozen=True)
class Spike:
    """A rise of the training loss and its return to the level before the rise."""

    member: int  # whose loss it is
    before: int  # the step of the lowest loss before the rise
    after: int  # the first step at which the loss is as low again
    loss: float  # the loss at the step `before`
    peak: float  # the highest loss
    accuracy: tuple[float, float]  # test accuracy at the steps `before` and `after`
    drift: float  # how much test accuracy rose in an equally long time before the spike
    seed: int  # the member's seed, which it shares with members at other learning rates

    @property
    def gain(self) -> float:
        """How much test accuracy rises over the spike, beyond its drift."""
        return round(self.accuracy[1] - self.accuracy[0] - self.drift, 6)


def spikes(run: TrainedRun) -> list[Spike]:
    """Return the loss spikes of every member that end before training does.

    The run must be evaluated on both `train` and `test`, often enough to see spikes.
    """
    steps, losses = along(run, "train", "loss")
    _, accuracies = along(run, "test", "accuracy")
    rows = zip(run.experiment.members.seeds, losses.tolist(), accuracies.tolist(), strict=True)
    return [
        Spike(
            member,
            steps[before],
            steps[after],
            loss[before],
            max(loss[before:after]),
            (accuracy[before], accuracy[after]),
            accuracy[before] - accuracy[max(2 * before - after, 0)],
            seed,
        )
        for member, (seed, loss, accuracy) in enumerate(rows)
        for before, after in _ends(loss)
    ]


def _ends(loss: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Yield for each spike the index of the lowest loss before it and of the first loss after it that is as low."""
    at = WINDOW
    while at < len(loss):
        level = min(loss[at - WINDOW : at])
        if not loss[at] >= PEAK * level:
            at += 1
            continue
        after = next((index for index in range(at, len(loss)) if loss[index] <= level), None)
        if after is None:
            return
        yield max(index for index in range(at - WINDOW, at) if loss[index] == level), after
        at = after + 1


def spike_curves(run: TrainedRun, rates: Sequence[float]) -> list[LineFigure]:
    """Return training loss and test accuracy of the first seed at each constant learning rate."""
    seeds, first = len(run.experiment.members) // len(rates), run.experiment.members.seeds[0]
    chosen = {f"learning rate {rate:g}": index * seeds for index, rate in enumerate(rates)}

    def figure(title: str, split: str, metric: str) -> LineFigure:
        steps, values = along(run, split, metric)
        return LineFigure(
            title=title,
            caption=f"Seed {first}, without clipping.",
            x_label="steps",
            y_label=f"{split} {metric}",
            lines=tuple(Line(label, numbers(steps), numbers(values[member])) for label, member in chosen.items()),
            log_y=metric == "loss",
            y_range=ACCURACY if metric == "accuracy" else (None, None),
            seeds=str(first),
        )

    return [
        figure("Training loss at a constant learning rate", "train", "loss"),
        figure("Test accuracy at a constant learning rate", "test", "accuracy"),
    ]


def spike_table(found: Sequence[Spike], run: TrainedRun) -> Table:
    """Return a table with a row for each loss spike."""
    members = run.experiment.members
    rates = members.learning_rate or ()
    return column_table(
        "Every loss spike",
        "Steps of the lowest loss before and of the first loss as low after; training loss before and at its peak; "
        "test accuracy before and after; its rise in an equally long time before; the gain beyond that rise.",
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
