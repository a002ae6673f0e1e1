"""Draw the smaller kinds of figure: bars in groups, points in panels, clouds of points, and timelines.

`margin` is the height in inches to keep for a figure's title and provenance.
"""

from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, MaxNLocator

from anchorlab.findings import BarFigure, DotFigure, Dots, ScatterFigure, TimelineFigure
from anchorlab.report.style import INK, LINES, MUTED, POINTS, colour_and_marker

# Lengths are in inches.
_BARS_HEIGHT, _BAR_WIDTH = 3.5, 0.32
_FILLED = 0.8  # the share of a group's width that its bars take
_DOTS_COLUMNS, _DOTS_WIDTH, _DOTS_HEIGHT = 4, 1.75, 1.6  # panels in a row, and the size of one
_ROW, _AXIS, _LEGEND = 0.3, 0.75, 0.25  # heights in a timeline


def draw_bars(drawing: Drawing, figure: BarFigure) -> None:
    """Draw a group of bars for each name, intervals as thin lines, and a dashed line across each group."""
    count = len(figure.bars)
    drawing.set_size_inches(max(5.0, len(figure.groups) * (count + 0.8) * _BAR_WIDTH + 1.2), _BARS_HEIGHT)
    axes: Any = drawing.subplots()
    axes.grid(axis="y")
    places, width = np.arange(len(figure.groups)), _FILLED / count
    for index, bar in enumerate(figure.bars):
        across = places + (index - (count - 1) / 2) * width
        heights = np.where(np.isfinite(bar.values), bar.values, np.nan)
        axes.bar(across, heights, 0.92 * width, color=LINES[index % len(LINES)], label=bar.label)
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


def draw_dots(drawing: Drawing, figure: DotFigure, margin: float) -> None:
    """Draw up to four panels in a row: a point for each value, a line through the means, the marked tick in bold."""
    columns = min(len(figure.panels), _DOTS_COLUMNS)
    rows = -(-len(figure.panels) // columns)
    drawing.set_size_inches(max(columns * _DOTS_WIDTH + 0.6, 3.6), rows * (_DOTS_HEIGHT + 0.35) + margin)
    grid: Any = drawing.subplots(rows, columns, squeeze=False, sharey=True)
    for axes in grid.flat[len(figure.panels) :]:
        axes.axis("off")
    for axes, panel in zip(grid.flat, figure.panels, strict=False):
        _draw_dots_of(axes, panel)
    for axes in grid[:, 0]:
        axes.set_ylabel(figure.y_label)
    bottom, top = figure.y_range
    if bottom is not None and top is not None:
        room = 0.04 * (top - bottom)  # keeps points at the ends of the range from being clipped
        bottom, top = bottom - room, top + room
    grid[0, 0].set_ylim(bottom, top)


def _draw_dots_of(axes: Axes, panel: Dots) -> None:
    axes.grid(axis="y")
    points = [(x, y) for x, row in enumerate(panel.values) for y in row if np.isfinite(y)]
    across, up = zip(*points, strict=True) if points else ((), ())
    axes.plot(across, up, "o", color=LINES[0], alpha=0.4, markersize=3.6)
    finite = [[y for y in row if np.isfinite(y)] for row in panel.values]
    means = [float(np.mean(row)) if row else np.nan for row in finite]
    axes.plot(range(len(means)), means, color=LINES[1], linewidth=1.3)
    axes.set_title(panel.title, pad=4)
    axes.tick_params(axis="x", labelsize=7)
    ticks = axes.set_xticks(range(len(panel.ticks)), panel.ticks)
    if panel.marked is not None:
        ticks[panel.marked].label1.set_fontweight("bold")
        axes.axvline(panel.marked, color=MUTED, linewidth=0.7, dashes=(4, 3), zorder=0)
    axes.margins(x=0.12)


def draw_scatters(drawing: Drawing, figure: ScatterFigure, margin: float) -> None:
    """Draw clouds of points side by side on one colour scale."""
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
    values = values[np.isfinite(values)]
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
            colour, marker = colour_and_marker(kind)
            axes.scatter(x, y, s=16, linewidths=0, alpha=0.75, label=name, color=colour, marker=marker)
    names = grid[0, 0].get_legend_handles_labels()
    drawing.legend(*names, title=figure.value_label, loc="outside right center", frameon=False, fontsize=8)


def draw_timeline(drawing: Drawing, figure: TimelineFigure, margin: float) -> None:
    """Draw one row per event, the first at the top; groups differ in colour and marker.

    Each point is one member. A bar marks the median if more than half of the members have the event.
    """
    groups = list(dict.fromkeys(event.group for event in figure.events))
    above = _LEGEND if len(groups) > 1 else 0.0
    drawing.set_size_inches(6.4, _ROW * len(figure.events) + _AXIS + above + margin)
    axes = drawing.add_subplot()
    for row, event in enumerate(figure.events):
        colour, marker = colour_and_marker(groups.index(event.group))
        at = np.array(event.at, dtype=np.float64)
        happened = at[np.isfinite(at)]
        axes.axhline(row, color=colour, linewidth=0.6, alpha=0.3, zorder=0)
        label = event.group if event.group not in axes.get_legend_handles_labels()[1] else None
        axes.plot(happened, np.full(len(happened), row), marker, color=colour, alpha=0.55, markersize=5, label=label)
        if 2 * len(happened) > len(at):
            middle = float(np.median(np.where(np.isfinite(at), at, np.inf)))
            axes.plot([middle, middle], [row - 0.32, row + 0.32], color=colour, linewidth=2.2)
        if len(happened) < len(at):
            text = f"{len(at) - len(happened)} of {len(at)} never"
            beside: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "annotation_clip": False}
            axes.annotate(text, (figure.end, row), va="center", size=7.5, color=MUTED, **beside)
    axes.set_yticks(range(len(figure.events)), [event.label for event in figure.events])
    axes.set_ylim(len(figure.events) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    if figure.log_x:
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    low, _ = axes.get_xlim()
    axes.set_xlim(low if figure.log_x else 0, figure.end)
    axes.set_xlabel(figure.x_label)
    if len(groups) > 1:
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=4, borderaxespad=0)
