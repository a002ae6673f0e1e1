"""Draw bars in groups, such as the accuracy of models on several tasks compared with guessing."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing

from anchorlab.findings import BarFigure
from anchorlab.report.style import INK, LINES, MUTED

_HEIGHT, _WIDTH = 3.5, 0.32  # inches: height of the figure, width of a bar
_FILLED = 0.8  # the share of a group's width that its bars take


def draw_bars(drawing: Drawing, figure: BarFigure) -> None:
    """Draw a group of bars for each name, intervals as thin lines, and a dashed line across each group."""
    count = len(figure.bars)
    drawing.set_size_inches(max(5.0, len(figure.groups) * (count + 0.8) * _WIDTH + 1.2), _HEIGHT)
    axes: Any = drawing.subplots()
    axes.grid(axis="y")
    places, width = np.arange(len(figure.groups)), _FILLED / count
    for index, bar in enumerate(figure.bars):
        across = places + (index - (count - 1) / 2) * width
        axes.bar(across, bar.values, 0.92 * width, color=LINES[index % len(LINES)], label=bar.label)
        if bar.low:
            axes.vlines(across, bar.low, bar.high, color=INK, linewidth=1.0)
    for place, height in enumerate(figure.dashed):
        label = figure.dashed_label if place == 0 else None
        axes.hlines(height, place - 0.45, place + 0.45, color=MUTED, linewidth=1.2, linestyle=(0, (3, 2)), label=label)
    axes.set_xticks(places, figure.groups)
    axes.set_ylabel(figure.y_label)
    axes.set_ylim(*figure.y_range)
    if count > 1 or figure.dashed:
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
