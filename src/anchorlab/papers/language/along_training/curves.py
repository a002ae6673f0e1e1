"""The curves of a language model over its training steps, and the faults of its checkpoints."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from anchorlab.findings import Line, LineFigure, Reference, Table
from anchorlab.language.checkpoints import Fault

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
    later = [place for place, step in enumerate(steps) if step > 0]

    def along(title: str, caption: str, y_label: str, shown: Mapping[str, str]) -> LineFigure:
        lines = tuple(
            Line(label, tuple(float(steps[place]) for place in later), tuple(numbers[name][place] for place in later))
            for label, name in shown.items()
        )
        left_out = f"{caption} The logarithmic axis leaves out step 0."
        return LineFigure(f"{title} along training", left_out, "training step", y_label, lines, log_x=True)

    truncated, repeated = "Mean probabilities, with and without the truncation", "random tokens that are repeated once."
    objects = along("Indirect objects", f"{truncated} of W_in of one layer.", "probability", _OBJECTS)
    facts = along("Facts", f"{truncated} of W_in of the last layer.", "probability", _FACTS)
    ranks = along(
        'Rank of "the" after prepositions', "Mean over prompts; 1 is the likeliest token.", "mean rank", _RANKS
    )
    scores = along("Strongest heads", f"Largest score of a head on {repeated}", "score", _SCORES)
    paper = (Reference("paper's step 14 000", 14_000, "x"),)
    return [
        replace(objects, references=paper),
        replace(facts, references=paper),
        replace(ranks, log_y=True),
        replace(scores, y_range=(0, 1)),
        along("Number of heads", f"Heads for which a detector fires, on {repeated}", "heads", _COUNTS),
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
