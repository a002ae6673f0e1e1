"""The published results of the studies: their claims with our values, as the package ships them."""

from functools import cache
from importlib.resources import files

from pydantic import TypeAdapter

from anchorlab.findings import Findings, ledger
from anchorlab.findings.ledger import LedgerEntry

FILE = "published.json"
"""The file in this folder that `docs/gallery/build.py` writes: findings without their figures and tables."""


@cache
def published() -> tuple[Findings, ...]:
    """Return the findings of every study and profile as judged at publication, without figures and tables."""
    return TypeAdapter(tuple[Findings, ...]).validate_json(files("anchorlab.papers").joinpath(FILE).read_bytes())


@cache
def published_entries() -> dict[str, LedgerEntry]:
    """Return the published evidence for every claim, strongest first, by the claim's id."""
    return {entry.claim.id: entry for entry in ledger(published())}
