"""Drawings of coloured points."""

from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure as Drawing

from anchorlab.findings import ScatterFigure
from anchorlab.report.style import POINTS


def draw_scatters(drawing: Drawing, figure: ScatterFigure, margin: float) -> None:
    """Draw clouds of points side by side on one colour scale.

    `margin` is the height in inches to keep for the figure's title and provenance.
    """
    drawing.set_size_inches(max(2.6 * len(figure.scatters) + 0.9, 3.6), 2.7 + margin)
    grid: Any = drawing.subplots(1, len(figure.scatters), squeeze=False)
    values = np.concatenate([one.values for one in figure.scatters])
    scale = Normalize(float(values.min()), float(values.max())) if values.size else Normalize(0, 1)
    colours = LinearSegmentedColormap.from_list("points", POINTS)
    for axes, one in zip(grid[0], figure.scatters, strict=True):
        points = axes.scatter(one.x, one.y, c=one.values, norm=scale, cmap=colours, s=16, linewidths=0)
        axes.set_title(fill(one.title, 30), pad=4)
        axes.set_xlabel(figure.x_label)
        axes.margins(0.06)
    grid[0, 0].set_ylabel(figure.y_label)
    bar = drawing.colorbar(points, ax=grid, label=figure.value_label, aspect=22, pad=0.02, fraction=0.05)
    bar.outline.set_visible(False)
    bar.solids.set_rasterized(True)  # type: ignore[union-attr]
