import subprocess
import sys

import polars
import pytest
import torch

from anchorlab.errors import SiteError
from anchorlab.lens import Intervention, detect, look

from .hand_built import identity_sequences, identity_solver, induction_circuit, stacked

PATTERNS = "blocks.*.attn.hook_pattern"


@pytest.fixture(scope="module")
def frame():
    inputs, anchors = identity_sequences()
    record = look(stacked(identity_solver(1), identity_solver(2)), inputs, record=[PATTERNS, "*.hook_attn_scores"])
    return detect(record, anchors=anchors, sources=anchors + 1)


def row(frame, **where):
    return frame.filter(**where).row(0, named=True)


def test_says_which_head_does_what(frame):
    for member, k in ((0, 1), (1, 2)):
        shift = row(frame, member=member, layer=0, head=0, detector="shift")
        assert (shift["offset"], shift["value"]) == (k, pytest.approx(1, abs=1e-3))
        broadcast = row(frame, member=member, layer=1, head=0, detector="broadcast_profile")
        assert (broadcast["offset"], broadcast["value"]) == (k, pytest.approx(1, abs=1e-3))
        anchor = row(frame, member=member, layer=1, head=1, detector="anchor_attending")
        assert anchor["value"] == pytest.approx(1, abs=1e-3)
        uniform = row(frame, member=member, layer=0, head=2, detector="uniform")
        assert uniform["value"] == pytest.approx(1, abs=1e-3)
    assert row(frame, member=0, layer=1, head=0, detector="broadcast")["value"] == pytest.approx(1, abs=1e-3)
    assert row(frame, member=1, layer=1, head=0, detector="broadcast")["value"] < 0.5


def test_one_row_each_and_all_within_zero_and_one(frame):
    detectors = ["shift", "previous_token", "uniform", "anchor_attending", "broadcast_profile", "broadcast"]
    assert frame.columns == ["member", "layer", "head", "detector", "offset", "value"]
    assert frame.height == 2 * 2 * 3 * len(detectors)  # no induction: no token occurs twice
    assert sorted(frame["detector"].unique()) == sorted(detectors)
    assert frame["value"].is_between(-1e-6, 1 + 1e-6).all()
    assert not frame.select("member", "layer", "head", "detector").is_duplicated().any()


def test_induction_where_tokens_recur():
    record = look(induction_circuit(), torch.tensor([[0, 5, 7, 9, 5, 7, 2, 5, 4]]), record=[PATTERNS])
    found = detect(record).filter(detector="induction").sort("value", descending=True)
    assert found.row(0, named=True)["value"] == pytest.approx(1, abs=1e-3)
    assert found.select("layer", "head").row(0) == (1, 0)


def test_candidates_have_their_own_column():
    inputs, _ = identity_sequences()
    mean = Intervention(site="blocks.0.attn.hook_pattern", where={"head": 0}, rule="replace", operand=1 / 9)
    record = look(identity_solver(), inputs, record=[PATTERNS], candidates={"full": [], "flat": [mean]})
    shifts = detect(record).filter(detector="previous_token", layer=0, head=0)
    assert dict(zip(shifts["candidate"], shifts["value"], strict=True)) == {
        "full": pytest.approx(1, abs=1e-3),
        "flat": pytest.approx(1 / 9, abs=1e-6),
    }
    assert isinstance(shifts, polars.DataFrame)


def test_record_without_patterns():
    with pytest.raises(SiteError, match=r"record a site such as 'blocks\.\*\.attn\.hook_pattern'"):
        detect(look(identity_solver(), identity_sequences()[0]))


def test_tables_and_figures_are_imported_late():
    code = (
        "import sys, anchorlab.lens; sys.exit(any(name in sys.modules for name in ('polars', 'matplotlib', 'sklearn')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
