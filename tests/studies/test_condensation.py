"""How alike heads and neurons are, on patterns, layers and models made by hand."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import one_hot

from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.condensation import (
    LARGE,
    MANY,
    QUICK,
    SMALL,
    STUDY,
    Layer,
    analyse,
    beyond_even,
    experiments,
    see,
    share_broadcasting,
    typical,
)
from anchorlab.tasks import task
from anchorlab.training.ensemble import Ensemble
from tests.studies.hand_made_models import ANCHOR, IS_ANCHOR, LENGTH, SHARP
from tests.studies.hand_made_runs import HandMadeRun, ends, results_of, values_of, verdicts_of

MIDDLE = 0.65


def test_heads_that_broadcast_from_one_place_are_counted():
    anchors = torch.tensor([2, 3, 4, 5])
    from_key = one_hot(anchors + 1, 9).float().unsqueeze(1).repeat(1, 9, 1)
    from_anchor = one_hot(anchors, 9).float().unsqueeze(1).repeat(1, 9, 1)
    even = torch.full((4, 9, 9), 1 / 9)
    heads = torch.stack([from_key, from_key, from_anchor, 0.1 * from_key + 0.9 * even], dim=1)
    # The third broadcasts from elsewhere; the fourth looks at the key most, with a fifth of its attention.
    assert share_broadcasting(heads[None], anchors).tolist() == [pytest.approx(0.5)]
    assert share_broadcasting(heads[None, :, :2], anchors).tolist() == [1.0]


def test_even_attention_is_taken_off():
    even = torch.tensor([[1.0, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]])
    assert beyond_even(even[None]).abs().max() < 1e-7
    assert beyond_even(torch.eye(3))[2].tolist() == pytest.approx([-1 / 3, -1 / 3, 2 / 3])


def test_the_typical_member_has_the_median_of_those_in_question():
    values = torch.tensor([0.9, 0.1, 0.5, 0.6])
    assert typical(values, torch.tensor([True, True, False, True])) == 3
    assert typical(values, torch.zeros(4, dtype=torch.bool)) == 2  # of an even number the lower


def layer(**changes) -> Layer:
    """Three γ with two seeds each; the first member did not learn."""
    values = {
        "accuracy": [[0.89, 1.0], [0.0, 0.0], [0.95, 0.97]],
        "alike": [[9, 0.7], [9, 9], [0.9, 0.95]],
        "alike_untrained": [[9, 9]] * 3,
        "broadcasting": [[9, 0.9], [9, 9], [0.8, 1.0]],
        "neurons": [[9, 0.3], [9, 9], [0.3, 0.5]],
        "neurons_untrained": [[9, 9]] * 3,
    }
    return Layer(
        (LARGE, MIDDLE, SMALL), **{name: torch.tensor(one).float() for name, one in (values | changes).items()}
    )


def test_values_of_a_layer_made_by_hand():
    wrong = layer(alike=[[0.0, 0.0]] * 3, neurons=[[0.0, 0.0]] * 3)
    found = {2: wrong, MANY: layer()}
    assert values_of(STUDY, found) == {
        "learned": pytest.approx((0.89 + 1.0 + 0.95 + 0.97) / 4),
        "heads-alike": pytest.approx((0.9 + (0.7 + 0.95) / 2) / 2),  # of one seed at SMALL alone, and one at both
        "all-broadcast": pytest.approx((0.8 + (0.9 + 1.0) / 2) / 2),
        "neurons-with-gamma": pytest.approx(0.1),
        "heads-with-gamma": pytest.approx(0.925 - 0.7),
    }
    assert set(verdicts_of(STUDY, found).values()) == {"agrees at small scale"}


def test_a_seed_is_one_unit_of_both_rates():
    found = results_of(STUDY, {MANY: layer()})
    assert found["learned"].units == pytest.approx(((0.89 + 0.95) / 2, (1.0 + 0.97) / 2))
    assert found["heads-alike"].units == pytest.approx((0.9, 0.825))
    assert found["heads-with-gamma"].units == pytest.approx((0.25,))  # of the seed that learned at both


def test_verdicts_outside_the_bands():
    outside = layer(
        accuracy=[[0.91, 0.92], [0.0, 0.0], [0.97, 0.98]],
        alike=[[0.74, 0.76], [9, 9], [0.79, 0.79]],
        broadcasting=[[0.7, 0.8], [9, 9], [0.8, 0.86]],
        neurons=[[0.3, 0.3], [9, 9], [0.32, 0.36]],
    )
    assert set(verdicts_of(STUDY, {MANY: outside}).values()) == {"differs at small scale"}


def test_what_was_not_trained_or_not_learned_is_not_judged():
    assert set(values_of(STUDY, {4: layer()}).values()) == {None}
    assert set(values_of(STUDY, {MANY: replace(layer(), gammas=(0.3, MIDDLE, SMALL))}).values()) == {None}
    one_sided = values_of(STUDY, {MANY: layer(accuracy=[[0.5, 0.5], [1.0, 1.0], [0.95, 0.97]])})
    assert one_sided.pop("learned") == pytest.approx((0.5 + 0.5 + 0.95 + 0.97) / 4)
    assert one_sided == {
        "heads-alike": pytest.approx(0.925),
        "all-broadcast": pytest.approx(0.9),
        "neurons-with-gamma": None,
        "heads-with-gamma": None,
    }


def ensemble(*alike: bool) -> Ensemble:
    """Two layers of twelve heads. In a member that is alike, all heads of layer 1 read the anchor and its neurons are
    one; in another, half of the heads read their own position and half the one before, and its neurons are orthogonal.
    Layer 0 is the other way round."""
    spec = DecoderSpec(layers=2, heads=MANY, width=IS_ANCHOR + 1, head_width=LENGTH, layer_norm=False)
    template = spec.build(task("anchor/identity").shape)
    weights = {name: torch.zeros(len(alike), *value.shape) for name, value in template.named_parameters()}
    weights["pos_embed.W_pos"][:, :, :LENGTH] = torch.eye(LENGTH)
    weights["embed.W_E"][:, ANCHOR, IS_ANCHOR] = 1
    for member, same in enumerate(alike):
        for block in range(2):
            reads_anchor = same if block else not same
            for head in range(MANY):
                columns = slice(head * LENGTH, (head + 1) * LENGTH)
                query, key = (weights[f"blocks.{block}.attn.W_{name}"][member][:, columns] for name in "QK")
                if reads_anchor:
                    query[:LENGTH, 0], key[IS_ANCHOR, 0] = SHARP, 1
                else:
                    query[:LENGTH] = torch.eye(LENGTH) * SHARP
                    key[:LENGTH] = torch.eye(LENGTH) if head % 2 else torch.eye(LENGTH).roll(1, dims=1).triu()
            neurons = weights[f"blocks.{block}.mlp.W_in"][member]
            neurons[0, 0] = neurons[0 if reads_anchor else 1, 1] = 1
    return Ensemble(template, weights, tuple(weights))


@pytest.mark.slow
def test_what_a_run_made_by_hand_has_become():
    setting = replace(QUICK, seeds=2, heads=(MANY,), gammas=(LARGE, MIDDLE, SMALL))
    (experiment,) = experiments(setting)
    assert experiment.members.seeds == (1000, 1001) * 3
    run = HandMadeRun(
        experiment,
        (0, 600),
        {
            ("test", "accuracy"): ends(0.5, 0.92, 0.0, 0.0, 0.97, 1.0),
            ("train", "accuracy"): ends(*[0.5] * 6),
            ("test", "loss"): ends(*[9.0] * 6),
        },
        {0: ensemble(*[False] * 6), 600: ensemble(True, False, True, False, True, True)},
    )
    seen = see([run])
    # Less even attention, a row i > 0 has the square 1 - 1/(i + 1), and with another head's, which reads elsewhere, the
    # product -1/(i + 1).
    shared = sum(1 / (row + 1) for row in range(1, 9))
    own, before = 1.0, -shared / (8 - shared)
    mixed = (30 * own + 36 * before) / 66  # pairs of heads of one kind, and of two kinds
    assert seen[MANY].alike.flatten().tolist() == pytest.approx([1.0, mixed, 1.0, mixed, 1.0, 1.0])
    assert seen[MANY].alike_untrained.flatten().tolist() == pytest.approx([mixed] * 6)
    assert seen[MANY].broadcasting.tolist() == [[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]
    assert seen[MANY].neurons.flatten().tolist() == pytest.approx([1.0, 0.0, 1.0, 0.0, 1.0, 1.0])
    assert seen[MANY].neurons_untrained.flatten().tolist() == pytest.approx([0.0] * 6)
    assert values_of(STUDY, seen) == {
        "learned": pytest.approx((0.5 + 0.92 + 0.97 + 1.0) / 4),
        "heads-alike": pytest.approx((1 + (mixed + 1) / 2) / 2),
        "all-broadcast": pytest.approx((1 + 1 / 2) / 2),
        "neurons-with-gamma": pytest.approx(1.0),
        "heads-with-gamma": pytest.approx(1 - mixed),
    }
    made = analyse([run], setting)
    maps = [one for row in made.figures[0].maps for one in row]
    assert [len(row) for row in made.figures[0].maps] == [4, 4, 4]
    assert all(one.values[8][4] == pytest.approx(1.0) for one in maps)  # the anchor is at 4
    assert made.figures[1].lines[0].mean == pytest.approx(((1 + mixed) / 2, (1 + mixed) / 2, 1.0))
    assert made.figures[2].lines[0].mean == pytest.approx((0.5, 0.5, 1.0))
    smallest = (12, 0.8, 0.985, 1.0, mixed, 1.0, 1.0, 0.0)
    assert made.tables[0].rows[2] == pytest.approx(smallest, abs=1e-6)


def test_the_rates_are_not_the_papers_and_so_is_no_profile_its_setting():
    assert not any(STUDY.profile(name).is_papers_setting(one.name) for name in STUDY.profiles for one in STUDY.claims)
