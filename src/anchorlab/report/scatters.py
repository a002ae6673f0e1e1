"""Draw clouds of coloured points."""

from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure as Drawing

from anchorlab.findings import ScatterFigure
from anchorlab.report.style import LINES, MARKERS, POINTS


def draw_scatters(drawing: Drawing, figure: ScatterFigure, margin: float) -> None:
    """Draw clouds of points side by side on one colour scale.

    `margin` is the height in inches to keep for the figure's title and provenance.
    """
    drawing.set_size_inches(max(2.6 * len(figure.scatters) + 0.9, 3.6), 2.7 + margin)
    grid: Any = drawing.subplots(1, len(figure.scatters), squeeze=False)
    for axes, one in zip(grid[0], figure.scatters, strict=True):
        axes.set_title(fill(one.title, 30), pad=4)
        axes.set_xlabel(figure.x_label)
        axes.margins(0.06)
    grid[0, 0].set_ylabel(figure.y_label)
    (_kinds if figure.value_names else _numbers)(drawing, figure, grid)


def _numbers(drawing: Drawing, figure: ScatterFigure, grid: Any) -> None:
    """Colour each point by its number, on one scale."""
    values = np.concatenate([one.values for one in figure.scatters])
    scale = Normalize(float(values.min()), float(values.max())) if values.size else Normalize(0, 1)
    colours = LinearSegmentedColormap.from_list("points", POINTS)
    for axes, one in zip(grid[0], figure.scatters, strict=True):
        points = axes.scatter(one.x, one.y, c=one.values, norm=scale, cmap=colours, s=16, linewidths=0)
    bar = drawing.colorbar(points, ax=grid, label=figure.value_label, aspect=22, pad=0.02, fraction=0.05)
    bar.outline.set_visible(False)
    bar.solids.set_rasterized(True)  # type: ignore[union-attr]


def _kinds(drawing: Drawing, figure: ScatterFigure, grid: Any) -> None:
    """Draw each kind of point with its own colour and marker, and a legend to the right."""
    for axes, one in zip(grid[0], figure.scatters, strict=True):
        kinds = np.array(one.values)
        for kind, name in enumerate(figure.value_names):
            x, y = np.array(one.x)[kinds == kind], np.array(one.y)[kinds == kind]
            look = {"color": LINES[kind % len(LINES)], "marker": MARKERS[kind % len(MARKERS)]}
            axes.scatter(x, y, s=16, linewidths=0, alpha=0.75, label=name, **look)
    names = grid[0, 0].get_legend_handles_labels()
    drawing.legend(*names, title=figure.value_label, loc="outside right upper", frameon=False, fontsize=8)
