"""Draw circuits: roles from left to right, layers upwards, one arrow per attention path.

Every role (such as `key 1`) has a column with a vertical line, its residual stream. An arrow starts at the key's stream
and ends at the query's stream, one layer higher.
"""

from collections import Counter
from math import ceil
from textwrap import fill
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from anchorlab.findings import CircuitFigure, CircuitPanel
from anchorlab.report.style import GRID, LINES, MUTED, RAISED

Curve = Float[np.ndarray, "point xy"]
Box = Float[np.ndarray, "corner xy"]
"""A rectangle by its lower left and upper right corners."""

# Lengths are in inches, as are the coordinates of every panel.
_USED = 0.6  # height of a layer with a path
_UNUSED, _ALL_UNUSED = 0.15, 1.2  # height of a layer without a path, and largest height of all such layers together
_COLUMN = 0.5  # least width of a column
_LETTER, _LINE = 0.063, 0.14  # width of a letter and height of a line of text
_BOLD = 0.085  # width of a letter of a title
_NAMES = 0.95  # width of the layer names
_SHORTEST, _LONGEST = 6, 14  # bounds on the letters per line of a role's name
_WIDEST = 11.0  # largest width of a row of panels
_APART = 0.1  # between two arrows with the same ends
_TIP = 0.03  # from the end of an arrow to the middle of its head


def draw_circuits(drawing: Drawing, figure: CircuitFigure, margin: float) -> None:
    """Draw the panels of a figure in rows of at most three.

    Heads get colours in order, from the lowest layer of their panel. A stream is dark up to the last layer in which a
    path reads it and light above, but dark to the top if a path writes it after that. Layers without a path are thin.
    `margin` is the height in inches to keep for the figure's title and provenance.
    """
    names = [_wrapped(panel.roles) for panel in figure.panels]
    columns = [
        max(_COLUMN, _LETTER * max(len(line) for text in [*texts, *_labels(panel)] for line in text.split("\n")) + 0.1)
        for texts, panel in zip(names, figure.panels, strict=True)
    ]
    width = max(column * len(texts) for column, texts in zip(columns, names, strict=True)) + _NAMES
    rows = ceil(len(figure.panels) / max(1, min(3, int(_WIDEST / width))))
    across = ceil(len(figure.panels) / rows)
    titles = [fill(panel.title, int((width - _NAMES) / _BOLD)) for panel in figure.panels]
    heights = [
        _levels(panel)[-1] + _LINE * (_lines(texts) + _lines([title])) + 0.3
        for panel, texts, title in zip(figure.panels, names, titles, strict=True)
    ]
    tallest = [max(heights[row * across : (row + 1) * across]) for row in range(rows)]
    drawing.set_size_inches(max(across * width + 0.15, 3.6), sum(tallest) + margin)
    grid: Any = drawing.subplots(rows, across, squeeze=False, gridspec_kw={"height_ratios": tallest})
    for axes in grid.flat[len(figure.panels) :]:
        axes.axis("off")
    for axes, panel, title, texts, column in zip(grid.flat, figure.panels, titles, names, columns, strict=False):
        axes.set_title(title, pad=5, weight="bold")
        _draw_frame(axes, panel, texts, column)
        _draw_arrows(axes, panel, column)


def _wrapped(roles: tuple[str, ...]) -> list[str]:
    """Return the names, wrapped at the length of the longest word, but between `_SHORTEST` and `_LONGEST`."""
    longest = max(len(word) for role in roles for word in role.split() or [role])
    return [fill(role, min(max(longest, _SHORTEST), _LONGEST)) for role in roles]


def _lines(texts: list[str]) -> int:
    return max(text.count("\n") + 1 for text in texts)


def _levels(panel: CircuitPanel) -> Float[np.ndarray, "level"]:
    """Return the heights of the levels: the input of the first layer and the output of each layer."""
    used = {arrow.layer for arrow in panel.arrows}
    unused = panel.layers - len(used)
    thin = min(_UNUSED, _ALL_UNUSED / unused) if unused else 0.0
    return np.cumsum([0.0] + [_USED if layer in used else thin for layer in range(panel.layers)])


def _draw_frame(axes: Axes, panel: CircuitPanel, texts: list[str], column: float) -> None:
    levels = _levels(panel)
    top = float(levels[-1])
    right = column * (len(texts) - 1)
    edges = (-0.5 * column, right + 0.5 * column)
    used = sorted({arrow.layer for arrow in panel.arrows})
    for layer in used:
        axes.fill_between(edges, *levels[layer : layer + 2], color=RAISED, linewidth=0, zorder=0)
    axes.hlines(levels, *edges, color=GRID, linewidth=0.6, zorder=0.5)
    for index, role in enumerate(panel.roles):
        read = [float(levels[arrow.layer]) for arrow in panel.arrows if arrow.key == role]
        written = [float(levels[arrow.layer + 1]) for arrow in panel.arrows if arrow.query == role]
        # A stream written above its last reader goes to the output, so it is dark to the top.
        live = top if written and max(written) > max(read, default=0.0) else max(read, default=0.0)
        axes.vlines(column * index, 0, top, color=GRID, linewidth=1.0, zorder=0.7)
        axes.vlines(column * index, 0, live, color=MUTED, linewidth=0.9, zorder=1)
    axes.set_xticks([])
    for index, text in enumerate(texts):
        for line, words in enumerate(text.split("\n")):  # line by line, so that the lines of all names align
            below = (0, -12 - 10 * line)
            axes.annotate(words, (column * index, 0), below, textcoords="offset points", ha="center", size=7.5)
    middles = [float(levels[layer] + levels[layer + 1]) / 2 for layer in used]
    axes.set_yticks(middles, [f"layer {layer}" for layer in used], size=8)
    axes.tick_params(length=0, pad=4)
    axes.set_xlim(*edges)
    axes.set_ylim(-0.04, top + 0.04)
    axes.spines[:].set_visible(False)


def _draw_arrows(axes: Axes, panel: CircuitPanel, column: float) -> None:
    """Draw the arrows with their labels; arrows with the same ends are drawn side by side."""
    levels = _levels(panel)
    heads = sorted({(arrow.layer, arrow.head) for arrow in panel.arrows})
    place = {role: column * index for index, role in enumerate(panel.roles)}
    alike = Counter((arrow.layer, arrow.query, arrow.key) for arrow in panel.arrows)
    seen: Counter[tuple[int, str, str]] = Counter()
    corners = []
    for arrow in panel.arrows:
        same = (arrow.layer, arrow.query, arrow.key)
        aside = _APART * (seen[same] - (alike[same] - 1) / 2)
        seen[same] += 1
        low, high = levels[arrow.layer : arrow.layer + 2]
        corners.append(_corners(place[arrow.key], place[arrow.query], float(low), float(high), aside))
    curves = [_curve(one) for one in corners]
    taken: list[Box] = []
    for arrow, four, curve, label in zip(panel.arrows, corners, curves, _labels(panel), strict=True):
        colour = LINES[heads.index((arrow.layer, arrow.head)) % len(LINES)]
        path = Path(four, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
        axes.add_patch(PathPatch(path, edgecolor=colour, facecolor="none", linewidth=1.7, zorder=2))
        axes.plot(*four[0], "o", color=colour, markersize=4, zorder=2.2)
        axes.plot(*four[3], "<" if arrow.query == arrow.key else "^", color=colour, markersize=6.5, zorder=2.2)
        if label:
            box = _free_box(label, curve, curves, np.array(list(place.values())), taken)
            taken.append(box)
            _write(axes, label, box, colour)


def _write(axes: Axes, label: str, box: Box, colour: str) -> None:
    """Write a label in its box, which hides the streams behind it."""
    x, y = box.mean(axis=0)
    back = {"facecolor": RAISED, "edgecolor": "none", "pad": 0.5}
    axes.text(x, y, label, color=colour, size=7.5, weight="bold", ha="center", va="center", bbox=back, zorder=1.5)


def _labels(panel: CircuitPanel) -> list[str]:
    """Return the label of each arrow; it includes the head unless all heads of the panel have index 0."""
    if not any(arrow.head for arrow in panel.arrows):
        return [arrow.label for arrow in panel.arrows]
    return [f"{arrow.layer}.{arrow.head} · {arrow.label}".rstrip(" ·") for arrow in panel.arrows]


def _corners(start: float, end: float, low: float, high: float, aside: float) -> Float[np.ndarray, "four xy"]:
    """Return the control points of a curve from one stream up to another, `aside` of its middle, or of a loop."""
    if start == end:
        out = start + 0.33 + aside / 2
        return np.array([(start, low), (out, low + 0.05), (out, high - 3 * _TIP), (start + _TIP, high - 3 * _TIP)])
    middle = (low + high) / 2 + aside
    return np.array([(start, low), (start, middle), (end, middle), (end, high - _TIP)])


def _curve(corners: Float[np.ndarray, "four xy"]) -> Curve:
    """Return points along a cubic Bézier curve."""
    t = np.linspace(0, 1, 33)[:, None]
    weights = np.hstack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    points: Curve = weights @ corners
    return points


def _free_box(
    text: str, own: Curve, curves: list[Curve], streams: Float[np.ndarray, "position"], taken: list[Box]
) -> Box:
    """Return a box for a label next to its curve that covers as few curves, streams and other labels as possible."""
    half = np.array([_LETTER * len(text) + 0.02, _LINE]) / 2
    best, least = np.zeros((2, 2)), np.inf
    for at in range(8, 25, 2):
        along = own[at + 1] - own[at - 1]
        normal = np.array([-along[1], along[0]]) / np.hypot(*along)
        for side in (1, -1):
            centre = own[at] + side * normal * (np.abs(normal) @ half + 0.02)
            box = np.stack([centre - half, centre + half])
            on_curves = sum(int(((curve > box[0]) & (curve < box[1])).all(axis=1).sum()) for curve in curves)
            on_streams = int(((streams > box[0, 0]) & (streams < box[1, 0])).sum())
            on_texts = sum(bool((box[0] < other[1]).all() and (other[0] < box[1]).all()) for other in taken)
            below = side * normal[1] < 0
            cost = on_curves + on_streams / 2 + 100 * on_texts + 0.3 * below + 0.05 * abs(at - 16)
            if cost < least:
                best, least = box, cost
    return best
