"""How values show themselves. Their methods are theirs; the drawing is in `anchorlab.report`, found when it is used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plotted(value: Any, **choices: Any) -> "Figure":
    """Return the drawing of a value, as `anchorlab.report.plots` makes it for values of its class."""
    drawing: Figure = import_module("anchorlab.report.plots").plot(value, **choices)
    return drawing
