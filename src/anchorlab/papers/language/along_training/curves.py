"""The measurements along trainings, their figures, and the faults of checkpoints."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from statistics import fmean

import torch

from anchorlab.findings import LineFigure, Reference, Table
from anchorlab.language.checkpoints import Fault
from anchorlab.papers.language.along_training.checkpoints import Checkpoint
from anchorlab.studies.kit import curves_against

_OBJECTS = {
    "object": "objects: right",
    "subject": "objects: subject",
    '"the"': "objects: the",
    "object, truncated": "objects, cut: right",
    '"the", truncated': "objects, cut: the",
}
_FACTS = {
    "right country": "facts: right",
    '"the"': "facts: the",
    "right country, truncated": "facts, cut: right",
    '"the", truncated': "facts, cut: the",
}
_RANKS = {"prepositions alone": "rank after prepositions", "sentences that end in one": "rank after sentences"}
_SCORES = {"shift by one": "largest score of shifting by one", "induction": "largest score of induction"}
_COUNTS = {
    "shift by one": "heads that shift by one",
    "induction": "heads that induce",
    "first token": "heads at the first token",
}


@dataclass(frozen=True)
class Curves:
    """The measurements of one training at the steps whose checkpoints are usable."""

    steps: tuple[int, ...]  # the training steps, in increasing order
    numbers: Mapping[str, tuple[float, ...]]  # by name, the value at each step

    @staticmethod
    def of(checkpoints: Sequence[Checkpoint]) -> "Curves":
        """Collect the measurements of the usable checkpoints."""
        usable = [(one.step, one.numbers) for one in checkpoints if one.numbers is not None]
        names = usable[0][1] if usable else {}
        return Curves(
            tuple(step for step, _ in usable), {name: tuple(each[name] for _, each in usable) for name in names}
        )

    def untrained(self) -> "Curves | None":
        """Return step 0's values at every step, as if training changed nothing; None if step 0 was not measured."""
        if self.steps[:1] != (0,):
            return None
        return replace(self, numbers={name: (row[0],) * len(row) for name, row in self.numbers.items()})

    def first(self, holds: Callable[[Mapping[str, float]], bool]) -> int | None:
        """Return the first step at which a condition on the numbers holds; None if it never does."""
        return next((step for step, now in self._by_step() if holds(now)), None)

    def from_on(self, holds: Callable[[Mapping[str, float]], bool]) -> int | None:
        """Return the first step from which a condition holds until the end; None if it does not hold at the end."""
        kept = list(takewhile(lambda one: holds(one[1]), reversed(self._by_step())))
        return kept[-1][0] if kept else None

    def at(self, steps: Sequence[int]) -> "Curves":
        """Return the measurements at some of the steps."""
        places = [self.steps.index(step) for step in steps]
        return Curves(tuple(steps), {name: tuple(row[place] for place in places) for name, row in self.numbers.items()})

    def _by_step(self) -> list[tuple[int, dict[str, float]]]:
        return [
            (step, {name: row[place] for name, row in self.numbers.items()}) for place, step in enumerate(self.steps)
        ]

    def learned(self, name: str) -> int | None:
        """Return the first step at which a probability is at least half its maximum; None if that is step 0."""
        row = self.numbers.get(name, ())
        found = None if not row else self.first(lambda now: now[name] >= max(row) / 2)
        return found or None  # a model that has not been trained has learned nothing


def at_shared_steps(trainings: Sequence[Curves]) -> list[Curves]:
    """Return all trainings at the steps that are usable in every one of them."""
    shared = [step for step in trainings[0].steps if all(step in one.steps for one in trainings)]
    return [one.at(shared) for one in trainings]


def figures(trainings: Sequence[Curves], caption_end: str) -> list[LineFigure]:
    """Return the figures of trainings with the same steps; none if no step after 0 was measured."""
    steps = trainings[0].steps
    later = [place for place, step in enumerate(steps) if step > 0]
    if not later:
        return []
    at = [steps[place] for place in later]

    def along(title: str, caption: str, y_label: str, shown: Mapping[str, str]) -> LineFigure:
        curves = {
            label: torch.tensor([[one.numbers[name][place] for place in later] for one in trainings])
            for label, name in shown.items()
        }
        return curves_against(
            f"{title} along training", at, curves, x_label="training step", y_label=y_label,
            caption=f"{caption} The logarithmic axis leaves out step 0.{caption_end}", log_x=True,
        )  # fmt: skip

    truncated, repeated = "Mean probabilities, with and without the truncation", "random tokens that are repeated once."
    objects = along("Indirect objects", f"{truncated} of W_in of one layer.", "probability", _OBJECTS)
    facts = along("Facts", f"{truncated} of W_in of the last layer.", "probability", _FACTS)
    ranks = along(
        'Rank of "the" after prepositions', "Mean over prompts; 1 is the likeliest token.", "mean rank", _RANKS
    )
    scores = along("Strongest heads", f"Largest score of a head on {repeated}", "score", _SCORES)
    paper = (Reference("paper's step 14 000", 14_000, "x"),) if at[-1] >= 14_000 else ()
    return [
        replace(objects, references=paper),
        replace(facts, references=paper),
        replace(ranks, log_y=True),
        replace(scores, y_range=(0, 1)),
        along("Number of heads", f"Heads for which a detector fires, on {repeated}", "heads", _COUNTS),
    ]


def tables(found: Sequence[tuple[int, Sequence[Fault]]], trainings: Sequence[Curves]) -> list[Table]:
    """Return the faults of checkpoints, and the means of all numbers over trainings with the same steps."""
    rows = [(step, fault.text, "no" if fault.unusable else "yes") for step, wrong in found for fault in wrong]
    faulty = sum(bool(wrong) for _, wrong in found)
    first = trainings[0]
    return [
        Table(
            "Faults of the checkpoints",
            f"{faulty} of {len(found)} checkpoints have one; each was compared with those of all earlier steps.",
            ("step", "fault", "measured"),
            tuple(rows),
        ),
        Table(
            "All numbers",
            "Mean probabilities and ranks, and the heads on repeated random tokens.",
            ("step", *first.numbers),
            tuple(
                (step, *(fmean(one.numbers[name][place] for one in trainings) for name in first.numbers))
                for place, step in enumerate(first.steps)
            ),
        ),
    ]
