"""When the symbols of a chain are retrieved in training, and whether they come in the chain's order."""

from math import inf, nan

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.lens import first_crossing
from anchorlab.studies.kit import along
from anchorlab.studies.retrieval.settings import RETRIEVED, retrieval_of
from anchorlab.training import TrainedRun


def retrieved_at(run: TrainedRun) -> Float[Tensor, "member symbol"]:
    """The step at which each symbol's partial loss falls to 0.5, for every symbol asked for; infinite where never.

    By linear interpolation between evaluations.
    """
    asked = retrieval_of(run).asked
    times = [first_crossing(*along(run, "test", f"partial_{symbol}"), RETRIEVED, falling=True) for symbol in asked]
    return torch.stack(times, dim=1).nan_to_num(nan=inf)


def in_order(times: Float[Tensor, "member symbol"]) -> Float[Tensor, "member"]:
    """1 where a member's times rise along the chain and what never came (infinite) stands last, else 0.

    Times that are NaN are left out; NaN where fewer than two are left.
    """
    order = []
    for row in times:
        known = row[~row.isnan()]
        rising = (known.diff() > 0) | known[1:].isinf()
        order.append(float(rising.all() and known[0].isfinite()) if len(known) > 1 else nan)
    return torch.tensor(order)


def retrieving_two(times: Float[Tensor, "member symbol"]) -> Float[Tensor, "retrieving symbol"]:
    """The times of the members that retrieve two symbols or more; of the others no order can be told."""
    return times[times.isfinite().sum(dim=1) > 1]
