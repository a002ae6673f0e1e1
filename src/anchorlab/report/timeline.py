"""Draw timelines: one row per event, with training from left to right."""

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, MaxNLocator

from anchorlab.findings import TimelineFigure
from anchorlab.report.style import LINES, MARKERS, MUTED

_ROW, _AXIS, _LEGEND = 0.3, 0.75, 0.25  # inches


def draw_timeline(drawing: Drawing, figure: TimelineFigure, margin: float) -> None:
    """Draw one row per event, the first at the top; groups differ in colour and marker.

    Each point is one member. A bar marks the median if more than half of the members have the event. `margin` is the
    height in inches to keep for the figure's title and provenance.
    """
    groups = list(dict.fromkeys(event.group for event in figure.events))
    above = _LEGEND if len(groups) > 1 else 0.0
    drawing.set_size_inches(6.4, _ROW * len(figure.events) + _AXIS + above + margin)
    axes = drawing.add_subplot()
    for row, event in enumerate(figure.events):
        index = groups.index(event.group)
        colour, marker = LINES[index % len(LINES)], MARKERS[index % len(MARKERS)]
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
            axes.annotate(
                text,
                (figure.end, row),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                size=7.5,
                color=MUTED,
                annotation_clip=False,
            )
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
