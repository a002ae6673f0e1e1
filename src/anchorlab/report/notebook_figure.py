"""Drawings that a notebook can display without pyplot."""

import io

import matplotlib
from matplotlib.figure import Figure

from anchorlab.report.style import DRAWING


class ShownFigure(Figure):
    """A matplotlib figure that a notebook displays as the value of a cell, even if pyplot was never imported.

    matplotlib registers figures with IPython only when pyplot makes one; ours are made without pyplot's global state.
    """

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """Return the image, and its display size, which is smaller than its number of pixels for dense screens."""
        out = io.BytesIO()
        with matplotlib.rc_context(dict(DRAWING)):
            self.savefig(out, format="png")
        width, height = self.get_size_inches() * self.dpi
        return out.getvalue(), {"width": round(width), "height": round(height)}
