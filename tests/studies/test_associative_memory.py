"""The associative memory study's verdicts on hand-made losses."""

import pytest
import torch

from anchorlab.runs import Store
from anchorlab.studies import run_study, study
from anchorlab.studies.truncation.associative_memory import WIDTHS, judge


def made_up(second, third=0.031):
    """Five runs of one width: the full matrix at 0.03, rank 3 at `third`, rank 2 at `second`."""
    losses = {"none": torch.full((5,), 0.03), "rank 3": torch.full((5,), third), "rank 2": torch.tensor(second)}
    return {**losses, "rank 1": torch.ones(5), "rank 4": losses["none"]}


def test_verdicts_by_hand():
    wide = made_up([0.001, 0.002, 0.002, 0.002, 0.004])
    narrow = made_up([0.0005, 0.001, 0.004, 0.016, 0.3])
    found = {one.claim.id.rpartition("/")[2]: one for one in judge([wide, narrow], "quick")}
    values = {name: one.value for name, one in found.items()}
    assert values["full-loss"] == pytest.approx(0.03)
    assert values["rank-two-12"] == pytest.approx(0.002 / 0.03)
    assert values["rank-two-8"] == pytest.approx(0.004 / 0.03)
    assert values["rank-two-likely"] == pytest.approx(0.9)
    assert found["rank-two-likely"].detail == "9 of 10 runs"
    assert values["rank-three-full"] == pytest.approx(1 / 30, rel=1e-3)
    assert values["wider-steadier"] == pytest.approx(0.0, abs=1e-6)  # quartiles 0.002 and 0.002, 0.001 and 0.016
    reproduced = {name for name, one in found.items() if one.verdict == "reproduced"}
    assert reproduced == {"full-loss", "rank-two-12", "rank-two-likely", "rank-three-full", "wider-steadier"}


def test_steadiness_is_the_ratio_of_logarithmic_quartiles():
    wide, narrow = made_up([0.001, 0.001, 0.002, 0.002, 0.002]), made_up([0.001, 0.001, 0.002, 0.008, 0.008])
    assert judge([wide, narrow], "quick")[-1].value == pytest.approx(1 / 3, rel=1e-5)
    same = judge([narrow, narrow], "quick")[-1]
    assert same.value == pytest.approx(1.0)
    assert "resamplings" in same.detail


def test_a_short_run_is_analysed(tmp_path):
    findings = run_study(study("truncation/associative-memory"), "smoke", Store(tmp_path), workers=1)
    assert [figure.title.partition("d = ")[2].split()[0] for figure in findings.figures] == [
        f"{width}" for width in WIDTHS
    ]
    for figure in findings.figures:
        assert [line.label for line in figure.lines] == ["full matrix", "rank 1", "rank 2", "rank 3", "rank 4"]
        for line in figure.lines:
            assert all(low <= middle <= high for low, middle, high in zip(line.low, line.mean, line.high, strict=True))
            assert line.x[-1] == pytest.approx(20.0 * 12)
    assert all(one.value is not None for one in findings.claims)
