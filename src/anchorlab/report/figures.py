"""Draw figures in one style: as matplotlib drawings, as files, and as SVG inside a page."""

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import Any
from xml.sax.saxutils import quoteattr

import matplotlib
from matplotlib.figure import Figure as Drawing

from anchorlab.errors import SpecError
from anchorlab.findings import (
    BarFigure,
    CircuitFigure,
    DotFigure,
    Figure,
    LineFigure,
    MapFigure,
    Provenance,
    ScatterFigure,
    TimelineFigure,
)
from anchorlab.report.charts import draw_bars, draw_dots, draw_scatters, draw_timeline
from anchorlab.report.circuits import draw_circuits
from anchorlab.report.lines import draw_lines
from anchorlab.report.maps import draw_maps
from anchorlab.report.style import DRAWING, MUTED, PAGE_COLOURS

_MARGIN = 0.55  # inches for a figure's title and provenance
_DRAWN_BY: dict[type, Callable[[Drawing, Any, float], None]] = {
    CircuitFigure: draw_circuits,
    DotFigure: draw_dots,
    MapFigure: draw_maps,
    ScatterFigure: draw_scatters,
    TimelineFigure: draw_timeline,
}


class _ShownDrawing(Drawing):
    """A matplotlib figure that a notebook displays as the value of a cell, even if pyplot was never imported.

    matplotlib registers figures with IPython only when pyplot makes one; ours are made without pyplot's global state.
    """

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """Return the image, and its display size, which is smaller than its number of pixels for dense screens."""
        out = io.BytesIO()
        with matplotlib.rc_context({**DRAWING, "text.parse_math": True}):  # as when a user saves it
            self.savefig(out, format="png")
        width, height = self.get_size_inches() * self.dpi
        return out.getvalue(), {"width": round(width), "height": round(height)}


def draw(figure: Figure, provenance: Provenance | None = None, bare: bool = False) -> Drawing:
    """Return a figure as a matplotlib drawing, with its title above and its provenance, if known, below.

    `bare` leaves out title and provenance, for a page that prints them itself. matplotlib's global state (backend and
    settings) does not change. A notebook displays the drawing.
    """
    with matplotlib.rc_context(dict(DRAWING)):
        drawing = _ShownDrawing(layout="constrained")
        drawing.get_layout_engine().set(w_pad=0.06, h_pad=0.06)  # type: ignore[union-attr, call-arg]
        if isinstance(figure, LineFigure):
            drawing.set_size_inches((5.3, 3.3) if bare else (6.4, 3.7))  # a page's columns are narrower
            draw_lines(drawing, figure)
        elif isinstance(figure, BarFigure):
            draw_bars(drawing, figure)
        else:
            _DRAWN_BY[type(figure)](drawing, figure, 0.0 if bare else _MARGIN)
        if not bare:
            width = drawing.get_figwidth()
            drawing.suptitle(fill(figure.title, int(width * 11.5)), x=0.012, ha="left", size=10.5, weight="bold")
            note = fill(footer(figure, provenance), int(width * 18), break_long_words=False)
            drawing.supxlabel(note, x=0.012, ha="left", size=6.5, color=MUTED)
        _let_scales_change(drawing)
    return drawing


def _let_scales_change(drawing: Drawing) -> None:
    """Let tick labels show formulas, which matplotlib writes on a logarithmic scale, unless a label has a dollar."""
    for axis in (one for axes in drawing.axes for one in (axes.xaxis, axes.yaxis)):
        if not any("$" in label.get_text() for label in axis.get_majorticklabels()):
            for tick in axis.majorTicks:
                tick.label1.set_parse_math(True)


def footer(figure: Figure, provenance: Provenance | None) -> str:
    """Return the line below a figure: the meaning of its bands or intervals, if any, and the provenance, if known."""
    drawn = figure.drawn if isinstance(figure, LineFigure | BarFigure) and figure.has_intervals else ""
    if provenance is None:
        return drawn
    source = provenance if figure.seeds is None else replace(provenance, seeds=figure.seeds)
    return " · ".join(filter(None, (drawn, source.line)))


def save(figure: Figure, provenance: Provenance, path: Path) -> Path:
    """Write a figure as SVG, PNG or PDF, by the suffix of the path, and return the path.

    The same figure gives the same bytes. Errors: `SpecError` for another suffix.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("svg", "png", "pdf"):
        raise SpecError("figure.path", f"cannot write {path.name!r}", "end the name with .svg, .png or .pdf")
    path.write_bytes(_bytes(draw(figure, provenance), kind))
    return path


def page_svg(figure: Figure) -> str:
    """Return the bare figure as an `<svg>` element in the page's colours and font, with a name for screen readers."""
    text = _bytes(draw(figure, bare=True), "svg").decode()
    text = text[text.index("<svg") :]
    used = set(re.findall(r"(?:url\(|href=\")#([\w-]+)", text))
    text = re.sub(r' id="([\w-]+)"', lambda found: found[0] if found[1] in used else "", text)
    width = re.search(r'viewBox="0 0 ([\d.]+) ', text)
    if width is None:  # every version of matplotlib writes it
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
