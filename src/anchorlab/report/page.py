"""One self-contained HTML page for the findings of one or more studies; it asks the network for nothing."""

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from math import isfinite
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from anchorlab.errors import SpecError
from anchorlab.findings.findings import Figure, Findings, Provenance, Verdict
from anchorlab.report.figures import page_svg
from anchorlab.viewer.view import AttentionView, LiveModel

_SYMBOLS: dict[Verdict, str] = {"reproduced": "✓", "not reproduced": "✗", "not measured": "—"}

VIEWER_SCRIPTS = (
    "model.js",
    "oracle.js",
    "parts.js",
    "maps.js",
    "scene.js",
    "circuit.js",
    "pane.js",
    "sequence.js",
    "live.js",
    "viewer.js",
)
"""The files of the attention viewer, in the order in which they run."""


def write_report(findings: Findings | Sequence[Findings], path: Path | str, title: str | None = None) -> Path:
    """Writes the page of one or more studies and returns its path.

    The same findings give the same bytes. The page appears whole or not at all: it is written beside its place and then
    moved there. Missing folders are made. `title` is the page's, by default that of the study, or `anchorlab report`.

    Errors: `SpecError` where there are no findings.
    """
    studies = (findings,) if isinstance(findings, Findings) else tuple(findings)
    if not studies:
        raise SpecError("report.findings", "is empty", "run a study first")
    return write_page(render(studies, title or (studies[0].title if len(studies) == 1 else "anchorlab report")), path)


def write_page(page: str, path: Path | str) -> Path:
    """Writes a page whole or not at all, beside its place and then moved there; returns its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        temporary = Path(file.name)
        try:
            file.write(page.encode())
            file.close()
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    return path


def render(studies: Sequence[Findings], title: str) -> str:
    """The page as text; whatever findings say is escaped."""
    return environment().get_template("page.html.jinja").render(title=title, studies=studies)


def environment() -> Environment:
    """The templates of pages, with all that they take from Python and the viewer's files."""
    made = Environment(
        loader=PackageLoader("anchorlab.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"value": value_text, "time": time_text}
    viewer = files("anchorlab.viewer") / "scripts"
    made.globals |= {
        "symbols": _SYMBOLS,
        "svg": _svg,
        "view_json": view_json,
        "viewer_style": Markup((viewer / "viewer.css").read_text("utf-8")),
        "viewer_script": Markup("\n".join((viewer / name).read_text("utf-8") for name in VIEWER_SCRIPTS)),
    }
    return made


def value_text(value: str | int | float | None) -> str:
    """A value as tables show it: four significant digits for a fraction, a dash for nothing."""
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return "—"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def time_text(source: Provenance) -> str:
    """What findings took, in words, and what that leaves out."""
    took = duration_text(source.seconds)
    if not source.reused:
        return took
    return f"{took} beside {source.reused} run{'s' if source.reused > 1 else ''} trained before"


def duration_text(seconds: float) -> str:
    """A wall-clock time in words: `45 s`, `2 min 21 s`, `3 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def view_json(view: AttentionView) -> Markup:
    """An attention view for the viewer: JSON that can stand in a script element, weights in base64."""
    data = {
        "title": view.title,
        "members": view.members,
        "steps": view.steps,
        "examples": [
            {
                "tokens": [{"text": text, "role": role} for text, role in zip(one.texts, one.roles, strict=True)],
                "answer": one.answer,
                "split": one.split,
                "trace": one.trace,
            }
            for one in view.examples
        ],
        "layers": view.layers,
        "heads": view.heads,
        "length": view.length,
        "predicted": view.predicted,
        "weights": b64encode(view.weights).decode(),
        "labels": view.labels,
        "recorded_only": view.recorded_only,
        **({"live": _live_data(view.live)} if view.live is not None else {}),
        **({"circuits": [[asdict(path) for path in paths] for paths in view.circuits]} if view.circuits else {}),
    }
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    # Inside a string of JSON these mean the same, and none of them can end the script element.
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _live_data(live: LiveModel) -> dict[str, Any]:
    return {
        "architecture": asdict(live.architecture),
        "weights": [asdict(weight) for weight in live.weights],
        "data": [[None if one is None else b64encode(one).decode() for one in member] for member in live.data],
        "oracle": json.loads(live.oracle) if live.oracle else None,
        "texts": live.texts,
    }


def _svg(figure: Figure, provenance: Provenance) -> Markup:
    return Markup(page_svg(figure, provenance))
