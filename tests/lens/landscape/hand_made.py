"""Landscapes whose minimal sets are known, from games."""

import torch

from anchorlab.lens import Landscape

UNITS = ("0.0", "0.1", "1.0", "1.1", "1.2")


def made(*worths):
    """The landscape of members whose loss falls from 1 by the worth of the kept units, a set of names."""
    sets = [{name for place, name in enumerate(UNITS) if subset >> place & 1} for subset in range(2 ** len(UNITS))]
    loss = torch.tensor([[1 - float(worth(one)) for one in sets] for worth in worths], dtype=torch.float64)
    return Landscape(UNITS, loss, 1 - loss)


def two_of_three(kept):
    """Layer 0 needs its head 0.1; of layer 1 any two of three heads suffice."""
    return "0.1" in kept and len(kept & {"1.0", "1.1", "1.2"}) >= 2


def parallel(kept):
    """0.0 with 1.0, or 0.1 with 1.1, or 1.2 alone."""
    return {"0.0", "1.0"} <= kept or {"0.1", "1.1"} <= kept or "1.2" in kept
