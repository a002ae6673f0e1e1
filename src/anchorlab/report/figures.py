"""Figures in one style: labelled curves with bands, grids of heat maps, coloured points, timelines, circuits."""

import io
import re
from collections.abc import Callable, Sequence
from math import log10
from pathlib import Path
from textwrap import fill
from typing import Any
from xml.sax.saxutils import quoteattr

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from anchorlab.errors import SpecError
from anchorlab.findings.findings import (
    CircuitFigure,
    Figure,
    LineFigure,
    Map,
    MapFigure,
    Provenance,
    ScatterFigure,
    TimelineFigure,
)
from anchorlab.report.circuits import draw_circuits
from anchorlab.report.style import DRAWING, GRID, LINES, MARKERS, MUTED, PAGE_COLOURS, POINTS, SEQUENTIAL, SIGNED
from anchorlab.report.timeline import draw_timeline

_MOST_MARKERS = 30  # more points than this are drawn as a bare line
_MOST_TICK_LABELS = 24  # more tokens than this are numbered instead of written


def draw(figure: Figure, provenance: Provenance, bare: bool = False) -> Drawing:
    """A figure as matplotlib draws it, with its title above and its provenance below.

    `bare` leaves title and provenance out, for a page that prints them itself. A figure's own provenance is preferred
    to the one given. Nothing global is touched: no backend, no settings.
    """
    with matplotlib.rc_context(dict(DRAWING)):
        drawing = Drawing(layout="constrained")
        drawing.get_layout_engine().set(w_pad=0.06, h_pad=0.06)  # type: ignore[union-attr, call-arg]
        if isinstance(figure, LineFigure):
            drawing.set_size_inches((5.3, 3.3) if bare else (6.4, 3.7))  # a page's columns are narrower
            _draw_lines(drawing, figure)
        elif isinstance(figure, ScatterFigure):
            _draw_scatters(drawing, figure, margin=0.0 if bare else 0.55)
        elif isinstance(figure, TimelineFigure):
            draw_timeline(drawing, figure, margin=0.0 if bare else 0.55)
        elif isinstance(figure, CircuitFigure):
            draw_circuits(drawing, figure, margin=0.0 if bare else 0.55)
        else:
            _draw_maps(drawing, figure, margin=0.0 if bare else 0.55)
        if not bare:
            width = drawing.get_figwidth()
            drawing.suptitle(fill(figure.title, int(width * 11.5)), x=0.012, ha="left", size=10.5, weight="bold")
            words = (figure.provenance or provenance).line
            if isinstance(figure, LineFigure) and any(line.low for line in figure.lines):
                words = f"{figure.drawn} · {words}"
            note = fill(words, int(width * 20), break_long_words=False)
            drawing.supxlabel(note, x=0.012, ha="left", size=6.5, color=MUTED)
    return drawing


def save(figure: Figure, provenance: Provenance, path: Path) -> Path:
    """Writes a figure as `.svg`, `.png` or `.pdf`, by the name's ending; the same figure gives the same bytes.

    Errors: `SpecError` for another ending.
    """
    kind = figure_kind(path)
    path.write_bytes(_bytes(draw(figure, provenance), kind))
    return path


def figure_kind(path: Path) -> str:
    """`svg`, `png` or `pdf`, by a name's ending. Errors: `SpecError` for another one."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("svg", "png", "pdf"):
        raise SpecError("figure.path", f"cannot write {path.name!r}", "end the name with .svg, .png or .pdf")
    return kind


def page_svg(figure: Figure, provenance: Provenance) -> str:
    """The figure as an `<svg>` element for a page: bare, named for screen readers, in the page's colours and font."""
    text = _bytes(draw(figure, provenance, bare=True), "svg").decode()
    text = text[text.index("<svg") :]
    used = set(re.findall(r"(?:url\(|href=\")#([\w-]+)", text))
    text = re.sub(r' id="([\w-]+)"', lambda found: found[0] if found[1] in used else "", text)
    width = re.search(r'viewBox="0 0 ([\d.]+) ', text)
    if width is None:  # matplotlib has written it for as long as it has written SVG
        raise RuntimeError("matplotlib's SVG has no viewBox")
    text = re.sub(r'(<svg [^>]*?)width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg [^>]*?)height="[^"]*"', r"\1", text, count=1)
    name = f'<svg role="img" aria-label={quoteattr(figure.title)} style="max-width: {float(width[1]) * 1.7:.0f}px" '
    text = text.replace("<svg ", name, 1)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace("'DejaVu Sans'", "var(--sans)")
    for colour, variable in PAGE_COLOURS.items():
        text = text.replace(colour, variable)
    return text.strip()


def _bytes(drawing: Drawing, kind: str) -> bytes:
    metadata = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
    out = io.BytesIO()
    with matplotlib.rc_context(dict(DRAWING)):
        drawing.savefig(out, format=kind, metadata=metadata[kind], transparent=kind == "svg")
    return out.getvalue()


def _draw_lines(drawing: Drawing, figure: LineFigure) -> None:
    axes = drawing.add_subplot()
    axes.grid(axis="y")
    for index, line in enumerate(figure.lines):
        colour = LINES[index % len(LINES)]
        # A second round through the colours is dashed, and every line has its own marker: colour is never alone.
        style = ("-", "--", ":")[index // len(LINES) % 3]
        marker = MARKERS[index % len(MARKERS)] if len(line.x) <= _MOST_MARKERS else None
        if line.low:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.16, linewidth=0)
        axes.plot(line.x, line.mean, style, color=colour, marker=marker, label=line.label)
    for reference in figure.references:
        across = axes.axhline if reference.axis == "y" else axes.axvline
        across(reference.value, color=MUTED, linewidth=0.9, dashes=(4, 3), zorder=1)
    _scale(axes, figure)
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    _label_directly(drawing, axes, figure)


def _scale(axes: Axes, figure: LineFigure) -> None:
    x = np.array([value for line in figure.lines for value in line.x if value > 0 or not figure.log_x])
    if figure.log_y:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if log10(high / low) > 2 else (1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    if figure.log_x and x.size:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(_spread(sorted(set(x.tolist())))))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif x.size and (x == x.round()).all():
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.margins(x=0.02)
    bottom, top = figure.y_range
    if bottom is not None and top is not None and not figure.log_y:
        margin = 0.025 * (top - bottom)  # a curve along the end of the range stays whole
        bottom, top = bottom - margin, top + margin
    axes.set_ylim(bottom, top)


def _spread(values: Sequence[float]) -> list[float]:
    """The values of a logarithmic axis that can be written along it without touching."""
    nearest = log10(values[-1] / values[0]) / 11 if len(values) > 1 else 0.0
    kept: list[float] = []
    for value in reversed(values):
        if not kept or log10(kept[-1] / value) >= nearest:
            kept.append(value)
    return kept[::-1]


def _label_directly(drawing: Drawing, axes: Axes, figure: LineFigure) -> None:
    """Writes each curve's name at its right end, pushed apart where they would touch; too many get a legend."""
    labels: list[tuple[str, float, str]] = []
    many = len(figure.lines) > len(LINES)
    if many:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False, handlelength=2.4)
    for index, line in enumerate(() if many else figure.lines):
        finite = [value for value in line.mean if np.isfinite(value)]
        if finite:
            labels.append((fill(line.label, 24), finite[-1], LINES[index % len(LINES)]))
    labels += [(fill(mark.label, 24), mark.value, MUTED) for mark in figure.references if mark.axis == "y"]
    above = axes.get_xaxis_transform()
    for mark in figure.references:
        if mark.axis == "x":
            _annotate(axes, mark.label, (mark.value, 1.0), above, (0.0, 3.0), MUTED, "center", "bottom")
    drawing.draw_without_rendering()  # places the axes, so that heights are known
    points = 72 / drawing.dpi
    wanted = [float(axes.transData.transform((axes.get_xlim()[0], value))[1]) * points for _, value, _ in labels]
    heights = [10.5 * (text.count("\n") + 1) for text, _, _ in labels]
    box = axes.get_window_extent()
    for (text, value, colour), start, place in zip(
        labels, wanted, _apart(wanted, heights, box.y0 * points, box.y1 * points), strict=True
    ):
        _annotate(axes, text, (1.0, value), axes.get_yaxis_transform(), (6.0, place - start), colour, "left", "center")


def _annotate(
    axes: Axes,
    text: str,
    at: tuple[float, float],
    coordinates: matplotlib.transforms.Transform,
    offset: tuple[float, float],
    colour: str,
    horizontal: str,
    vertical: str,
) -> None:
    axes.annotate(
        text,
        at,
        xycoords=coordinates,
        xytext=offset,
        textcoords="offset points",
        color=colour,
        ha=horizontal,
        va=vertical,
        size=8,
        weight="normal" if colour == MUTED else "bold",
        linespacing=1.05,
        annotation_clip=False,
    )


def _apart(wanted: Sequence[float], heights: Sequence[float], low: float, high: float) -> list[float]:
    """Centres as near to `wanted` as boxes of these heights allow without overlap, inside `low..high` if they fit.

    Boxes that touch form a block around the mean of what its members want; blocks that touch are joined.
    """
    # What ends at nearly one height keeps the order in which it was given, from above.
    order = sorted(range(len(wanted)), key=lambda index: (round(wanted[index] / 6), -index))
    blocks: list[tuple[list[int], float, float]] = []  # members from below, bottom, height

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


def _draw_maps(drawing: Drawing, figure: MapFigure, margin: float) -> None:
    rows, columns = len(figure.maps), max(len(row) for row in figure.maps)
    largest = max(max(len(one.values), len(one.values[0])) for row in figure.maps for one in row)
    side = min(max(0.17 * largest, 1.2), 2.4)
    wrapped = [[fill(one.title, max(int(side * 11), 8)) for one in row] for row in figure.maps]
    title_lines = sum(max(text.count("\n") + 1 for text in row) for row in wrapped)
    height = rows * (side + 0.1) + 0.15 * title_lines + 0.5 + margin
    drawing.set_size_inches(max(columns * (side + 0.2) + 1.25, 3.6), height)
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
        axes.set_title(wrapped[i][j], pad=4)
        axes.spines[:].set_visible(True)
        axes.spines[:].set_color(GRID)
        left = figure.maps[i][j - 1] if j > 0 else None
        below = figure.maps[i + 1][j] if i + 1 < rows and j < len(figure.maps[i + 1]) else None
        _map_ticks(axes, one, left, below)
        if left is None:
            axes.set_ylabel(figure.y_label)
        if below is None:
            axes.set_xlabel(figure.x_label)
    if image is not None:
        bar = drawing.colorbar(image, ax=grid, label=figure.value_label, aspect=22, pad=0.02, fraction=0.05)
        bar.outline.set_visible(False)
        bar.solids.set_rasterized(True)  # type: ignore[union-attr]


def _colour_scale(figure: MapFigure) -> tuple[Normalize, LinearSegmentedColormap]:
    """One scale for all maps of a figure; a signed one is as long on both sides of zero."""
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


def _map_ticks(axes: Axes, one: Map, left: Map | None, below: Map | None) -> None:
    """Tokens as tick labels where there is room; a map with the ticks of its neighbour leaves them to it."""
    axes.tick_params(length=0, pad=2, labelsize=7)
    sides: list[tuple[tuple[str, ...], int, Callable[..., object], matplotlib.axis.Axis, bool]] = [
        (one.row_ticks, len(one.values), axes.set_yticks, axes.yaxis, left is None or left.row_ticks != one.row_ticks),
        (
            one.column_ticks,
            len(one.values[0]),
            axes.set_xticks,
            axes.xaxis,
            below is None or below.column_ticks != one.column_ticks,
        ),
    ]
    for ticks, size, place, axis, shown in sides:
        if ticks and size <= _MOST_TICK_LABELS:
            turned = axis is axes.xaxis and max(map(len, ticks)) > 2
            place(range(size), ticks if shown else [""] * size, rotation=90 if turned else 0)
        elif shown:
            axis.set_major_locator(MaxNLocator(integer=True, nbins=6, steps=[1, 2, 5, 10]))
        else:
            place([])


def _draw_scatters(drawing: Drawing, figure: ScatterFigure, margin: float) -> None:
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
