"""What composite models of one depth do, and the figure and tables over depths.

Source: anchor functions, section 4.4, Figure 7.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import LineFigure, Reference, Table
from anchorlab.papers.anchor.composite.outputs import COMMON, UNSEEN, Outputs, see_outputs
from anchorlab.studies.kit import MEAN_AND_RANGE, along, at_end, column_table, curves_against
from anchorlab.training import TrainedRun

TRAIN, DATA, TASK = "train", "test on data", UNSEEN
SPLITS = {TRAIN: "training", DATA: DATA, TASK: TASK}  # with their names in figures
WHOLE = 0.995  # the accuracy that counts as 100 %
PAIRS = {"trained pairs": False, "the unseen pair": True}  # whether it is the pair that is never trained


@dataclass(frozen=True)
class Depth:
    """Results of the models of one depth, by split; `steps` is how long they trained."""

    layers: int
    steps: int
    accuracy: Mapping[str, Float[Tensor, "member"]]  # at the end
    reached: Mapping[str, Float[Tensor, "member"]]  # the first step measured at `WHOLE`, infinite for never
    outputs: Outputs


def see(run: TrainedRun, layers: int) -> Depth:
    """Read accuracies and outputs from the run of one depth."""
    return Depth(
        layers,
        run.experiment.steps,
        {split: at_end(run, split, "accuracy") for split in SPLITS},
        {split: first_reached(*along(run, split, "accuracy")) for split in SPLITS},
        see_outputs(run),
    )


def first_reached(
    steps: Sequence[int], values: Float[Tensor, "member step"], level: float = WHOLE
) -> Float[Tensor, "member"]:
    """Return the first step at which the values reach a level; infinite if they never do."""
    whole = values >= level
    first = torch.tensor(steps, dtype=torch.float32)[whole.int().argmax(dim=1)]
    return first.where(whole.any(dim=1), torch.tensor(torch.inf))


def sequence_figure(depths: Sequence[Depth]) -> LineFigure:
    """Return the figure of mapping sequences against depth, of the trained pairs and of the unseen one."""
    return curves_against(
        "Mapping sequences per pair against depth (Fig 7a, bars)",
        [depth.layers for depth in depths],
        {
            name: torch.stack(
                [depth.outputs.over_pairs(depth.outputs.counts, unseen).nan_to_num() for depth in depths], dim=1
            )
            for name, unseen in PAIRS.items()
        },
        x_label="layers",
        y_label="mapping sequences per pair",
        caption="Distinct mapping sequences (Definition 1) over about 107 test inputs of each pair, those answered "
        f"wrongly left out; mean over the 15 trained pairs, and for (3, 4). 0 where most are wrong. {MEAN_AND_RANGE}",
        y_range=(0.0, None),
        references=[Reference("the paper, 10 layers: 1", 1.0)],
    )


def sequence_table(depths: Sequence[Depth]) -> Table:
    """Return the number of mapping sequences of every pair at every depth."""
    first = depths[0].outputs
    return column_table(
        "Mapping sequences of each pair by depth (Fig 7a, bars)",
        "Means over seeds, of the inputs answered rightly; none where most are wrong. The figure has the mean over the "
        "trained pairs.",
        {
            "pair": first.pairs,
            "trained": ["no" if unseen else "yes" for unseen in first.unseen],
            **{f"{depth.layers} layers": depth.outputs.counts.nanmean(dim=0) for depth in depths},
        },
    )


def depth_table(title: str, rows: Mapping[str, Sequence[int]], depths: Sequence[Depth]) -> Table:
    """Return accuracies, steps and mapping sequences, of the trained pairs and of the unseen one.

    `rows` holds the first column: what the rows differ in, a value for each.
    """
    sequences = {
        f"{label}, {name}": [
            float(depth.outputs.over_pairs(getattr(depth.outputs, field), unseen).nanmean()) for depth in depths
        ]
        for field, label in (
            ("counts", "mapping sequences"),
            ("common", "common ones"),
            ("most_common", "share of the most common"),
        )
        for name, unseen in PAIRS.items()
    }
    return column_table(
        title,
        f"Means over seeds. Steps are those at which the accuracy is first measured at 100 % ({WHOLE:g}), median over "
        f"seeds; none where it never is. Common mapping sequences are those of at least {COMMON:.0%} of a pair's "
        "inputs.",
        {
            **rows,
            **{
                f"{label}, accuracy": [float(depth.accuracy[split].mean()) for depth in depths]
                for split, label in SPLITS.items()
            },
            **{
                f"{label}, step of 100 %": [float(depth.reached[split].median()) for depth in depths]
                for split, label in SPLITS.items()
            },
            **sequences,
            "answer kept from the second anchor on": [float(depth.outputs.answer_kept.nanmean()) for depth in depths],
        },
    )
