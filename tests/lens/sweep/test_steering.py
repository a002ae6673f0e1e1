"""Steering of the hand-built identity solver, whose stream is one-hot in blocks: what each direction does is known."""

import pytest
import torch

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import steer
from tests.lens.hand_built import ANCHOR, BROUGHT, PREDICTED, identity_sequences, identity_solver, stacked

INPUTS, ANCHORS = identity_sequences()
KEYS = INPUTS.gather(1, (ANCHORS + 1).unsqueeze(1))
STREAM = "blocks.*.hook_resid_post"


def coordinate(index):
    return torch.eye(PREDICTED.stop)[index]


def test_a_prediction_rises_in_a_straight_line():
    """Token 0 stands nowhere in some rows, and is the key in none: its logit is the multiple."""
    towards = torch.zeros_like(KEYS)
    rows = (KEYS != 0).squeeze(1)
    multiples = (-3, 0, 0.5, 2)
    found = steer(
        stacked(identity_solver(), identity_solver()),
        INPUTS[rows],
        towards[rows],
        coordinate(PREDICTED[0]),
        STREAM,
        multiples,
    )
    assert found.sites == ("blocks.0.hook_resid_post", "blocks.1.hook_resid_post")
    line = torch.tensor(multiples).double().expand(2, 2, 4)
    assert torch.allclose(found.curve("logit"), line, atol=1e-5)
    assert found.curve("accuracy")[0, 0].tolist() == [0, 0, 0, 1]
    other = line.exp() / (line.exp() + 10 + torch.e)
    assert torch.allclose(found.curve("probability"), other, atol=1e-5)


def test_a_mark_draws_the_attention_of_the_next_layer():
    """A mark like that after the anchor at position 0: as strong as the true one at 1, alone from 2 on."""
    there = INPUTS[:, :1]
    direction = coordinate(BROUGHT[ANCHOR])
    found = steer(
        identity_solver(), INPUTS, there, direction, "blocks.0.hook_resid_post", [0, 1, 2], where={"position": 0}
    )
    assert torch.allclose(found.curve("logit")[0, 0], torch.tensor([0, 0.5, 1]).double(), atol=1e-5)
    late = steer(identity_solver(), INPUTS, there, direction, "blocks.1.hook_resid_pre", [2], at={"position": ANCHORS})
    here = steer(
        identity_solver(),
        INPUTS,
        INPUTS.gather(1, ANCHORS.unsqueeze(1)),
        direction,
        "blocks.1.hook_resid_pre",
        [2],
        at={"position": ANCHORS},
    )
    assert late.curve("logit").item() == pytest.approx(0, abs=1e-5)
    assert here.curve("logit").item() == pytest.approx(1, abs=1e-5)


def test_each_member_has_its_own_direction():
    both = torch.stack([coordinate(PREDICTED[0]), 3 * coordinate(PREDICTED[0])])
    rows = (KEYS != 0).squeeze(1)
    found = steer(
        stacked(identity_solver(), identity_solver()),
        INPUTS[rows],
        0 * KEYS[rows],
        both,
        "blocks.1.hook_resid_post",
        [2],
    )
    assert torch.allclose(found.curve("logit").flatten(), torch.tensor([2.0, 6.0]).double(), atol=1e-5)


def test_random_directions_of_the_same_length_do_less():
    direction = 4 * coordinate(PREDICTED[0])
    found = steer(
        identity_solver(), INPUTS, 0 * KEYS, direction, "blocks.1.hook_resid_post", [0, 1], random_directions=20
    )
    logit = found.metrics.index("logit")
    moved = found.random[:, logit, 0, 0, 1] - found.random[:, logit, 0, 0, 0]
    assert found.random.shape == (20, 3, 1, 1, 2)
    assert moved.std().item() == pytest.approx(4 / PREDICTED.stop**0.5, rel=0.5)  # one of that many coordinates
    assert moved.abs().max() < 4 * 0.6
    assert torch.allclose(found.random[:, logit, 0, 0, 0], found.curve("logit")[0, 0, 0].expand(20))


def test_table():
    found = steer(identity_solver(), INPUTS, KEYS, coordinate(0), multiples=[1, -1], random_directions=0)
    table = found.table
    assert table.columns == ["metric", "member", "site", "layer", "multiple", "value", "random"]
    assert table.row(3)[:5] == ("accuracy", 0, "blocks.1.hook_resid_post", 1, -1.0)
    assert table["random"].null_count() == table.height == 12


def test_errors_name_the_remedy():
    model = identity_solver()
    with pytest.raises(SpecError, match=r"direction: has shape \(3,\), .* give \[45\], or \[1, 45\]"):
        steer(model, INPUTS, KEYS, torch.ones(3))
    with pytest.raises(SpecError, match="direction: has length 0"):
        steer(model, INPUTS, KEYS, torch.zeros(PREDICTED.stop))
    with pytest.raises(SpecError, match="multiples: are none"):
        steer(model, INPUTS, KEYS, coordinate(0), multiples=[])
    with pytest.raises(SpecError, match="targets: have shape"):
        steer(model, INPUTS, KEYS[:2], coordinate(0))
    with pytest.raises(SiteError, match="did you mean"):
        steer(model, INPUTS, KEYS, coordinate(0), "blocks.0.hook_resid_pots")
