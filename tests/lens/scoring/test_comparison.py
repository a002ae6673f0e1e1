"""The arguments that all methods share: parts of the batch, own metrics and positions, and one-line errors."""

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import patch_edges, prune_edges, score_edges, score_units
from anchorlab.models import LSTMSpec
from anchorlab.training.ensemble import initialise
from tests.lens.scoring.reference import BASE, SHAPE, drawn, pairs

METHODS = {
    "units": lambda *given, **options: score_units(*given, **options).values,
    "edges": lambda *given, **options: score_edges(*given, **options).edge_values,
    "patched": lambda *given, **options: patch_edges(*given, **options).edge_values,
    "pruned": lambda *given, **options: prune_edges(*given, threshold=0.02, **options).edge_values,
}


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
        (
            {"corrupted_answers": RIGHT},
            r"^corrupted_answers: equal the clean answers; corrupt what the answer rests on$",
        ),
        ({"answers": None}, r"^answers: are missing; give tokens \[batch scored\], or a batch of a task$"),
        ({"batch_size": 0}, r"^batch_size: 0 is not a number of sequences; give at least 1$"),
        (
            {"metric": lambda output, both: output.argmax(dim=-1) == both[..., 0]},
            r"^metric: returns torch\.bool, which has no derivative; use a metric of real numbers$",
        ),
        (
            {"model": initialise(LSTMSpec(width=8), SHAPE, [0])},
            r"^model: is of type \w+; give a transformer, such as a decoder$",
        ),
    ],
)
def test_bad_arguments(method, change, message):
    given = {"model": drawn(BASE, 1), "clean": CLEAN, "corrupted": CORRUPTED} | {
        "answers": RIGHT,
        "corrupted_answers": WRONG,
    }
    with pytest.raises(SpecError, match=message) as raised:
        METHODS[method](**(given | change))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda *given: score_units(*given, steps=0), r"^steps: 0 are no path between two runs; give at least 1$"),
        (lambda *given: score_edges(*given, steps=-1), r"^steps: -1 are no path between two runs; give at least 1$"),
        (lambda *given: prune_edges(*given, threshold=0), r"^threshold: 0 removes no edge; give a positive number$"),
        (
            lambda *given: score_units(*given, steps=2, times="activation"),
            r"^steps: lead from one run to the other; use times='change', or one step$",
        ),
    ],
)
def test_bad_numbers(ask, message):
    with pytest.raises(SpecError, match=message):
        ask(drawn(BASE, 1), *pairs())


@pytest.mark.untyped  # a value of another type than the annotation names
def test_bad_factor():
    with pytest.raises(
        SpecError, match=r"^times: 'weights' is no factor of a gradient; choose 'change' or 'activation'$"
    ):
        score_units(drawn(BASE, 1), *pairs(), times="weights")
