"""How alike heads and neurons are, on patterns, layers and models made by hand."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import one_hot

from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor import condensation
from anchorlab.training.ensemble import Ensemble
from tests.papers.hand_made_models import ANCHOR, IS_ANCHOR, LENGTH, SHARP, blank
from tests.papers.hand_made_runs import results_of, run_ending, seen_by_hand, values_of

MIDDLE = 0.65


def test_heads_beyond_even_attention_and_the_typical_member():
    anchors = torch.tensor([2, 3, 4, 5])
    from_key = one_hot(anchors + 1, 9).float().unsqueeze(1).repeat(1, 9, 1)
    from_anchor = one_hot(anchors, 9).float().unsqueeze(1).repeat(1, 9, 1)
    even = torch.full((4, 9, 9), 1 / 9)
    heads = torch.stack([from_key, from_key, from_anchor, 0.1 * from_key + 0.9 * even], dim=1)
    # The third broadcasts from elsewhere; the fourth looks at the key most, with a fifth of its attention.
    assert condensation.share_broadcasting(heads[None], anchors).tolist() == [pytest.approx(0.5)]
    assert condensation.share_broadcasting(heads[None, :, :2], anchors).tolist() == [1.0]
    even = torch.tensor([[1.0, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]])
    assert condensation.beyond_even(even[None]).abs().max() < 1e-7
    assert condensation.beyond_even(torch.eye(3))[2].tolist() == pytest.approx([-1 / 3, -1 / 3, 2 / 3])
    values = torch.tensor([0.9, 0.1, 0.5, 0.6])
    assert condensation.typical(values, torch.tensor([True, True, False, True])) == 3
    assert condensation.typical(values, torch.zeros(4, dtype=torch.bool)) == 2  # of an even number the lower


def layer(starts=(condensation.LARGE, MIDDLE, condensation.SMALL), **changes) -> condensation.Layer:
    """Three γ with two seeds each; the first member did not learn."""
    values = {
        "accuracy": [[0.89, 1.0], [0.0, 0.0], [0.95, 0.97]], "alike": [[9, 0.7], [9, 9], [0.9, 0.95]],
        "alike_untrained": [[9, 9]] * 3, "broadcasting": [[9, 9]] * 3, "neurons": [[9, 0.3], [9, 9], [0.3, 0.5]],
        "neurons_untrained": [[9, 9]] * 3,
    }  # fmt: skip
    return condensation.Layer(starts, **{name: torch.tensor(one).float() for name, one in (values | changes).items()})


def papers(**changes) -> condensation.Layer:
    """Three seeds at PyTorch's initialisation; the first did not learn."""
    values = {
        "accuracy": [[0.89, 0.98, 1.0]], "alike": [[0.0, 0.9, 0.8]], "alike_untrained": [[9, 9, 9]],
        "broadcasting": [[0.0, 1.0, 0.75]], "neurons": [[9, 9, 9]], "neurons_untrained": [[9, 9, 9]],
    }  # fmt: skip
    return layer((condensation.PAPERS,), **(values | changes))


def seen(of_papers: condensation.Layer | None = None, **at_rates: condensation.Layer) -> condensation.Seen:
    layers = {condensation.MANY: layer()} | {int(heads[1:]): one for heads, one in at_rates.items()}
    return seen_by_hand(condensation.Seen, layers={condensation.PAPERS: of_papers or papers(), **layers})


def test_values_of_layers_made_by_hand_have_the_preconditions_of_their_models():
    wrong = layer(alike=[[0.0, 0.0]] * 3, neurons=[[0.0, 0.0]] * 3)
    found = seen(_2=wrong)
    expected = {"learned": (0.89 + 0.98 + 1.0) / 3, "learned-at-rates": (0.89 + 1.0 + 0.95 + 0.97) / 4}
    expected |= {"heads-alike": 0.85, "all-broadcast": 0.875}  # of the two seeds that learned
    expected |= {"neurons-with-gamma": 0.1, "heads-with-gamma": 0.925 - 0.7}
    assert values_of(condensation.STUDY, found) == pytest.approx(expected)
    needed = {
        one.name: [other.name for other in condensation.STUDY.statements.claims if other.required_by(one)]
        for one in condensation.STUDY.statements.claims
        if not one.claim.precondition
    }
    assert needed == {
        "heads-alike": ["learned"], "all-broadcast": ["learned"], "neurons-with-gamma": ["learned-at-rates"],
        "heads-with-gamma": ["learned-at-rates"],
    }  # fmt: skip


def test_heads_are_judged_at_the_papers_own_initialisation_alone_and_seeds_over_both_rates():
    # at both rates γ heads are alike and broadcast; at PyTorch's initialisation they are not, and do not
    apart = papers(alike=[[0.9, 0.5, 0.3]], broadcasting=[[1.0, 0.5, 0.25]])
    alike = layer(alike=[[1.0, 1.0]] * 3, broadcasting=[[1.0, 1.0]] * 3)
    found = results_of(condensation.STUDY, seen(apart, _12=alike))
    assert found["heads-alike"].units == pytest.approx((0.5, 0.3))
    assert found["all-broadcast"].units == pytest.approx((0.5, 0.25))
    found = results_of(condensation.STUDY, seen())
    assert found["learned-at-rates"].units == pytest.approx(((0.89 + 0.95) / 2, (1.0 + 0.97) / 2))
    assert found["heads-with-gamma"].units == pytest.approx((0.25,))  # of the seed that learned at both


def test_what_was_not_trained_or_not_learned_is_not_judged_and_no_rate_is_the_papers():
    of_rates = {"learned-at-rates", "neurons-with-gamma", "heads-with-gamma"}
    for at_rates in ({4: layer()}, {condensation.MANY: layer((0.3, MIDDLE, condensation.SMALL))}):
        found = values_of(
            condensation.STUDY, seen_by_hand(condensation.Seen, layers={condensation.PAPERS: papers(), **at_rates})
        )
        assert {name for name, value in found.items() if value is None} == of_rates
    one_sided = values_of(condensation.STUDY, seen(_12=layer(accuracy=[[0.5, 0.5], [1.0, 1.0], [0.95, 0.97]])))
    assert one_sided["learned-at-rates"] == pytest.approx((0.5 + 0.5 + 0.95 + 0.97) / 4)
    assert one_sided["neurons-with-gamma"] is None and one_sided["heads-with-gamma"] is None
    nothing = values_of(condensation.STUDY, seen(papers(accuracy=[[0.5, 0.6, 0.7]])))
    assert nothing["heads-alike"] is None and nothing["all-broadcast"] is None
    assert not any(
        condensation.STUDY.profile(name).is_papers_setting(one.name)
        for name in condensation.STUDY.profiles
        for one in condensation.STUDY.claims
    )


def made(*alike: bool) -> Ensemble:
    """Two layers of twelve heads. In a member that is alike, all heads of layer 1 read the anchor and its neurons are
    one; in another, half of the heads read their own position and half the one before, and its neurons are orthogonal.
    Layer 0 is the other way round."""
    spec = DecoderSpec(layers=2, heads=condensation.MANY, width=IS_ANCHOR + 1, head_width=LENGTH, layer_norm=False)
    ensemble = blank(spec, "anchor/identity", len(alike))
    weights = ensemble.weights
    weights["pos_embed.W_pos"][:, :, :LENGTH] = torch.eye(LENGTH)
    weights["embed.W_E"][:, ANCHOR, IS_ANCHOR] = 1
    for member, same in enumerate(alike):
        for block in range(2):
            reads_anchor = same if block else not same
            for head in range(condensation.MANY):
                columns = slice(head * LENGTH, (head + 1) * LENGTH)
                query, key = (weights[f"blocks.{block}.attn.W_{name}"][member][:, columns] for name in "QK")
                if reads_anchor:
                    query[:LENGTH, 0], key[IS_ANCHOR, 0] = SHARP, 1
                else:
                    query[:LENGTH] = torch.eye(LENGTH) * SHARP
                    key[:LENGTH] = torch.eye(LENGTH) if head % 2 else torch.eye(LENGTH).roll(1, dims=1).triu()
            neurons = weights[f"blocks.{block}.mlp.W_in"][member]
            neurons[0, 0] = neurons[0 if reads_anchor else 1, 1] = 1
    return ensemble


@pytest.mark.slow
def test_what_runs_made_by_hand_have_become():
    setting = replace(
        condensation.QUICK, seeds=2, heads=(condensation.MANY,), gammas=(condensation.LARGE, MIDDLE, condensation.SMALL)
    )
    own, at_rates = condensation.experiments(setting).values()
    assert (own.model.heads, own.model.initialisation, own.members.seeds) == (condensation.MANY, "torch", (1000, 1001))
    assert own.members.gamma.given == {}
    assert at_rates.model == own.model.replace(initialisation="gamma") and at_rates.recipe == own.recipe
    assert at_rates.members.seeds == (1000, 1001) * 3
    runs = [
        run_ending(own, (0.96, 0.98), [0.5] * 2, {0: made(False, False), 600: made(True, False)}),
        run_ending(
            at_rates,
            (0.5, 0.92, 0.0, 0.0, 0.97, 1.0),
            [0.5] * 6,
            {0: made(*[False] * 6), 600: made(True, False, True, False, True, True)},
        ),
    ]
    found = condensation.STUDY.see(runs, setting)
    # Less even attention, a row i > 0 has the square 1 - 1/(i + 1), and with another head's, which reads elsewhere, the
    # product -1/(i + 1).
    shared = sum(1 / (row + 1) for row in range(1, 9))
    same, before = 1.0, -shared / (8 - shared)
    mixed = (30 * same + 36 * before) / 66  # pairs of heads of one kind, and of two kinds
    many = found.at_rates[condensation.MANY]
    assert (found.papers.starts, many.starts) == (
        (condensation.PAPERS,),
        (condensation.LARGE, MIDDLE, condensation.SMALL),
    )
    assert found.papers.alike.tolist() == [pytest.approx([1.0, mixed])]
    assert many.alike.flatten().tolist() == pytest.approx([1.0, mixed, 1.0, mixed, 1.0, 1.0])
    assert many.alike_untrained.flatten().tolist() == pytest.approx([mixed] * 6)
    assert many.broadcasting.tolist() == [[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]
    assert many.neurons.flatten().tolist() == pytest.approx([1.0, 0.0, 1.0, 0.0, 1.0, 1.0])
    assert many.neurons_untrained.flatten().tolist() == pytest.approx([0.0] * 6)
    expected = {"learned": 0.97, "learned-at-rates": (0.5 + 0.92 + 0.97 + 1.0) / 4, "heads-alike": (1 + mixed) / 2}
    expected |= {"all-broadcast": 1 / 2, "neurons-with-gamma": 1.0, "heads-with-gamma": 1 - mixed}
    assert values_of(condensation.STUDY, found) == pytest.approx(expected)
    drawn = condensation.STUDY.analysis(runs, setting)
    maps = [one for row in drawn.figures[0].maps for one in row]
    assert "PyTorch's initialisation, with a test accuracy of 0.98" in drawn.figures[0].caption
    assert [len(row) for row in drawn.figures[0].maps] == [6, 6]  # the twelve heads
    assert maps[0].values[8][7] == pytest.approx(1.0)  # head 0 of the member with the lower of two similarities
    assert drawn.figures[1].lines[0].mean == pytest.approx(((1 + mixed) / 2, (1 + mixed) / 2, 1.0))
    assert drawn.figures[2].lines[0].mean == pytest.approx((0.5, 0.5, 1.0))
    heads, start, *values = drawn.tables[0].rows[0]
    assert (heads, start) == (12, "PyTorch's")
    assert values == pytest.approx([0.97, (1 + mixed) / 2, mixed, 0.5, 0.5, 0.0], abs=1e-6)
    smallest = (12, 0.8, 0.985, 1.0, mixed, 1.0, 1.0, 0.0)
    assert drawn.tables[0].rows[3] == pytest.approx(smallest, abs=1e-6)
