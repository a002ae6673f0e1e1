"""Studies whose seeds are trained one by one: what their claims need stays in a part, without weights."""

import pytest

from anchorlab.engine import run
from anchorlab.runs import Store
from anchorlab.studies import run_study, study
from anchorlab.studies.parts import keep_part, seeds_with_parts
from anchorlab.studies.profile_names import part_name

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
    assert any(one.value is not None for one in light.claims)
