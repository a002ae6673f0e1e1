"""Draw heat maps in a grid, on one colour scale."""

from collections.abc import Callable
from dataclasses import replace
from textwrap import fill
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure as Drawing
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from anchorlab.findings import Map, MapFigure
from anchorlab.report.style import GRID, INK, MUTED, PAPER, SEQUENTIAL, SIGNED

_MOST_TICK_LABELS = 32  # a map with more tokens has numbers as tick labels
_LONG, _TWO_LINES = 20, 0.26  # in a figure of one map longer tick labels are broken, and cells have this size in inches
_MOST_NUMBERS, _NUMBER = 24, 0.36  # maps of up to this number of cells have numbers in cells of this size in inches


def draw_maps(drawing: Drawing, figure: MapFigure, margin: float) -> None:
    """Draw a grid of heat maps on one colour scale: rows of values run downwards along y, columns along x.

    `margin` is the height in inches to keep for the figure's title and provenance.
    """
    rows, columns = len(figure.maps), max(len(row) for row in figure.maps)
    largest = max(max(len(one.values), len(one.values[0])) for row in figure.maps for one in row)
    numbered = all(len(one.values) * len(one.values[0]) <= _MOST_NUMBERS for row in figure.maps for one in row)
    broken = rows == columns == 1 and _longest_label(figure.maps[0][0]) > _LONG
    side = _TWO_LINES * largest if broken else min(max((_NUMBER if numbered else 0.17) * largest, 1.2), 2.4)
    room = 1.0 if broken else 0.0  # for labels of two lines
    wrapped = [[fill(one.title, max(int(side * 11), 8)) for one in row] for row in figure.maps]
    title_lines = sum(max(text.count("\n") + 1 for text in row) for row in wrapped)
    height = rows * (side + 0.1) + 0.15 * title_lines + 0.5 + room + margin
    drawing.set_size_inches(max(columns * (side + 0.2) + 1.25 + room, 3.6), height)
    grid: Any = drawing.subplots(rows, columns, squeeze=False)
    normalise, colours = _colour_scale(figure)
    image = None
    for i, j in np.ndindex(rows, columns):
        axes: Axes = grid[i, j]
        if j >= len(figure.maps[i]):
            axes.axis("off")
            continue
        one = figure.maps[i][j]
        values = np.array(one.values)
        square = 1 / 2 <= values.shape[0] / values.shape[1] <= 2
        image = axes.imshow(
            values, cmap=colours, norm=normalise, interpolation="none", aspect="equal" if square else "auto"
        )
        if not np.isfinite(values).all():  # white would look like a zero
            axes.patch.set(hatch="////", edgecolor=MUTED, alpha=0.4, linewidth=0)
        axes.set_title(wrapped[i][j], pad=4)
        axes.spines[:].set_visible(True)
        axes.spines[:].set_color(GRID)
        left = figure.maps[i][j - 1] if j > 0 else None
        below = figure.maps[i + 1][j] if i + 1 < rows and j < len(figure.maps[i + 1]) else None
        _map_ticks(axes, _with_broken_labels(one) if broken else one, left, below)
        if numbered:
            _numbers(axes, values, image)
        if left is None or one.y_label is not None:
            axes.set_ylabel(figure.y_label if one.y_label is None else one.y_label)
        if below is None or one.x_label is not None:
            axes.set_xlabel(figure.x_label if one.x_label is None else one.x_label)
    if image is not None:
        bar = drawing.colorbar(image, ax=grid, label=figure.value_label, aspect=22, pad=0.02, fraction=0.05)
        bar.outline.set_visible(False)
        bar.solids.set_rasterized(True)  # type: ignore[union-attr]


def _numbers(axes: Axes, values: np.ndarray, image: AxesImage) -> None:
    """Write each cell's number into it, in the colour of the paper if the cell is dark.

    A number below a two-hundredth of the largest is written as 0, since it would not fit into its cell.
    """
    least = np.abs(values[np.isfinite(values)]).max(initial=0) / 200
    for row, column in np.argwhere(np.isfinite(values)):
        red, green, blue, _ = image.to_rgba(values[[row], [column]])[0]
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
        value = values[row, column]
        text = f"{value:.2g}" if abs(value) >= least else "0"
        axes.text(column, row, text, ha="center", va="center", size=7, color=PAPER if dark else INK)


def _colour_scale(figure: MapFigure) -> tuple[Normalize, LinearSegmentedColormap]:
    """Return one scale for all maps of a figure; a signed scale is symmetric around zero."""
    values = np.concatenate([np.ravel(one.values) for row in figure.maps for one in row])
    values = values[np.isfinite(values)] if np.isfinite(values).any() else np.zeros(1)
    low, high = figure.value_range
    if figure.signed:
        ends = [abs(end) for end in (low, high) if end] or [float(np.abs(values).max())]
        reach = max(*ends, 1e-9) if len(ends) > 1 else max(ends[0], 1e-9)
        scale: Normalize = TwoSlopeNorm(0.0, -reach, reach)
        return scale, LinearSegmentedColormap.from_list("signed", SIGNED)
    bottom = float(values.min()) if low is None else low
    top = float(values.max()) if high is None else high
    return Normalize(bottom, top if top > bottom else bottom + 1), LinearSegmentedColormap.from_list("s", SEQUENTIAL)


def _with_broken_labels(one: Map) -> Map:
    """Break tick labels of more than `_LONG` characters after their first comma."""

    def broken(ticks: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(tick.replace(", ", ",\n", 1) if len(tick) > _LONG else tick for tick in ticks)

    return replace(one, row_ticks=broken(one.row_ticks), column_ticks=broken(one.column_ticks))


def _longest_label(one: Map) -> int:
    sides = ((one.row_ticks, len(one.values)), (one.column_ticks, len(one.values[0])))
    return max((len(tick) for ticks, size in sides if size <= _MOST_TICK_LABELS for tick in ticks), default=0)


def _map_ticks(axes: Axes, one: Map, left: Map | None, below: Map | None) -> None:
    """Label the ticks with tokens if there is room; leave labels out that the map to the left or below has too."""
    axes.tick_params(length=0, pad=2, labelsize=7)
    lowest = below is None or below.column_ticks != one.column_ticks
    sides: list[tuple[tuple[str, ...], int, Callable[..., object], matplotlib.axis.Axis, bool]] = [
        (one.row_ticks, len(one.values), axes.set_yticks, axes.yaxis, left is None or left.row_ticks != one.row_ticks),
        (one.column_ticks, len(one.values[0]), axes.set_xticks, axes.xaxis, lowest),
    ]
    for ticks, size, place, axis, shown in sides:
        if ticks and size <= _MOST_TICK_LABELS:
            turned = axis is axes.xaxis and max(map(len, ticks)) > 2
            place(range(size), ticks if shown else [""] * size, rotation=90 if turned else 0)
        elif shown:
            axis.set_major_locator(MaxNLocator(integer=True, nbins=6, steps=[1, 2, 5, 10], min_n_ticks=1))
        else:
            place([])
