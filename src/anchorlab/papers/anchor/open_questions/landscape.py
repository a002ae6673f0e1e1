"""How steep the loss is around trained models with different numbers of heads or layers."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import LineFigure
from anchorlab.papers.anchor.open_questions.choices import Value
from anchorlab.papers.anchor.perturbed import on_own_sequences, rise_in_loss
from anchorlab.studies.kit import MEAN_AND_RANGE, curves_against
from anchorlab.training import TrainedRun

MOVES = (0.05, 0.1, 0.2, 0.4)
"""How far all weights are moved, in units of the norm of each tensor."""

MOVE = 0.2
"""The move at which models are compared, as in `anchor/every-token`."""


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
    """Return the figure of the rise of the loss by the move, a curve for each model."""
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
