"""Forward-backward recitation: the forward direction is learned with less data.

Sequences of nine tokens contain m, 3, n. If the last token is m, the answer is n (forward); if it is n, the answer is m
(backward). Half of the sequences are of each kind.

Source: anchor functions, sections 3.1.3 and 4.7, Figure 10; settings in its appendix A.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.findings import LineFigure, Table, at_least
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.settings import BATCH_NOTE_TEXT, Setting, paper_recipe
from anchorlab.studies import SEARCHED, Profile, Reading, Study, over, quick_model, quick_recipe, reading
from anchorlab.studies.claim import Measurement, claims, measures_in, precondition
from anchorlab.studies.kit import ACCURACY, MEAN_AND_RANGE, along, at_end, column_table, curves_against
from anchorlab.tasks import task
from anchorlab.training import Experiment, TrainedRun

DIRECTIONS = ("forward", "backward")
LOWEST, HIGHEST = 0.1, 0.98  # a size is judged if the mean accuracy of both directions is between these
EARLY = {"epochs": 0.1, "steps": 0.25}  # share of the training: the paper's 400 of 4000 epochs, a quarter of the steps


@dataclass(frozen=True)
class Sizes(Setting):
    """A setting that is trained on several numbers of sequences, the largest last."""

    sizes: tuple[int, ...] = ()


QUICK = Sizes(
    quick_model(layers=4),
    quick_recipe(500, steps=800, batch=100, learning_rate=2e-3),
    seeds=14,
    sizes=(500, 1000, 2000, 3000, 7000),
)
PAPER = Sizes(DecoderSpec(), paper_recipe(500, batch=100), seeds=5, sizes=tuple(range(500, 7001, 500)))


def experiments(setting: Sizes) -> dict[int, Experiment]:
    """Return an experiment for each size."""
    recitation = task("anchor/recitation")
    return {size: setting.on(size).experiment(recitation, f"recitation, {size} sequences") for size in setting.sizes}


@dataclass(frozen=True)
class Length:
    """Test accuracies after one length of training, in both directions."""

    name: str
    forward: Float[Tensor, "size member"]
    backward: Float[Tensor, "size member"]

    @property
    def judged(self) -> Bool[Tensor, "size"]:
        """At which sizes the directions can be compared: neither near chance nor saturated."""
        both = (self.forward.mean(dim=1) + self.backward.mean(dim=1)) / 2
        return (both >= LOWEST) & (both <= HIGHEST)

    @property
    def difference(self) -> Float[Tensor, "size member"]:
        """Forward minus backward test accuracy, by size."""
        return self.forward - self.backward


class Seen(Reading):
    """Both directions early and at the end, and the accuracy over both at the largest size."""

    early = reading(lambda seen: _length(seen.runs, EARLY[seen.first.experiment.recipe.unit]))  # both directions early
    late = reading(lambda seen: _length(seen.runs, 1.0))  # both directions at the end
    # the accuracy over both directions at the largest size
    largest = reading(lambda seen: at_end(seen.last, "test", "accuracy"))


class Time(NamedTuple):
    """When both directions are compared: the name of the reading, the paper's epochs, and the time in words."""

    name: str
    epochs: int
    words: str


def _at_both(name: str) -> dict[str, Time]:
    times = Time("early", 400, "early in training"), Time("late", 4000, "at the end of training")
    return {f"{name}-{one.name}": one for one in times}


def _length(runs: Mapping[int, TrainedRun], share: float) -> Length:
    """Read the accuracies at the evaluation nearest to a share of the training."""
    name, found = "", {}
    for direction in DIRECTIONS:
        values = []
        for run in runs.values():
            steps, accuracy = along(run, "test", "accuracy", group=direction)
            at = min(range(len(steps)), key=lambda index: abs(steps[index] - share * run.experiment.steps))
            values.append(accuracy[:, at])
            name = f"{steps[at] // run.experiment.steps_per_unit} {run.experiment.recipe.unit}"
        found[direction] = torch.stack(values)
    return Length(name, **found)


@claims("section 4.7 and Fig 10 ({of.epochs} epochs)", "at every size", at_least(0.8), _at_both("every-size"))
def every_size(seen: Seen, of: Time) -> Measurement:
    """Forward beats backward at every train size, {of.words}.

    Share of train sizes with a higher forward than backward test accuracy {of.words}, among sizes where the mean of
    both over seeds lies in {LOWEST:g} to {HIGHEST:g}; mean over seeds.
    """
    length: Length = getattr(seen, of.name)
    judged = length.difference[length.judged]
    if not len(judged):
        return Measurement(None)
    won = int((judged.mean(dim=1) > 0).sum())
    ahead = (judged > 0).double().mean(dim=0)
    return over(ahead, detail=f"on average ahead at {won} of {len(judged)} sizes that can be judged")


@claims("Fig 10 ({of.epochs} epochs)", "no value in the text; above 0", at_least(0.02), _at_both("difference"))
def difference(seen: Seen, of: Time) -> Float[Tensor, "seed"] | None:
    """Forward is the easier direction, {of.words}.

    Forward minus backward test accuracy {of.words}, mean over seeds and over sizes where the mean of both lies in
    {LOWEST:g} to {HIGHEST:g}.
    """
    length: Length = getattr(seen, of.name)
    return length.difference[length.judged].mean(dim=0) if length.judged.any() else None


@precondition("Fig 3 and 10", "about 1", at_least(0.95))
def learns(seen: Seen) -> Float[Tensor, "seed"]:
    """With enough data both directions are answered.

    Test accuracy over both directions at the largest train size, mean over seeds, at the end.
    """
    return seen.largest


def _both_lengths(seen: Seen) -> list[LineFigure]:
    return [_directions(list(seen.runs), length) for length in (seen.early, seen.late)]


def _directions(sizes: list[int], length: Length) -> LineFigure:
    return curves_against(
        f"Test accuracy in both directions after {length.name} (Fig 10)",
        sizes,
        {"forward": length.forward.T, "backward": length.backward.T},
        x_label="training sequences",
        y_label="test accuracy",
        caption=f"{MEAN_AND_RANGE} In test both m and n are at positions where training never shows them (modular "
        "residue).",
        y_range=ACCURACY,
    )


def _by_size(seen: Seen) -> Table:
    sizes, lengths = list(seen.runs), (seen.early, seen.late)
    forward, backward, difference, judged = (
        torch.cat([getattr(length, name) for length in lengths])
        for name in ("forward", "backward", "difference", "judged")
    )
    return column_table(
        "Forward against backward by train size",
        "Means over seeds. A size is judged where the mean accuracy of both directions lies in "
        f"{LOWEST:g} to {HIGHEST:g}.",
        {
            "training length": [length.name for length in lengths for _ in sizes],
            "training sequences": sizes * len(lengths),
            "forward": forward.mean(dim=1),
            "backward": backward.mean(dim=1),
            "difference": difference.mean(dim=1),
            "seeds with forward ahead": (difference > 0).sum(dim=1),
            "seeds": [len(row) for row in forward],
            "judged": ["yes" if one else "no" for one in judged],
        },
    )


def _answers(seen: Seen) -> Table:
    """Return the table of how often the answer is n or m, by direction: one is right, the other the last token."""
    answers = {
        f"{direction} asked, {token} answered": [
            float(at_end(run, "test", f"agrees: always {rule}", group=direction).mean()) for run in seen.runs.values()
        ]
        for direction in DIRECTIONS
        for rule, token in zip(DIRECTIONS, "nm", strict=True)
    }
    return column_table(
        "What is answered at the end, by direction",
        "Mean over seeds of the share of test sequences answered by n (always forward) or by m (always backward). "
        "The one that the direction does not ask for is the last token.",
        {"training sequences": list(seen.runs), **answers},
    )


STUDY = Study(
    "anchor/recitation",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(_both_lengths, _by_size, _answers),
    profiles={
        "quick": Profile(
            QUICK,
            "Measured at 200 steps and at the end of the same runs. The paper measures at 400 and 4000 epochs, so "
            "that its larger samples are also trained for more steps.",
        ),
        "paper": Profile(
            PAPER,
            "The setting of appendix A and the authors' code, measured at 400 and 4000 epochs of the same runs. The "
            f"paper lists neither its train sizes nor its seeds. {BATCH_NOTE_TEXT}",
            paper=True,
        ),
    },
    smoke=replace(QUICK.shortened(steps=4), sizes=(200, 500)),
    chosen_on=SEARCHED,
)
