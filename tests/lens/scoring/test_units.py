"""Scores of units by gradients, and the arguments that all methods share."""

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.interop import to_transformer_lens
from anchorlab.lens import Intervention, look, patch, patch_edges, prune_edges, score_edges, score_units
from anchorlab.models import LSTMSpec
from anchorlab.training.ensemble import initialise
from tests.lens.scoring import linear
from tests.lens.scoring.reference import BASE, FORMS, SHAPE, difference, drawn, pairs

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
    assert score_units(linear.linear_members(), *LINEAR, steps=3).passes == (4, 3)


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
    ends = []
    for factor in (1 - 1e-4, 1 + 1e-4):
        scaled = Intervention(site="blocks.0.attn.hook_z", where={"head": 1}, rule="scale", operand=factor)
        output = look(ensemble, clean, interventions=scaled, positions=[clean.shape[1] - 1])["output"]
        both = torch.stack(answers, dim=-1).expand(2, -1, -1, -1)
        ends.append(loss(output, both).mean(dim=(1, 2)))
    slope = (ends[1] - ends[0]) / 2e-4
    torch.testing.assert_close(found.of(["0.1"])[:, 0], slope, rtol=1e-5, atol=1e-9)


# The arguments that all methods share: parts of the batch, own metrics and positions, and one-line errors.
METHODS = {
    "units": lambda *given, **options: score_units(*given, **options).values,
    "edges": lambda *given, **options: score_edges(*given, **options).edge_values,
    "patched": lambda *given, **options: patch_edges(*given, **options).edge_values,
    "pruned": lambda *given, **options: prune_edges(*given, threshold=0.02, **options).edge_values,
}


@pytest.mark.parametrize("method", METHODS)
def test_every_member_has_the_scores_that_it_has_alone(method):
    ensemble = drawn(BASE, members=3)
    together = METHODS[method](ensemble, *PAIRS, batch_size=2)
    assert torch.pdist(together).min() > 0.01
    for member in range(3):
        alone = METHODS[method](ensemble.select([member]), *PAIRS)
        torch.testing.assert_close(together[[member]], alone, rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", ["units", "edges", "patched"])
def test_parts_of_the_batch_add_up(method):
    whole, parts = (METHODS[method](drawn(BASE), *pairs(), batch_size=size) for size in (None, 2))
    torch.testing.assert_close(whole, parts, rtol=0, atol=1e-12)
    assert whole.abs().max() > 0.01


@pytest.mark.parametrize("method", ["units", "edges", "patched"])
def test_scored_positions_may_differ_between_sequences(method):
    """Two scored positions of a sequence weigh the same; each sequence alone gives the same mean."""
    clean, corrupted, *answers = pairs(2)
    both = [each.expand(-1, 2) for each in answers]
    places = torch.tensor([[1, 4], [5, 2]])
    metric = lambda output, asked: output.gather(-1, asked[..., :1]).squeeze(-1)  # noqa: E731
    found = METHODS[method](drawn(BASE, 1), clean, corrupted, *both, positions=places, metric=metric)
    alone = [
        METHODS[method](
            drawn(BASE, 1),
            clean[[row]],
            corrupted[[row]],
            *(each[[row]] for each in answers),
            positions=places[row, [at]],
            metric=metric,
        )
        for row in range(2)
        for at in range(2)
    ]
    torch.testing.assert_close(found, torch.stack(alone).mean(dim=0), rtol=0, atol=1e-12)
    assert torch.pdist(torch.cat(alone)).min() > 1e-3


def test_the_other_direction_is_the_first_with_both_exchanged():
    clean, corrupted, right, wrong = pairs()
    found = score_units(drawn(BASE), clean, corrupted, right, wrong, into="corrupted").values
    exchanged = -score_units(drawn(BASE), corrupted, clean, wrong, right).values  # the difference has the other sign
    torch.testing.assert_close(found, exchanged)


CLEAN, CORRUPTED, RIGHT, WRONG = pairs()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clean": CLEAN[:2]}, r"^corrupted: have shape \(5, 6\), and the clean ones \(2, 6\); give one of the same"),
        ({"corrupted_answers": RIGHT},
         r"^corrupted_answers: equal the clean answers; corrupt what the answer rests on$"),
        ({"answers": None}, r"^answers: are missing; give tokens \[batch scored\], or a batch of a task$"),
        ({"batch_size": 0}, r"^batch_size: 0 is not a number of sequences; give at least 1$"),
        ({"metric": lambda output, both: output.argmax(dim=-1) == both[..., 0]},
         r"^metric: returns torch\.bool, which has no derivative; use a metric of real numbers$"),
        ({"model": initialise(LSTMSpec(width=8), SHAPE, [0])},
         r"^model: is of type \w+; give a transformer, such as a decoder$"),
    ],
)  # fmt: skip
def test_bad_arguments(method, change, message):
    given = {"model": drawn(BASE, 1), "clean": CLEAN, "corrupted": CORRUPTED} | {
        "answers": RIGHT,
        "corrupted_answers": WRONG,
    }
    with pytest.raises(SpecError, match=message) as raised:
        METHODS[method](**(given | change))
    assert "\n" not in str(raised.value)


BAD = [
    (lambda *given: score_units(*given, steps=0), r"^steps: 0 are no path between two runs; give at least 1$"),
    (lambda *given: score_edges(*given, steps=-1), r"^steps: -1 are no path between two runs; give at least 1$"),
    (lambda *given: prune_edges(*given, threshold=0), r"^threshold: 0 removes no edge; give a positive number$"),
    (lambda *given: score_units(*given, steps=2, times="activation"),
     r"^steps: lead from one run to the other; use times='change', or one step$"),
    (lambda *given: score_units(*given, times="weights"),
     r"^times: 'weights' is no factor of a gradient; choose 'change' or 'activation'$"),
]  # fmt: skip


@pytest.mark.untyped  # one value is of another type than the annotation names
@pytest.mark.parametrize(("ask", "message"), BAD)
def test_bad_numbers(ask, message):
    with pytest.raises(SpecError, match=message):
        ask(drawn(BASE, 1), *pairs())
