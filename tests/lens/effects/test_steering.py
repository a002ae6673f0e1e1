"""Steering of the hand-built identity solver, whose stream is one-hot in blocks: what each direction does is known."""

import pytest
import torch

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import steer
from tests.lens.hand_built import ANCHOR, ANCHORS, BROUGHT, INPUTS, KEYS, PREDICTED, identity_solver, stacked

STREAM, LAST = "blocks.*.hook_resid_post", "blocks.1.hook_resid_post"
ROWS = (KEYS != 0).squeeze(1)
"""The sequences whose key is not token 0."""


def coordinate(index):
    return torch.eye(PREDICTED.stop)[index]


def test_a_prediction_rises_in_a_straight_line():
    """Token 0 stands nowhere in some rows, and is the key in none: its logit is the multiple."""
    multiples, both = (-3, 0, 0.5, 2), stacked(identity_solver(), identity_solver())
    found = steer(both, INPUTS[ROWS], 0 * KEYS[ROWS], coordinate(PREDICTED[0]), STREAM, multiples)
    assert found.sites == ("blocks.0.hook_resid_post", "blocks.1.hook_resid_post")
    line = torch.tensor(multiples).double().expand(2, 2, 4)
    assert torch.allclose(found.curve("logit"), line, atol=1e-5)
    assert found.curve("accuracy")[0, 0].tolist() == [0, 0, 0, 1]
    other = line.exp() / (line.exp() + 10 + torch.e)
    assert torch.allclose(found.curve("probability"), other, atol=1e-5)


def test_a_mark_draws_the_attention_of_the_next_layer():
    """A mark like that after the anchor at position 0: as strong as the true one at 1, alone from 2 on."""
    model, there, direction = identity_solver(), INPUTS[:, :1], coordinate(BROUGHT[ANCHOR])
    found = steer(model, INPUTS, there, direction, "blocks.0.hook_resid_post", [0, 1, 2], where={"position": 0})
    assert torch.allclose(found.curve("logit")[0, 0], torch.tensor([0, 0.5, 1]).double(), atol=1e-5)
    for targets, logit in ((there, 0), (INPUTS.gather(1, ANCHORS.unsqueeze(1)), 1)):
        late = steer(model, INPUTS, targets, direction, "blocks.1.hook_resid_pre", [2], at={"position": ANCHORS})
        assert late.curve("logit").item() == pytest.approx(logit, abs=1e-5)


def test_each_member_has_its_own_direction():
    both = stacked(identity_solver(), identity_solver())
    each = torch.stack([coordinate(PREDICTED[0]), 3 * coordinate(PREDICTED[0])])
    found = steer(both, INPUTS[ROWS], 0 * KEYS[ROWS], each, LAST, [2])
    assert torch.allclose(found.curve("logit").flatten(), torch.tensor([2.0, 6.0]).double(), atol=1e-5)


def test_random_directions_of_the_same_length_do_less():
    direction = 4 * coordinate(PREDICTED[0])
    found = steer(identity_solver(), INPUTS, 0 * KEYS, direction, LAST, [0, 1], random_directions=20)
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


@pytest.mark.parametrize(
    ("targets", "direction", "options", "error", "message"),
    [
        (KEYS, torch.ones(3), {}, SpecError, r"direction: has shape \(3,\), .* give \[45\], or \[1, 45\]"),
        (KEYS, torch.zeros(PREDICTED.stop), {}, SpecError, "direction: has length 0"),
        (KEYS, coordinate(0), {"multiples": []}, SpecError, "multiples: are none"),
        (KEYS[:2], coordinate(0), {}, SpecError, "targets: have shape"),
        (KEYS, coordinate(0), {"site": "blocks.0.hook_resid_pots"}, SiteError, "did you mean"),
    ],
)
def test_errors_name_the_remedy(targets, direction, options, error, message):
    with pytest.raises(error, match=message):
        steer(identity_solver(), INPUTS, targets, direction, **options)
