"""Scores of units by gradients: closed forms, and TransformerLens's attribution patching."""

import pytest
import torch

from anchorlab.interop import to_transformer_lens
from anchorlab.lens import look, patch, score_units
from tests.lens.scoring import linear
from tests.lens.scoring.reference import BASE, FORMS, difference, drawn, pairs

PAIRS = pairs()
LINEAR = linear.CLEAN, linear.CORRUPTED, linear.RIGHT, linear.WRONG


def test_is_exact_on_a_linear_model():
    found = score_units(linear.linear_members(), *LINEAR)
    assert found.units == ("embed", "0.0", "1.0")
    real = patch(linear.linear_members(), *LINEAR, over="head", into="clean")
    for member, effects in enumerate(linear.effects()):
        for place, unit in enumerate(found.units):
            expected = sum(value for edge, value in effects.items() if edge.startswith(f"{unit} "))
            assert found.values[member, place].item() == pytest.approx(expected, abs=1e-5)
    changes = real.difference[:, :, 0] - real.clean[:, None]
    torch.testing.assert_close(found.values[:, 1:], changes, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.values[:, 0], real.corrupted - real.clean, rtol=0, atol=1e-5)


def test_gradient_times_activation_of_a_linear_model():
    """The logit difference is linear in each unit's output, without a constant: 0 without it, less by its product.

    embed carries everything; head 0 a mean, to the logits and through head 1; head 1 b (1 + a) mean.
    """
    found = score_units(linear.linear_members(), *LINEAR, times="activation")
    for member, (a, b) in enumerate(linear.GAINS):
        expected = torch.zeros(3)
        for row in range(2):
            read = linear.OUTPUT[:, linear.RIGHT[row, 0]] - linear.OUTPUT[:, linear.WRONG[row, 0]]
            x = linear.EMBEDDINGS[linear.CLEAN[row]]
            last, mean = float(x[1] @ read) / 2, float(x.mean(dim=0) @ read) / 2
            expected += torch.tensor([last + (a + b + a * b) * mean, a * (1 + b) * mean, b * (1 + a) * mean])
        torch.testing.assert_close(found.values[member].float(), expected)
    assert found.passes == (1, 1)
    assert (found.values - score_units(linear.linear_members(), *LINEAR).values).abs().min() > 0.1


@pytest.mark.parametrize("form", ["post", "no-norm"])
def test_equals_the_attribution_patching_of_transformer_lens(form):
    analysis = pytest.importorskip("transformer_lens.tools.analysis")
    ensemble = drawn(FORMS[form])
    clean, corrupted, *answers = pairs()
    found = score_units(ensemble, clean, corrupted, *answers, into="corrupted")  # their direction
    for member in range(2):
        hooked = to_transformer_lens(ensemble, member)
        expected = dict.fromkeys(found.units, 0.0)
        for row in range(len(clean)):
            right, wrong = (each[[row]] for each in answers)
            theirs = analysis.attribution_patch(
                hooked,
                clean[[row]],
                corrupted[[row]],
                lambda logits: difference(logits, right, wrong),  # noqa: B023
            )
            for node, score in theirs.node_scores.items():
                unit = "embed" if node.kind == "embed" else f"{node.layer}.{'mlp' if node.head is None else node.head}"
                expected[unit] += score / len(clean)
        assert found.values[member].tolist() == pytest.approx([*expected.values()], abs=1e-4)
        assert min(map(abs, expected.values())) > 1e-3


def test_gradients_are_slopes_of_the_metric():
    """Against a run in which one head is a little larger, for a metric of one's own."""
    ensemble = drawn(FORMS["rms"])
    clean, corrupted, *answers = PAIRS

    def loss(output, both):
        return -output.log_softmax(dim=-1).gather(-1, both[..., :1]).squeeze(-1)

    found = score_units(ensemble, clean, corrupted, *answers, times="activation", metric=loss)
    from anchorlab.lens import Intervention

    ends = []
    for factor in (1 - 1e-4, 1 + 1e-4):
        scaled = Intervention(site="blocks.0.attn.hook_z", where={"head": 1}, rule="scale", operand=factor)
        output = look(ensemble, clean, interventions=scaled, positions=[clean.shape[1] - 1])["output"]
        both = torch.stack(answers, dim=-1).expand(2, -1, -1, -1)
        ends.append(loss(output, both).mean(dim=(1, 2)))
    slope = (ends[1] - ends[0]) / 2e-4
    torch.testing.assert_close(found.of(["0.1"])[:, 0], slope, rtol=1e-5, atol=1e-9)


def test_every_member_has_the_scores_that_it_has_alone():
    ensemble = drawn(BASE, members=3)
    together = score_units(ensemble, *PAIRS, steps=2).values
    assert torch.pdist(together).min() > 0.01
    for member in range(3):
        alone = score_units(ensemble.select([member]), *PAIRS, steps=2).values
        torch.testing.assert_close(together[[member]], alone, rtol=0, atol=1e-12)
    assert score_units(ensemble, *PAIRS, steps=3).passes == (4, 3)
