"""The symbols of a chain: partial losses, when each is retrieved in training, and whether in the chain's order."""

from collections.abc import Mapping, Sequence
from math import inf, nan

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import LineFigure, Reference
from anchorlab.lens import first_crossing
from anchorlab.papers.retrieval.settings import GUESSING, RETRIEVED, retrieval_of
from anchorlab.studies.kit import along, at_end, curves_against
from anchorlab.training import TrainedRun

RETRIEVED_LINE = Reference("retrieved", RETRIEVED)
GUESSING_LINE = Reference("guessing among the chains", GUESSING)


def partial_losses(run: TrainedRun) -> Float[Tensor, "member symbol"]:
    """Return the final partial loss of each queried symbol, in the chain's order."""
    return torch.stack([at_end(run, "test", f"partial_{symbol}") for symbol in retrieval_of(run).asked], dim=1)


def partials_along(run: TrainedRun) -> tuple[list[int], dict[str, Float[Tensor, "member step"]]]:
    """Return the steps of evaluation, and the partial losses by queried symbol: `x_1` and so on."""
    found = {symbol: along(run, "test", f"partial_{symbol}") for symbol in retrieval_of(run).asked}
    steps, _ = next(iter(found.values()))
    return steps, {f"x_{symbol}": values for symbol, (_, values) in found.items()}


def loss_curves(
    title: str,
    x: Sequence[int | float],
    curves: Mapping[str, Float[Tensor, "member x"]],
    caption: str,
    reference: Reference = RETRIEVED_LINE,
    x_label: str = "step",
) -> LineFigure:
    """Return a figure of mean squared errors along training, or against another quantity, with a reference line."""
    return curves_against(
        title,
        x,
        curves,
        x_label=x_label,
        y_label="mean squared error",
        caption=caption,
        y_range=(0.0, 1.05),
        references=[reference],
    )


def retrieved_at(run: TrainedRun) -> Float[Tensor, "member symbol"]:
    """Return the step, interpolated, at which each queried symbol's partial loss falls to 0.5; infinite if never."""
    steps, partials = partials_along(run)
    times = [first_crossing(steps, values, RETRIEVED, falling=True) for values in partials.values()]
    return torch.stack(times, dim=1).nan_to_num(nan=inf)


def in_order(times: Float[Tensor, "member symbol"], apart: float = 0.0) -> Float[Tensor, "member"]:
    """Return 1 for members whose times rise along the chain, with infinite (never) last, and 0 for the others.

    Two times less than `apart` from each other are a tie, which counts as in order. NaN times are left out; the result
    is NaN if all remaining times are tied.
    """
    order = []
    for row in times:
        known = row[~row.isnan()]
        later = known.unsqueeze(0) - known.unsqueeze(1)  # [earlier symbol, later symbol]; NaN where both are infinite
        first, second = torch.triu_indices(len(known), len(known), offset=1)
        judged = later[first, second]
        judged = judged[judged.abs() >= apart]
        some = len(judged) > 0 or known.isinf().any()
        order.append(float((judged >= 0).all() and known[0].isfinite()) if len(known) > 1 and some else nan)
    return torch.tensor(order)
