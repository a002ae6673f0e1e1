"""The forward-backward recitation task: what follows is learned with less data than what comes before.

Source: anchor functions, sections 3.1.3 and 4.7, Figure 10; settings in its appendix A.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.settings import paper_recipe, quick_model, quick_recipe
from anchorlab.studies.findings import Claim
from anchorlab.studies.study import Profile
from anchorlab.tasks import task
from anchorlab.training import Experiment, Members

DIRECTIONS = ("forward", "backward")
CAN_TELL = (0.1, 0.98)
"""Sizes are compared where the mean accuracy of both directions lies between: neither unlearned nor both solved."""

_EARLY = 0.1  # the paper measures at 400 of 4000 epochs
_QUICK_EARLY = 0.25

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
    sizes: Sequence[int] = (500, 1000, 2000, 3000, 5000, 7000), steps: int = 800, seeds: int = 6
) -> list[Experiment]:
    """Two layers of one head, width 64, a number of steps that is the same at every size; the largest size is last."""
    return [
        Experiment(
            task("anchor/recitation"),
            quick_model(),
            quick_recipe(size, steps, batch=100),
            Members(seeds=tuple(range(seeds))),
            f"recitation, {size} sequences",
        )
        for size in sizes
    ]


def _quick(note: str = "") -> Profile:
    return Profile(
        quick_experiments,
        "Quick profile: two layers of one head, width 64 (0.1 M parameters), 800 steps of batch 100 at every size with "
        "learning rate 6e-3 and weight decay 0.3, six seeds; measured at 200 steps and at the end of the same runs. "
        "The paper trains four layers of four heads, width 400 (5.65 M parameters), and measures at 400 and 4000 "
        "epochs, so that its larger samples are also trained for more steps.",
    )


def _paper() -> Profile:
    def experiments() -> list[Experiment]:
        return [
            Experiment(
                task("anchor/recitation"),
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
    """Test accuracy at one training length, each `[size member]`."""

    name: str
    forward: Tensor
    backward: Tensor


@dataclass(frozen=True)
class Comparison:
    """Forward against backward over the sizes at which they can be told apart.

    Shapes
        judged: whether a size can be judged, `[size]`
        wins: whether the mean over seeds is higher forward than backward, `[judged size]`
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
