"""Make the page that browses a store: a table of its runs, their curves, and the studies with their claims."""

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from os.path import relpath
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from anchorlab.findings import SYMBOLS, Findings
from anchorlab.report.page import environment, value_text, write_page
from anchorlab.runs import Entry, Fields, Index, Store, differences, studies_by_run, text_of, words
from anchorlab.viewer.page_data import script_json

MOST_CURVES = 20_000
"""The largest number of runs with curves in a page, the newest, about 0.8 kB each."""

_TELLING = 5  # fields that tell runs apart and are shown by default
_ALSO = ("members", "state", "when", "MB", "studies")
_FOLDER = files("anchorlab.report") / "vendor"


@dataclass(frozen=True)
class StudyRow:
    """Findings, and the address of their page relative to the browsing page; None if they have no page."""

    findings: Findings
    page: str | None


def write_browser(
    store: Store | str | Path | None = None, path: Path | str | None = None, every: int | None = None
) -> Path:
    """Write a page that browses a store and return its path; by default `browse.html` in the store.

    The page loads nothing from the network. It has a table of all runs to filter and sort, the overlaid curves of
    selected runs, with a band from the lowest to the highest member, and the studies with their claims. Unfinished
    runs have curves up to their newest state, and are selected at first. With `every`, the page reloads itself after
    this number of seconds.

    Errors: `SpecError` if the folder does not exist; `StoreError` that names damaged findings.
    """
    store = Store.of(store)
    path = Path(path) if path is not None else store.root / "browse.html"
    index = Index(store.root)
    entries = index.entries()
    newest = sorted(entries, key=lambda entry: entry.modified, reverse=True)[:MOST_CURVES]
    curves = index.curves(newest)
    return write_page(browser_page(store, entries, index, study_rows(store, path), curves, every), path)


def browser_page(
    store: Store,
    entries: Sequence[Entry],
    index: Index,
    studies: Sequence[StudyRow],
    curves: Mapping[str, bytes],
    every: int | None = None,
) -> str:
    """Return the page as text, with the curves of runs by address, as `Index.curves` returns them."""
    table = run_table(Fields(entries, lambda: index.ends(entries), lambda: studies_by_run(store.root)))
    order = [entries[at].address for at in table["order"]]
    packed = [b64encode(curves.get(address, b"")).decode() for address in order]
    shown = {"symbols": SYMBOLS, "studies": [_study_data(one) for one in studies]}
    data = {**table, **shown, "lengths": [len(one) for one in packed]}
    template = environment().get_template("browse.html.jinja")
    return template.render(
        title=f"Runs in {store.root.name}",
        every=every,
        count=len(entries),
        has_studies=bool(studies),
        data=Markup(script_json(data)),
        curves=Markup("".join(packed)),
        chart_script=Markup(_vendored("uPlot.iife.min.js")),
        chart_style=Markup(_vendored("uPlot.min.css")),
    )


def _study_data(row: StudyRow) -> dict[str, Any]:
    found = row.findings
    claims = [
        {
            "verdict": one.verdict,
            "statement": one.claim.statement,
            "source": one.claim.source,
            "paper": one.claim.paper,
            "value": value_text(one.value),
            "marks": list(one.marks.values()),
            "accepted": one.claim.band_text,
        }
        for one in found.claims
    ]
    about = {"title": found.title, "study": found.study, "profile": found.profile, "origin": found.provenance.line}
    return {**about, "page": row.page, "claims": claims}


def run_table(fields: Fields) -> dict[str, Any]:
    """Return the table of runs by columns, newest run first: every field in which runs differ, and their metrics.

    A column with few distinct values has each of them once in `values`, and each row's index into `values` in `of`; any
    other column has the values of all rows in `values`. `texts` are readable forms of `values`, if they differ from the
    values. `telling` are the fields that tell most runs apart.
    """
    entries = fields.entries
    order = sorted(range(len(entries)), key=lambda at: entries[at].modified, reverse=True)
    rows = [entries[at] for at in order]
    different = differences(rows)
    columns = [
        _column("run", [one.address for one in rows]),
        _column("label", [one.name for one in rows]),
        _column("differs", [words(different[one.address]) for one in rows]),
        *(_column(name, [_plain(fields.value(one, name)) for one in rows]) for name in ("trained", *_ALSO)),
    ]
    for path in fields.paths():
        values = [_plain(fields.value(one, path)) for one in rows]
        if path.startswith("metrics.") or len({json.dumps(one) for one in values}) > 1:
            columns.append(_column(path, values))
    named = Counter(path for found in different.values() for path in found)
    telling = [path for path in fields.paths() if path in dict(named.most_common(_TELLING))]
    return {"order": order, "columns": columns, "count": len(rows), "telling": telling}


def _column(name: str, values: Sequence[Any]) -> dict[str, Any]:
    kinds = {json.dumps(one): one for one in values}
    if len(kinds) > max(8, len(values) // 4) and all(isinstance(one, str | int | float | None) for one in values):
        return {"name": name, "values": list(values)}
    place = {text: at for at, text in enumerate(kinds)}
    found: dict[str, Any] = {"name": name, "values": list(kinds.values())}
    found["of"] = [place[json.dumps(one)] for one in values]
    if any(isinstance(one, list | dict | bool) for one in kinds.values()):
        found["texts"] = [text_of(one) for one in kinds.values()]
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, float):
        return float(f"{value:.6g}") if abs(value) < float("inf") else None
    return value


def study_rows(store: Store, path: Path) -> list[StudyRow]:
    """Return the studies in a store, for the browsing page in the file `path`. Errors: `StoreError`."""
    from anchorlab.studies import findings_directory, kept_findings

    rows = []
    for findings in kept_findings(store):
        page = findings_directory(store, findings.study, findings.profile) / "report.html"
        address = quote(relpath(page, path.absolute().parent)) if page.exists() else None
        rows.append(StudyRow(findings, address))
    return rows


@cache
def _vendored(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")
