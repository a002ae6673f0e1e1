"""The forward-backward recitation task: what follows is learned with less data than what comes before.

Source: anchor functions, sections 3.1.3 and 4.7, Figure 10; settings in its appendix A.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anchorlab.findings import Claim, ClaimResult, Findings, LineFigure, Provenance, Table, line
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.settings import paper_recipe, quick_model, quick_recipe
from anchorlab.studies.kit import along, judge_means, at_end
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import task
from anchorlab.training import Experiment, Members, TrainedRun

DIRECTIONS = ("forward", "backward")
CAN_TELL = (0.1, 0.98)
"""Sizes are compared where the mean accuracy of both directions lies between: neither unlearned nor both solved."""

_EARLY = {"epochs": 0.1, "steps": 0.25}
"""The earlier training length as a share of the whole: 400 of 4000 epochs as the paper's, or a quarter of the steps."""

CLAIMS = (
    Claim(
        "anchor/recitation/every-size-early",
        "Forward beats backward at every train size, early in training",
        "anchor functions, section 4.7 and Fig 10 (400 epochs)",
        "at every size",
        "share of train sizes with more forward than backward test accuracy, means over seeds, at the earlier length; "
        f"judged over sizes where the mean of both lies in {CAN_TELL[0]:g} to {CAN_TELL[1]:g}",
        (1.0, 1.0),
    ),
    Claim(
        "anchor/recitation/every-size-late",
        "Forward beats backward at every train size, at the end of training",
        "anchor functions, section 4.7 and Fig 10 (4000 epochs)",
        "at every size",
        "as before, at the end of the same runs",
        (1.0, 1.0),
    ),
    Claim(
        "anchor/recitation/difference-early",
        "Forward is the easier direction, early in training",
        "anchor functions, Fig 10 (400 epochs)",
        "no value in the text; above 0",
        "forward minus backward test accuracy, mean over those sizes and over seeds",
        (0.02, None),
    ),
    Claim(
        "anchor/recitation/difference-late",
        "Forward is the easier direction, at the end of training",
        "anchor functions, Fig 10 (4000 epochs)",
        "no value in the text; above 0",
        "as before, at the end of the same runs",
        (0.02, None),
    ),
    Claim(
        "anchor/recitation/learns",
        "With enough data both directions are answered",
        "anchor functions, Fig 3 and 10",
        "about 1",
        "test accuracy over both directions at the largest train size, mean over seeds, at the end",
        (0.95, None),
    ),
)


def quick_experiments(
    sizes: Sequence[int] = (500, 1000, 2000, 3000, 7000), steps: int = 800, seeds: int = 4
) -> list[Experiment]:
    """Four layers of one head, width 64, a number of steps that is the same at every size; the largest size is last."""
    recitation = task("anchor/recitation")
    return [
        Experiment(
            recitation,
            quick_model(layers=4),
            quick_recipe(size, steps, batch=100, learning_rate=2e-3),
            Members(seeds=tuple(range(seeds))),
            f"recitation, {size} sequences",
        )
        for size in sizes
    ]


def _quick() -> Profile:
    return Profile(
        quick_experiments,
        "Quick profile: four layers of one head, width 64 (0.2 M parameters), 800 steps of batch 100 at every size "
        "with learning rate 2e-3 and weight decay 0.3, four seeds; measured at 200 steps and at the end of the same "
        "runs. The paper trains four layers of four heads, width 400 (5.65 M parameters), and measures at 400 and 4000 "
        "epochs, so that its larger samples are also trained for more steps.",
    )


def _paper() -> Profile:
    def experiments() -> list[Experiment]:
        recitation = task("anchor/recitation")
        return [
            Experiment(
                recitation,
                DecoderSpec(),
                paper_recipe(size, batch=100),
                Members(seeds=tuple(range(5))),
                f"recitation, {size} sequences",
            )
            for size in range(500, 7001, 500)
        ]

    return Profile(
        experiments,
        "Paper profile: the setting of appendix A and the reference code, measured at 400 and 4000 epochs of the same "
        "runs. The paper lists neither its train sizes nor its seeds: 500 to 7000 by 500 and five seeds. Nor does it "
        "give AdamW's weight decay; PyTorch's 0.01 is used.",
    )


@dataclass(frozen=True)
class Length:
    """Test accuracies at one training length: its name, and `forward` and `backward`, each `[size member]`."""

    name: str
    forward: Tensor
    backward: Tensor


@dataclass(frozen=True)
class Comparison:
    """Forward against backward over the sizes at which they can be told apart.

    Shapes
        judged: whether a size can be judged, `[size]`
        wins: 1 where the mean over seeds is higher forward than backward, else 0, `[judged size]`
        difference: forward minus backward, mean over the judged sizes, `[member]`
    """

    judged: Tensor
    wins: Tensor
    difference: Tensor


def compare(forward: Tensor, backward: Tensor) -> Comparison:
    """Which sizes can be judged and what they say, from accuracies `[size member]`."""
    low, high = CAN_TELL
    both = (forward.mean(dim=1) + backward.mean(dim=1)) / 2
    judged = (both >= low) & (both <= high)
    difference = (forward - backward)[judged]
    return Comparison(judged, (difference.mean(dim=1) > 0).to(forward.dtype), difference.mean(dim=0))


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """The two panels of Figure 10, and who wins at which size."""
    sizes = [run.experiment.recipe.data.size for run in runs]  # type: ignore[union-attr]
    lengths = [_length(runs, early=True), _length(runs, early=False)]
    measured: dict[str, Tensor | None] = {"learns": at_end(runs[-1], "test", "accuracy")}
    for name, length in zip(("early", "late"), lengths, strict=True):
        found = compare(length.forward, length.backward)
        any_judged = bool(found.judged.any())
        measured[f"every-size-{name}"] = found.wins if any_judged else None
        measured[f"difference-{name}"] = found.difference if any_judged else None
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="Sequences of nine tokens hold m, 3, n somewhere. Where the last token is m the answer is n (forward), "
        f"where it is n the answer is m (backward); half of the sequences are of each kind. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=_judged(measured, lengths, provenance.profile),
        figures=tuple(_figure(sizes, length) for length in lengths),
        tables=(_size_table(sizes, lengths), _answer_table(sizes, runs)),
    )


def _judged(measured: dict[str, Tensor | None], lengths: Sequence[Length], profile: str) -> tuple[ClaimResult, ...]:
    """The claims judged; the spread of a share is over sizes, not over seeds."""
    results = judge_means(CLAIMS, measured, profile)
    sizes = {
        f"every-size-{name}": compare(length.forward, length.backward)
        for name, length in zip(("early", "late"), lengths, strict=True)
    }
    return tuple(
        replace(result, spread=f"{int(found.wins.sum())} of {len(found.wins)} sizes that can be judged")
        if (found := sizes.get(result.claim.id.rpartition("/")[2])) is not None and len(found.wins)
        else result
        for result in results
    )


def _length(runs: Sequence[TrainedRun], early: bool) -> Length:
    """The accuracies at the evaluation next to the earlier training length, or at the end."""
    name, found = "", {}
    for direction in DIRECTIONS:
        values = []
        for run in runs:
            steps, accuracy = along(run, "test", "accuracy", group=direction)
            unit = run.experiment.recipe.unit
            wanted = (_EARLY[unit] if early else 1.0) * run.experiment.steps
            at = min(range(len(steps)), key=lambda index: abs(steps[index] - wanted))
            values.append(accuracy[:, at])
            name = f"{steps[at] // run.experiment.steps_per_unit} {unit}"
        found[direction] = torch.stack(values)
    return Length(name, **found)


def _figure(sizes: Sequence[int], length: Length) -> LineFigure:
    return LineFigure(
        title=f"Test accuracy in both directions after {length.name} (Fig 10)",
        caption="Mean over seeds; the band reaches from the lowest to the highest. In test both m and n stand at "
        "positions where training never shows them (modular residue).",
        x_label="training sequences",
        y_label="test accuracy",
        lines=(
            line("forward", sizes, length.forward.T),
            line("backward", sizes, length.backward.T),
        ),
        y_range=(0.0, 1.02),
    )


def _size_table(sizes: Sequence[int], lengths: Sequence[Length]) -> Table:
    rows = []
    for length in lengths:
        judged = compare(length.forward, length.backward).judged.tolist()
        for index, size in enumerate(sizes):
            forward, backward = length.forward[index], length.backward[index]
            rows.append(
                (
                    length.name,
                    size,
                    float(forward.mean()),
                    float(backward.mean()),
                    float((forward - backward).mean()),
                    int((forward > backward).sum()),
                    len(forward),
                    "yes" if judged[index] else "no",
                )
            )
    return Table(
        title="Forward against backward by train size",
        caption=f"Means over seeds. A size is judged where the mean accuracy of both directions lies in "
        f"{CAN_TELL[0]:g} to {CAN_TELL[1]:g}.",
        columns=(
            "training length",
            "training sequences",
            "forward",
            "backward",
            "difference",
            "seeds with forward ahead",
            "seeds",
            "judged",
        ),
        rows=tuple(rows),
    )


def _answer_table(sizes: Sequence[int], runs: Sequence[TrainedRun]) -> Table:
    """What is answered instead: the other neighbour of the anchor is the token that stands last."""
    rows = []
    for size, run in zip(sizes, runs, strict=True):
        shares = [
            float(at_end(run, "test", f"agrees: always {rule}", group=direction).mean())
            for direction in DIRECTIONS
            for rule in DIRECTIONS
        ]
        rows.append((size, *shares))
    return Table(
        title="What is answered at the end, by direction",
        caption="Mean over seeds of the share of test sequences answered by n (always forward) or by m (always "
        "backward). Where the direction asks for the other of the two, this answer repeats the last token.",
        columns=(
            "training sequences",
            "forward asked, n answered",
            "forward asked, m answered",
            "backward asked, n answered",
            "backward asked, m answered",
        ),
        rows=tuple(rows),
    )


STUDY = Study(
    name="anchor/recitation",
    title="Forward-backward recitation: the forward direction is learned with less data",
    claims=CLAIMS,
    profiles={
        "quick": _quick(),
        "paper": _paper(),
        "smoke": Profile(
            lambda: quick_experiments(sizes=(200, 500), steps=4, seeds=2), "Smoke profile: four steps, for tests."
        ),
    },
    analyse=analyse,
)
