"""Drawings that show themselves in a notebook."""

import io

import matplotlib
from matplotlib.figure import Figure

from anchorlab.report.style import DRAWING


class ShownFigure(Figure):
    """A matplotlib figure that a notebook shows as the value of a cell, also where pyplot was never imported.

    matplotlib registers its figures with IPython when pyplot makes one; ours are made without pyplot's global state.
    """

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """Return the image, and the size at which it is shown: smaller than its pixels, for dense screens."""
        out = io.BytesIO()
        with matplotlib.rc_context(dict(DRAWING)):
            self.savefig(out, format="png")
        width, height = self.get_size_inches() * self.dpi
        return out.getvalue(), {"width": round(width), "height": round(height)}
