"""Let values draw themselves. The drawing code is imported only when it is used."""

from typing import TYPE_CHECKING, Any

from anchorlab.handed_down import handed_down

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plotted(value: Any, **choices: Any) -> "Figure":
    """Return a value drawn as a figure."""
    drawing: Figure = handed_down().plot(value, **choices)
    return drawing


class Drawable:
    """A value that a notebook shows as a card."""

    def _repr_html_(self) -> str:
        """Return the value's card as HTML."""
        return handed_down().card(self)
