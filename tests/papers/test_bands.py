"""The band of every claim, pinned: a loosened or shifted band fails here, whatever the measurements say.

`bands.json` has a line for each study. A claim has the lowest and the highest value that accept it, null where a side
is open, `exact` where derivation, enumeration or exact computation decides: outside its band it is contradicted; and
`theory` where a number checks a theorem that names no sizes.
"""

import json
from pathlib import Path

import pytest

from anchorlab.studies import STUDIES, study

BANDS = json.loads(Path(__file__).with_name("bands.json").read_text("utf-8"))


@pytest.mark.parametrize("name", STUDIES)
def test_bands(name):
    assert {
        one.name: [*one.band, *["exact"] * one.exact, *["theory"] * one.theory] for one in study(name).claims
    } == BANDS[name]


def test_every_study_is_here():
    assert list(BANDS) == list(STUDIES)


def test_only_paper_profiles_are_the_papers_setting():
    profiles = {profile for name in STUDIES for profile in study(name).profiles if study(name).profile(profile).paper}
    assert profiles <= {
        "paper",
        "paper-start",
        "paper-figure-6",
        "paper-none",
        "paper-claimed",
        "paper-600",
        "paper-text",
    }
