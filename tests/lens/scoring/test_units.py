"""Scores of units by gradients, and the arguments that all methods share."""

from functools import partial
from itertools import product

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.interop import to_transformer_lens
from anchorlab.lens import Intervention, effects, patch_edges, patch_units, prune_edges, score_edges, score_units
from anchorlab.lens.effects.pairs import Pairs, logit_difference
from anchorlab.lens.scoring.comparison import Comparison
from anchorlab.models import LSTMSpec
from anchorlab.training.ensemble import initialise
from tests.lens.scoring import linear
from tests.lens.scoring.reference import BASE, FORMS, SHAPE, difference, drawn, pairs

PAIRS = pairs()
LINEAR = linear.CLEAN, linear.CORRUPTED, linear.RIGHT, linear.WRONG


@pytest.mark.parametrize(("baseline", "means"), [("zero", 0), ("mean", 1)])
def test_other_baselines_of_a_linear_model(baseline, means):
    """There a gradient is the whole change, whatever the number of steps; the means take a pass."""
    found, more = (score_units(linear.linear_members(), *LINEAR, baseline=baseline, steps=steps) for steps in (1, 3))
    for same in (more, patch_units(linear.linear_members(), *LINEAR, baseline=baseline)):
        torch.testing.assert_close(same.values, found.values, rtol=1e-5, atol=1e-5)
    assert (found.method, found.passes) == (f"attribution patching, {baseline}", (1 + means, 1))
    assert (more.method, more.passes) == (f"attribution patching, 3 steps, {baseline}", (3 + means, 3))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_a_mean_in_half_precision_is_rounded_once(kind):
    """Embeddings of 255 and, in the last of 700 sequences, of 60: float16 cannot hold their sum, bfloat16 no count."""
    ensemble = linear.linear_members()
    halved = ensemble.with_weights({name: value.to(kind) for name, value in ensemble.weights.items()})
    halved.weights["embed.W_E"][:] = torch.tensor([255.0, 60.0, 0.0, 0.0]).unsqueeze(-1)
    clean = torch.zeros(700, 2, dtype=torch.int64)
    clean[-1] = 1
    answers = torch.zeros(700, 1, dtype=torch.int64)
    pairs_of = Pairs.of(halved, clean, clean, answers, answers + 1, None, "clean")
    part = next(Comparison(pairs_of, None, 7, "mean").parts())
    expected = torch.tensor((699 * 255 + 60) / 700).to(kind)
    assert part.values["blocks.0.hook_resid_pre"].unique().tolist() == [expected]


@pytest.mark.parametrize("into", ["clean", "corrupted"])
@pytest.mark.parametrize("form", ["post", "pre", "rms", "no-residual"])
def test_patched_units_are_interventions_at_their_sites(form, into):
    ensemble = drawn(FORMS[form])
    clean, corrupted, *answers = PAIRS
    both = torch.stack(answers, dim=-1)
    read, other = (clean, corrupted) if into == "clean" else (corrupted, clean)
    for baseline, rule in (("pair", "patch"), ("mean", "mean"), ("zero", "zero")):
        found = patch_units(ensemble, *PAIRS, baseline=baseline, into=into)
        for site, over, units in (
            ("blocks.*.attn.hook_z", ("head",), ("0.0", "0.1", "1.0", "1.1")),
            ("blocks.*.hook_mlp_out", (), ("0.mlp", "1.mlp")),
        ):
            one = Intervention(site=site, rule=rule)
            swept = effects(ensemble, read, both, one, over, metrics={"difference": logit_difference},
                            patch_inputs=other)  # fmt: skip
            expected = swept.change("difference").flatten(1)
            torch.testing.assert_close(found.of(units), expected, rtol=0, atol=1e-9)
            assert expected.abs().min() > 1e-5
        assert found.passes == (len(found.units) + 1 + (baseline != "zero"), 0)
    assert found.method == "activation patching, zero"


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
            metric = partial(difference, right=right, wrong=wrong)
            theirs = analysis.attribution_patch(hooked, clean[[row]], corrupted[[row]], metric)
            for node, score in theirs.node_scores.items():
                unit = "embed" if node.kind == "embed" else f"{node.layer}.{'mlp' if node.head is None else node.head}"
                expected[unit] += score / len(clean)
        assert found.values[member].tolist() == pytest.approx([*expected.values()], abs=1e-4)
        assert min(map(abs, expected.values())) > 1e-3


# The arguments that all methods share: parts of the batch, own metrics and positions, and one-line errors.
METHODS = {
    "units": lambda *given, **options: score_units(*given, **options).values,
    "edges": lambda *given, **options: score_edges(*given, **options).edge_values,
    "patched": lambda *given, **options: patch_edges(*given, **options).edge_values,
    "patched units": lambda *given, **options: patch_units(*given, **options).values,
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


@pytest.mark.parametrize("baseline", ["pair", "mean", "zero"])
@pytest.mark.parametrize("method", ["units", "edges", "patched"])
def test_parts_of_the_batch_add_up(method, baseline):
    whole, parts = (METHODS[method](drawn(BASE), *pairs(), baseline=baseline, batch_size=size) for size in (None, 2))
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
    alone = []
    for row, at in product(range(2), range(2)):
        one = clean[[row]], corrupted[[row]], *(each[[row]] for each in answers)
        alone.append(METHODS[method](drawn(BASE, 1), *one, positions=places[row, [at]], metric=metric))
    torch.testing.assert_close(found, torch.stack(alone).mean(dim=0), rtol=0, atol=1e-12)
    assert torch.pdist(torch.cat(alone)).min() > 1e-3


def test_the_other_direction_is_the_first_with_both_exchanged():
    clean, corrupted, right, wrong = pairs()
    found = score_units(drawn(BASE), clean, corrupted, right, wrong, into="corrupted").values
    exchanged = -score_units(drawn(BASE), corrupted, clean, wrong, right).values  # the difference has the other sign
    torch.testing.assert_close(found, exchanged)


CLEAN, CORRUPTED, RIGHT, WRONG = pairs()


@pytest.mark.untyped  # values of other types than the annotations name
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clean": CLEAN[:2]}, r"^corrupted: have shape \(5, 6\), and the clean ones \(2, 6\); give one of the same"),
        ({"corrupted_answers": RIGHT},
         r"^corrupted_answers: equal the clean answers; corrupt what the answer rests on$"),
        ({"answers": None}, r"^answers: are missing; give tokens \[batch scored\], or a batch of a task$"),
        ({"baseline": "means"}, r"^baseline: unknown baseline 'means'; did you mean 'mean'\?$"),
        ({"batch_size": 0}, r"^batch_size: 0 is not a number of sequences; give at least 1$"),
        ({"metric": lambda output, both: output.argmax(dim=-1) == both[..., 0]},
         r"^metric: returns torch\.bool, which has no derivative; use a metric of real numbers$"),
        ({"metric": lambda output, both: logit_difference(output, both).mean()},
         r"^metric: returns shape \(\) for targets of shape \(5, 1, 2\); return one number for each scored position"),
        ({"model": initialise(LSTMSpec(width=8), SHAPE, [0])},
         r"^model: is of type \w+; give a transformer, such as a decoder, or a pretrained model$"),
    ],
)  # fmt: skip
def test_bad_arguments(method, change, message):
    given = {"model": drawn(BASE, 1), "clean": CLEAN, "corrupted": CORRUPTED, "answers": RIGHT}
    with pytest.raises(SpecError, match=message) as raised:
        METHODS[method](**{**given, "corrupted_answers": WRONG, **change})
    assert "\n" not in str(raised.value)


ACCURACY = lambda output, both: (output.argmax(dim=-1) == both[..., 0]).double()  # noqa: E731


def test_patching_needs_no_derivative():
    """Of five pairs, a unit's patch changes some whole number."""
    found = 5 * patch_units(drawn(BASE, 1), CLEAN, CORRUPTED, RIGHT, WRONG, metric=ACCURACY).values
    assert (found - found.round()).abs().max() < 1e-5


BAD = [
    *(
        (
            lambda *given, ask=ask: ask(*given, metric=ACCURACY),
            r"^metric: has no derivative by the outputs; use a differentiable function of them$",
        )
        for ask in (score_units, score_edges)
    ),
    (lambda *given: score_units(*given, steps=0), r"^steps: 0 are no path between two runs; give at least 1$"),
    (lambda *given: score_edges(*given, steps=-1), r"^steps: -1 are no path between two runs; give at least 1$"),
    (lambda *given: patch_edges(*given, edges=[]), r"^edges: are none; give some as sender and receiver, or"),
    (
        lambda *given: patch_edges(*given, edges=["embed → logits"]),
        r"^edges\.0: 'embed → logits' is no edge; give sender and receiver, \('embed', 'logits'\)$",
    ),
    *(
        (
            lambda model, *given, ask=ask, by=by: ask(model, *given[:2], given[2] + by, given[3]),
            r"^answers: hold -?\d+, a token outside 0\.\.10; give tokens that the model predicts$",
        )
        for ask in (score_units, score_edges, patch_units, patch_edges)
        for by in (11, -11)
    ),
    (lambda *given: prune_edges(*given, threshold=0), r"^threshold: 0 removes no edge; give a positive number$"),
]


@pytest.mark.untyped  # values of other types than the annotations name
@pytest.mark.parametrize(("ask", "message"), BAD)
def test_bad_numbers(ask, message):
    with pytest.raises(SpecError, match=message):
        ask(drawn(BASE, 1), *pairs())
