"""Controls: norms by hand, draws that repeat, and the scores of another member."""

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import other_members, random_scores, score_edges, weight_norms
from anchorlab.models import FNNSpec, RecallSpec
from anchorlab.training.ensemble import initialise
from tests.lens.scoring import linear
from tests.lens.scoring.reference import BASE, FORMS, SHAPE, drawn


def test_norms_of_weights_that_are_counts():
    """Every weight 2 and every bias 3 of one head, 1 elsewhere: the norms are roots of counts."""
    spec = FORMS["post-with-biases"]  # 2 heads of 6, width 8, hidden 9
    ensemble = drawn(spec)
    ones = {name: torch.ones_like(value) for name, value in ensemble.weights.items()}
    for role in "QKV":
        ones[f"blocks.1.attn.W_{role}"][1, :, 6:] = 2
        ones[f"blocks.1.attn.b_{role}"][1, 6:] = 3
    ones["blocks.1.attn.W_O"][1, 6:] = 2
    found = weight_norms(ensemble.with_weights(ones))
    plain, head = 4 * 8 * 6 + 3 * 6, 4 * 4 * 8 * 6 + 9 * 3 * 6
    perceptron = 2 * 8 * 9 + 9 + 8
    squares = torch.tensor([8 * 11 + 8 * 6, plain, plain, perceptron, plain, plain, perceptron]).repeat(2, 1)
    squares[1, 5] = head
    assert found.units == ("embed", "0.0", "0.1", "0.mlp", "1.0", "1.1", "1.mlp")
    torch.testing.assert_close(found.values.square(), squares.double())
    assert found.passes == (0, 0)


def test_norms_of_merged_weights():
    ensemble = initialise(RecallSpec(width=8), SHAPE, [0])
    ones = ensemble.with_weights({name: torch.ones_like(value) for name, value in ensemble.weights.items()})
    assert weight_norms(ones).of(["0.0"]).item() ** 2 == pytest.approx(2 * 64)


def test_random_scores_repeat_and_differ():
    ensemble = drawn(BASE, members=3)
    found = random_scores(ensemble).values
    assert found.shape == (3, 7) and torch.pdist(found).min() > 0.1
    assert torch.equal(found, random_scores(ensemble).values)
    assert torch.equal(found[:2], random_scores(ensemble.select([0, 1])).values)  # whoever the neighbours are
    assert (found - random_scores(ensemble, seed=1).values).abs().min() > 1e-4
    many = torch.cat([random_scores(ensemble, seed=seed).values.flatten() for seed in range(100)])
    assert many.mean().item() == pytest.approx(0.5, abs=0.03)  # 2100 draws: 5 standard errors


def test_other_members_hand_on_their_scores():
    found = score_edges(linear.linear_members(), linear.CLEAN, linear.CORRUPTED, linear.RIGHT, linear.WRONG)
    other = other_members(found)
    assert torch.equal(other.values, found.values[[1, 0]]) and torch.equal(other.edge_values, found.edge_values[[1, 0]])
    assert other.method == "edge attribution patching of another member"
    three = other_members(random_scores(drawn(BASE, members=3)))
    assert torch.equal(three.values, random_scores(drawn(BASE, members=3)).values[[2, 0, 1]])


@pytest.mark.parametrize("control", [weight_norms, random_scores])
def test_other_models_are_refused(control):
    model = initialise(FNNSpec(width=8), SHAPE, [0])
    with pytest.raises(SpecError, match=r"^model: is of type \w+; give a transformer, such as a decoder$"):
        control(model)


def test_a_single_member_has_no_other():
    with pytest.raises(SpecError, match=r"^scores: are of a single member; give scores of at least two$"):
        other_members(random_scores(drawn(BASE, members=1)))
