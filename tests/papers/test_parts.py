"""Studies whose seeds are trained one by one: what their claims need stays in a part, without weights."""

from collections import Counter

import pytest

from anchorlab.engine import run
from anchorlab.runs import Store
from anchorlab.studies import run_study, study
from anchorlab.studies.parts import keep_part, seeds_with_parts
from anchorlab.studies.profile_names import part_name
from anchorlab.training import TrainedRun
from tests.documents import ROOT

STUDIES = [
    "anchor/identity",
    *(
        pytest.param(name, marks=pytest.mark.nightly)
        for name in (
            "anchor/frequency",
            "anchor/reading-comprehension",
            "anchor/structures",
            "truncation/feedforward-noise",
        )
    ),
]

PUBLISHED = Store(ROOT / "docs" / "gallery" / "paper-models")
LARGEST = 3_000_000  # bytes of the parts of one study


def published_parts() -> list[TrainedRun]:
    """The published runs that are kept without weights."""
    return [one for one in map(TrainedRun, PUBLISHED.runs()) if not one.has_weights]


def test_published_parts_are_whole_and_small():
    assert PUBLISHED.problems() == []
    sizes = Counter()
    for part in published_parts():
        sizes[part.experiment.task.name] += part.run.size
        assert len(part.experiment.members) == 1
        assert all(one["date"] and "host" not in one for one in part.run.made_by)
    assert max(sizes.values(), default=0) <= LARGEST, sizes


def test_published_parts_belong_to_a_papers_setting_of_today():
    """A part of a setting that has changed would be published no more, silently."""
    asked = {one.experiment.members.seeds[0] for one in published_parts()}
    known = {
        each.cell.address
        for name in ("anchor/frequency", "anchor/structures", "anchor/identity", "anchor/reading-comprehension")
        for profile, about in study(name).profiles.items()
        if about.paper
        for seed in asked
        for each in study(name).experiments_of(part_name(profile, [seed]))
    }
    assert {one.run.address for one in published_parts()} <= known


@pytest.mark.parametrize("name", STUDIES)
def test_claims_on_parts_are_those_on_weights(name, tmp_path):
    """Single members and members trained together differ by rounding: 1e-5 of a value in forty steps of float32."""
    one, parts = study(name), Store(tmp_path / "parts")
    seeds = sorted({seed for each in one.experiments_of("smoke") for seed in each.members.seeds})
    for seed in seeds:
        for found in run(one.experiments_of(part_name("smoke", [seed])), tmp_path / "runs", workers=1):
            keep_part(one, "smoke", found, parts.root)
    assert seeds_with_parts(one, "smoke", [parts]) == tuple(seeds)
    assert not list(parts.root.rglob("checkpoints"))
    whole = run_study(one, "smoke", tmp_path / "whole", workers=1, progress=False)
    light = run_study(one, "smoke", tmp_path / "light", workers=1, progress=False, parts=[parts])
    for with_weights, without in zip(whole.claims, light.claims, strict=True):
        assert without.value == pytest.approx(with_weights.value, rel=1e-5, abs=1e-5), without.claim.id
        assert without.units == pytest.approx(with_weights.units, rel=1e-5, abs=1e-5)
    table = zip(whole.tables[0].rows, light.tables[0].rows, strict=True)  # has values where no member learned
    for row, other in table:
        assert [one for one in other if one is not None] == pytest.approx(
            [one for one in row if one is not None], rel=1e-4
        )
