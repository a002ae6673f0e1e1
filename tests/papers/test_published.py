"""The claims that the package ships are those of the gallery."""

import json
from dataclasses import replace
from pathlib import Path

from anchorlab.findings import Findings
from anchorlab.papers.published import published, published_entries

GALLERY = Path(__file__).parents[2] / "docs" / "gallery"


def test_the_package_ships_what_the_gallery_shows():
    shown = [Findings.from_json(path.read_bytes()) for path in GALLERY.glob("*/findings.json")]
    bare = {(one.study, one.profile): replace(one, figures=(), tables=(), views=()) for one in shown}
    assert {(one.study, one.profile): one for one in published()} == bare


def test_entries_are_found_by_the_id_of_their_claim():
    path = GALLERY / "truncation-associative-memory-paper" / "findings.json"
    claim = next(one for one in json.loads(path.read_text())["claims"] if one["scope"] == "paper")
    strongest = published_entries()[claim["claim"]["id"]].strongest
    assert (strongest.scope, strongest.value, strongest.profile) == ("paper", claim["value"], "paper")
