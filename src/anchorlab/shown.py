"""Let values draw themselves. The drawing code is in `anchorlab.report`, which is imported only when it is used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plotted(value: Any, **choices: Any) -> "Figure":
    """Return the figure that `anchorlab.report.plots` draws for a value of this class."""
    drawing: Figure = import_module("anchorlab.report.plots").plot(value, **choices)
    return drawing


class Shown:
    """A value that a notebook shows as a card."""

    def _repr_html_(self) -> str:
        """Return the card, as HTML, that `anchorlab.report.cards` makes for a value of this class."""
        return str(import_module("anchorlab.report.cards").html(self))
