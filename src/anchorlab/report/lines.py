"""Draw curves with bands, each labelled at its right end."""

from collections.abc import Sequence
from math import log10
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from anchorlab.findings import Line, LineFigure
from anchorlab.report.style import LINES, MARKERS, MUTED

_LABEL: dict[str, Any] = {"textcoords": "offset points", "size": 8, "linespacing": 1.05, "annotation_clip": False}
_MOST_MARKERS = 30  # a curve with more points has no markers
_MOST_TICKS = 12  # a logarithmic axis of up to this number of values has a tick at each, unless they are too near


def draw_lines(drawing: Drawing, figure: LineFigure) -> None:
    """Draw the curves of a figure with their bands, reference lines and names."""
    axes = drawing.add_subplot()
    axes.grid(axis="y")
    for index, line, names in _distinct(figure.lines):
        colour = LINES[index % len(LINES)]
        # Line style and marker differ as well, so that curves can be told apart without colour.
        style = ("-", "--", ":")[index // len(LINES) % 3]
        marker = MARKERS[index % len(MARKERS)] if len(line.x) <= _MOST_MARKERS else None
        if line.low:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.16, linewidth=0)
        axes.plot(line.x, line.mean, style, color=colour, marker=marker, label=" = ".join(names))
    for reference in figure.references:
        across = axes.axhline if reference.axis == "y" else axes.axvline
        across(reference.value, color=MUTED, linewidth=0.9, dashes=(4, 3), zorder=1)
    _scale(axes, figure)
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    _label_directly(drawing, axes, figure)


def _distinct(lines: Sequence[Line]) -> list[tuple[int, Line, list[str]]]:
    """Return the distinct curves, each with its index and names; equal curves are merged under all their names."""
    found: dict[str, tuple[int, Line, list[str]]] = {}
    for index, line in enumerate(lines):
        same = repr((line.x, line.mean, line.low, line.high))  # as text, since NaN does not equal NaN
        found.setdefault(same, (index, line, []))[2].append(line.label)
    return list(found.values())


def _scale(axes: Axes, figure: LineFigure) -> None:
    x = np.array([value for line in figure.lines for value in line.x if value > 0 or not figure.log_x])
    if figure.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(_powers(*axes.get_ylim()))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    if figure.log_x and x.size:
        axes.set_xscale("log")
        values = sorted(set(x.tolist()))
        few = len(values) <= _MOST_TICKS
        axes.xaxis.set_major_locator(FixedLocator(_spread(values)) if few else _powers(values[0], values[-1]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif x.size and (x == x.round()).all():
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.margins(x=0.02)
    bottom, top = figure.y_range
    if bottom is not None and top is not None and not figure.log_y:
        margin = 0.025 * (top - bottom)  # keeps curves along an end of the range from being clipped
        bottom, top = bottom - margin, top + margin
    axes.set_ylim(bottom, top)


def _powers(low: float, high: float) -> LogLocator:
    """Return ticks at powers of ten, and at 2 and 5 times each if the axis spans at most a factor of 100."""
    return LogLocator(subs=(1.0,) if log10(high / low) > 2 else (1.0, 2.0, 5.0))


def _spread(values: Sequence[float]) -> list[float]:
    """Return the values of a logarithmic axis that can be labelled without overlap, starting from the largest."""
    nearest = log10(values[-1] / values[0]) / 11 if len(values) > 1 else 0.0
    kept: list[float] = []
    for value in reversed(values):
        if not kept or log10(kept[-1] / value) >= nearest:
            kept.append(value)
    return kept[::-1]


def _label_directly(drawing: Drawing, axes: Axes, figure: LineFigure) -> None:
    """Write each curve's name at its right end, moved so that names do not overlap; many curves get a legend."""
    labels: list[tuple[str, float, str]] = []
    many = len(figure.lines) > len(LINES)
    if many:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False, handlelength=2.4)
    for index, line, names in () if many else _distinct(figure.lines):
        finite = [value for value in line.mean if np.isfinite(value)]
        text = "\n".join(fill(f"{'= ' * (place > 0)}{name}", 24) for place, name in enumerate(names))
        if finite:
            labels.append((text, finite[-1], LINES[index % len(LINES)]))
    labels += [(fill(mark.label, 24), mark.value, MUTED) for mark in figure.references if mark.axis == "y"]
    above = axes.get_xaxis_transform()
    for mark in figure.references:
        if mark.axis == "x":
            at: dict[str, Any] = {"xycoords": above, "xytext": (0.0, 3.0), "ha": "center", "va": "bottom"}
            axes.annotate(mark.label, (mark.value, 1.0), color=MUTED, **at, **_LABEL)
    drawing.get_layout_engine().execute(drawing)  # type: ignore[union-attr]  # so that the axes' heights are known
    points = 72 / drawing.dpi
    wanted = [float(axes.transData.transform((axes.get_xlim()[0], value))[1]) * points for _, value, _ in labels]
    heights = [10.5 * (text.count("\n") + 1) for text, _, _ in labels]
    box = axes.get_window_extent()
    for (text, value, colour), start, place in zip(
        labels, wanted, _apart(wanted, heights, box.y0 * points, box.y1 * points), strict=True
    ):
        at = {"xycoords": axes.get_yaxis_transform(), "xytext": (6.0, place - start), "ha": "left", "va": "center"}
        weight = "normal" if colour == MUTED else "bold"
        axes.annotate(text, (1.0, value), color=colour, weight=weight, **at, **_LABEL)


def _apart(wanted: Sequence[float], heights: Sequence[float], low: float, high: float) -> list[float]:
    """Return centres near `wanted` for boxes of these heights, without overlap, inside `low..high` if they fit.

    Boxes that touch form a block as near as possible to their wanted centres; blocks that touch are joined.
    """
    # Boxes with the same wanted centre, to a tenth of a point, keep the given order, from the top.
    order = sorted(range(len(wanted)), key=lambda index: (round(wanted[index], 1), -index))
    blocks: list[tuple[list[int], float, float]] = []  # boxes from bottom to top, y of the bottom, height

    def block(members: list[int]) -> tuple[list[int], float, float]:
        total = sum(heights[index] for index in members)
        bottoms, below = [], 0.0
        for index in members:
            bottoms.append(wanted[index] - heights[index] / 2 - below)
            below += heights[index]
        bottom = sum(bottoms) / len(bottoms)
        return members, max(low, min(bottom, high - total)), total

    for index in order:
        blocks.append(block([index]))
        while len(blocks) > 1 and blocks[-2][1] + blocks[-2][2] > blocks[-1][1]:
            last = blocks.pop()
            blocks.append(block(blocks.pop()[0] + last[0]))
    places = [0.0] * len(wanted)
    for members, bottom, _ in blocks:
        for index in members:
            places[index] = bottom + heights[index] / 2
            bottom += heights[index]
    return places
