"""The table of every claim, made from the results that the package ships; `_static/claims.js` filters its rows."""

from html import escape

from anchorlab.findings import ClaimResult
from anchorlab.papers.published import published_entries
from anchorlab.report.page import value_text

PAPERS = {
    "anchor": "anchor functions",
    "truncation": "truncated weights",
    "retrieval": "stacked attention heads",
}
APART = "other works and our own questions"
SCOPES = {
    "paper": "the paper's own setting",
    "exact": "exact",
    "theory": "numerical check of a theorem",
    "other": "small scale",
    "own": "our own question",
}
HEAD = ("claim", "paper says", "accepted", "ours", "verdict", "study")


def claims_page() -> str:
    """Return the table as HTML within Markdown; every row has its claim's id, for links."""
    rows = [_row(entry.study, entry.strongest) for entry in published_entries().values()]
    head = "".join(f"<th>{one}</th>" for one in HEAD)
    table = (
        f'<table id="claims" class="docutils"><thead><tr>{head}</tr></thead><tbody>\n{"".join(rows)}</tbody></table>'
    )
    return f'```{{raw}} html\n<form id="claims-filter" hidden></form>\n<p id="claims-count"></p>\n{table}\n```\n'


def paper_of(study: str, result: ClaimResult) -> str:
    """Return the paper that a claim is from, by its source, or by the study where the source names a section alone."""
    if result.apart:
        return APART
    named = (paper for paper in PAPERS.values() if result.claim.source.startswith(paper))
    return next(named, PAPERS.get(study.partition("/")[0], APART))


def _row(study: str, result: ClaimResult) -> str:
    claim = result.claim
    ours = value_text(result.value) + (f" ({result.interval_text})" if result.interval_text else "")
    page = f"studies/{study.partition('/')[2].replace('-', '_')}.html"
    cells = (f"{claim.statement} ({claim.source})", claim.paper, claim.band_text, ours, result.verdict_text)
    kept = {"paper": paper_of(study, result), "verdict": result.verdict, "scope": SCOPES[result.scope]}
    data = "".join(f' data-{name}="{escape(value)}"' for name, value in kept.items())
    name = claim.id.replace("/", "-")
    shown = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    link = f'<td><a href="{page}">{study}</a> <a href="#{name}" title="Link to this claim">¶</a></td>'
    return f'<tr id="{name}"{data}>{shown}{link}</tr>\n'
