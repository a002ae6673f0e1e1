"""Write one self-contained HTML page for the findings of one or more studies; it loads nothing from the network."""

from collections.abc import Sequence
from functools import cache
from math import isfinite
from pathlib import Path
from shlex import quote
from tempfile import NamedTemporaryFile

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from anchorlab.errors import SpecError
from anchorlab.findings import MARKS, SYMBOLS, CircuitFigure, Figure, Findings, MapFigure, Provenance
from anchorlab.report.figures import footer, page_svg
from anchorlab.studies.registry import study
from anchorlab.viewer import view_json, viewer_script, viewer_style


def write_report(findings: Findings | Sequence[Findings], path: Path | str, title: str | None = None) -> Path:
    """Write the page of one or more studies and return its path.

    The same findings give the same bytes. `write_page` writes the file. `title` defaults to the title of the study, or
    to `anchorlab report` for several studies.

    Errors: `SpecError` for anything else than findings, if there are none, and if the folder does not exist.
    """
    studies = tuple(findings) if isinstance(findings, Sequence) else (findings,)
    if strange := [one for one in studies if not isinstance(one, Findings)]:
        remedy = "give what al.run_study returned; a run draws itself by run.plot()"
        raise SpecError("report.findings", f"a {type(strange[0]).__name__} is not findings", remedy)
    if not studies:
        raise SpecError("report.findings", "is empty", "run a study first")
    return write_page(render(studies, title or (studies[0].title if len(studies) == 1 else "anchorlab report")), path)


def write_page(page: str, path: Path | str) -> Path:
    """Write a page and return its path. The file is replaced as a whole or not at all.

    Errors: `SpecError` if its folder does not exist.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise SpecError("page", f"there is no folder {path.parent.absolute()}", "make it first, or name another file")
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
    """Return the page as text, with every value of the findings escaped."""
    return environment().get_template("page.html.jinja").render(title=title, studies=studies)


@cache
def environment() -> Environment:
    """Return the jinja environment: the page templates with the functions, scripts and styles that they use."""
    made = Environment(
        loader=PackageLoader("anchorlab.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"value": value_text, "time": time_text}
    made.globals |= {
        "symbols": SYMBOLS,
        "marks": MARKS,
        "footer": footer,
        "placed": placed,
        "rebuild_command": rebuild_command,
        "svg": lambda figure: Markup(page_svg(figure)),
        "view_json": lambda view: Markup(view_json(view)),
        "viewer_style": Markup(viewer_style()),
        "viewer_script": Markup(viewer_script()),
    }
    return made


def rebuild_command(findings: Findings) -> str | None:
    """Return the command that reproduces findings; None for a study that is not registered, such as in a script."""
    try:
        study(findings.study).profile(findings.profile)
    except SpecError:
        return None
    return f"anchorlab study {findings.study} --profile {quote(findings.profile)}"


def value_text(value: str | int | float | None) -> str:
    """Return the text of a table cell: floats in four significant digits, None and non-finite numbers as a dash."""
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return "—"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def time_text(source: Provenance) -> str:
    """Return the wall-clock time as text, and the number of reused runs, whose training the time does not include."""
    took = duration_text(source.seconds)
    if not source.reused:
        return took
    return f"{took}, reusing {source.reused} run{'s' if source.reused > 1 else ''}"


def duration_text(seconds: float) -> str:
    """Return a duration as text: `45 s`, `2 min 21 s`, `3 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def placed(figures: Sequence[Figure]) -> list[tuple[Figure, str]]:
    """Return figures with their layout on the page: `wide` (a whole row), `alone` (in a row), or empty (in a pair)."""
    places: list[str] = []
    waiting = False  # whether the last figure has room for a neighbour
    for figure in figures:
        wide = _is_wide(figure)
        if waiting and wide:
            places[-1] = "alone"
        waiting = not wide and not waiting
        places.append("wide" if wide else "")
    if waiting:
        places[-1] = "alone"
    return list(zip(figures, places, strict=True))


def _is_wide(figure: Figure) -> bool:
    if isinstance(figure, MapFigure):
        return max(map(len, figure.maps)) > 2
    return isinstance(figure, CircuitFigure) and len(figure.panels) > 1
