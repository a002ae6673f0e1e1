"""Landscapes: the loss of a model with every subset of its units, and all circuits that follow from it."""

from anchorlab.lens.landscape.landscape import SHARE, Landscape
from anchorlab.lens.landscape.measure import landscape
from anchorlab.lens.landscape.sequences import landscape_on
