"""The preview picture of links to these pages, 1200 x 630 pixels: the name, and the attention of a published model."""

from pathlib import Path

import matplotlib
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure as Drawing
from sphinx.application import Sphinx

from anchorlab.findings import Findings, MapFigure
from anchorlab.report.style import DRAWING, GRID, INK, MUTED, PAPER, SEQUENTIAL

SIZE, DOTS = (12.0, 6.3), 100
STUDY = "anchor-identity"
LINES = "Small benchmark functions\nfor studying how language\nmodels learn and compute"


def setup(app: Sphinx) -> dict[str, bool]:
    """Draw the picture after the pages. Sphinx calls this."""
    app.connect("build-finished", write_picture)
    return {"parallel_read_safe": True}


def write_picture(app: Sphinx, failure: Exception | None) -> None:
    """Write the picture into the folder of the HTML pages; other builders get none."""
    if failure is None and app.builder.format == "html":
        findings = Path(app.srcdir) / "gallery" / STUDY / "findings.json"
        draw(findings, Path(app.outdir) / app.config.ogp_image)


def draw(findings: Path, out: Path) -> None:
    """Draw the name, and next to it the first attention maps of published findings."""
    maps = next(one for one in Findings.from_json(findings.read_text("utf-8")).figures if isinstance(one, MapFigure))
    colours = LinearSegmentedColormap.from_list("attention", SEQUENTIAL)
    with matplotlib.rc_context(dict(DRAWING)):
        drawing = Drawing(figsize=SIZE, facecolor=PAPER)
        drawing.text(0.05, 0.66, "anchorlab", size=52, weight="bold", color=INK)
        drawing.text(0.05, 0.34, LINES, size=21, color=MUTED, linespacing=1.5)
        for column, one in enumerate(maps.maps[0][:2]):
            axes = drawing.add_axes((0.49 + 0.25 * column, 0.28, 0.23, 0.44))
            axes.imshow(one.values, cmap=colours, vmin=0, vmax=1, interpolation="none")
            axes.set_title(one.title, size=17, pad=8)
            axes.set_xticks(range(len(one.column_ticks)), one.column_ticks, size=11)
            axes.set_yticks(range(len(one.row_ticks)), one.row_ticks if column == 0 else [], size=11)
            axes.tick_params(length=0)
            axes.spines[:].set(visible=True, color=GRID)
        out.parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(out, dpi=DOTS)
