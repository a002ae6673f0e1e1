"""The table of what the papers describe: its claims and names exist, and it says how strong their evidence is."""

import re
from importlib import import_module

import pytest

from anchorlab.papers.published import published_entries
from anchorlab.studies import STUDIES, study
from tests.documents import DOCS

CLAIMS = re.compile(r"\[`(?P<study>[\w/-]+)`\]\((?P<page>[\w/.]+)\): (?P<names>`[\w-]+`(?:, `[\w-]+`)*)")
NAME = re.compile(r"`(anchorlab(?:\.\w+)+)`")
SCOPES = {
    "paper": "the paper's setting",
    "exact": "exact",
    "theory": "theory",
    "other": "small scale",
    "own": "our question",
}
ORDER = [*SCOPES.values(), "not measured"]
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split(" | "))
    for line in (DOCS / "coverage.md").read_text("utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| item |")
]


def claims_in(where: str) -> list[str]:
    """The ids of the claims that a cell names; each study is linked to its own page."""
    found = []
    for match in CLAIMS.finditer(where):
        assert match["page"] == f"studies/{match['study'].partition('/')[2].replace('-', '_')}.md"
        found += [f"{match['study']}/{name}" for name in re.findall(r"[\w-]+", match["names"])]
    return found


def evidence(claim: str) -> str:
    """How strong the strongest published value of a claim is, in the table's words."""
    entry = published_entries().get(claim)
    return "not measured" if entry is None or entry.strongest.value is None else SCOPES[entry.strongest.scope]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_a_row_says_where_an_item_is_and_on_what_scale(row):
    item, where, shown = row
    claims, names = claims_in(where), NAME.findall(where)
    if claims:
        kinds = {evidence(claim) for claim in claims}
        assert shown == ", ".join(kind for kind in ORDER if kind in kinds)
    else:
        assert shown == ("code" if names or where.startswith("[") else "missing")
    for name in names:
        path, _, last = name.rpartition(".")
        assert hasattr(import_module(path), last), item


def test_every_claim_of_the_papers_is_in_the_table():
    named = [claim for _, where, _ in ROWS for claim in claims_in(where)]
    papers = {
        f"{name}/{one.name}"
        for name in STUDIES
        for one in study(name).claims
        if name.partition("/")[0] not in ("classics", "truth") and not one.own and not one.precondition
    }
    assert papers - set(named) == set()
    known = {f"{name}/{one.name}" for name in STUDIES for one in study(name).claims}
    assert set(named) - known == set()
