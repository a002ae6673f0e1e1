"""The curves of a language model over its training steps, and the faults of its checkpoints."""

from collections.abc import Mapping, Sequence

from anchorlab.findings import Line, LineFigure, Reference, Table
from anchorlab.language.checkpoints import Fault

_AXIS = "training step"
_LEFT_OUT = "The logarithmic axis leaves out step 0."
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


def figures(steps: Sequence[int], numbers: Mapping[str, Sequence[float]]) -> list[LineFigure]:
    """Return the curves; none if no checkpoint was measured."""
    if not steps:
        return []

    def curves(shown: Mapping[str, str]) -> tuple[Line, ...]:
        later = [place for place, step in enumerate(steps) if step > 0]
        return tuple(
            Line(label, tuple(float(steps[place]) for place in later), tuple(numbers[name][place] for place in later))
            for label, name in shown.items()
        )

    paper = Reference("paper's step 14 000", 14_000, "x")
    return [
        LineFigure(
            "Indirect objects along training",
            f"Mean probabilities, with and without the truncation of W_in of one layer. {_LEFT_OUT}",
            _AXIS,
            "probability",
            curves(_OBJECTS),
            log_x=True,
            references=(paper,),
        ),
        LineFigure(
            "Facts along training",
            f"Mean probabilities, with and without the truncation of W_in of the last layer. {_LEFT_OUT}",
            _AXIS,
            "probability",
            curves(_FACTS),
            log_x=True,
            references=(paper,),
        ),
        LineFigure(
            'Rank of "the" after prepositions along training',
            f"Mean over prompts; 1 is the likeliest token. {_LEFT_OUT}",
            _AXIS,
            "mean rank",
            curves(_RANKS),
            log_x=True,
            log_y=True,
        ),
        LineFigure(
            "Strongest heads along training",
            f"Largest score of a head on random tokens that are repeated once. {_LEFT_OUT}",
            _AXIS,
            "score",
            curves(_SCORES),
            log_x=True,
            y_range=(0, 1),
        ),
        LineFigure(
            "Number of heads along training",
            f"Heads for which a detector fires, on random tokens that are repeated once. {_LEFT_OUT}",
            _AXIS,
            "heads",
            curves(_COUNTS),
            log_x=True,
        ),
    ]


def tables(
    found: Sequence[tuple[int, Sequence[Fault]]], steps: Sequence[int], numbers: Mapping[str, Sequence[float]]
) -> list[Table]:
    """Return the faults of checkpoints, and all numbers."""
    rows = [(step, fault.text, "no" if fault.unusable else "yes") for step, wrong in found for fault in wrong]
    faulty = sum(bool(wrong) for _, wrong in found)
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
            ("step", *numbers),
            tuple((step, *(row[place] for row in numbers.values())) for place, step in enumerate(steps)),
        ),
    ]
