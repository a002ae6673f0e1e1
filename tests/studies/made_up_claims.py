"""Claims made up for studies of the tests."""

import torch

from anchorlab.studies import claim


def decided(value):
    """A value of 14 equal units, the least number that decides a claim."""
    return torch.full((14,), value, dtype=torch.float64)


def made_up(name, band, measure, *, at="", paper="a number", says="It holds", kind=claim, **fields):
    """A claim on what `measure` gives, in words on which only tests that give their own depend."""

    def function(seen):
        return measure(seen)

    function.__name__, function.__doc__ = name, f"{says}.\n\nIts value.\n"
    return kind(at, paper, band, **fields)(function)
