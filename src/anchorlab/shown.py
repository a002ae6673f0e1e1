"""How values show themselves. Their methods are theirs; the drawing is in `anchorlab.report`, found when it is used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plotted(value: Any, **choices: Any) -> "Figure":
    """Return the drawing of a value, as `anchorlab.report.plots` makes it for values of its class."""
    drawing: Figure = import_module("anchorlab.report.plots").plot(value, **choices)
    return drawing


class Shown:
    """A value that a notebook shows as a card."""

    def _repr_html_(self) -> str:
        """Return the card, as `anchorlab.report.cards` makes it for values of this class."""
        return str(import_module("anchorlab.report.cards").html(self))
