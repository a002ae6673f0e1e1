"""Table 1's questions, on runs and spikes made by hand."""

from dataclasses import replace
from itertools import product
from math import isnan, log, nan

import pytest
import torch
from torch import tensor

from anchorlab.lens import Emergence
from anchorlab.papers.anchor.identity import read_heads
from anchorlab.papers.anchor.open_questions import layers
from anchorlab.papers.anchor.open_questions.choices import (
    BASE,
    BATCH,
    COMPARED,
    DECAY,
    HEADS,
    LAYERS,
    MANY,
    ORDER,
    PAPER,
    QUICK,
    RATE,
    SCALE,
    SHARED,
    SMOKE,
    SPIKES,
    TOGETHER,
    WIDTH,
    Value,
    experiments,
)
from anchorlab.papers.anchor.open_questions.layers import Layers, layers_along
from anchorlab.papers.anchor.open_questions.open_questions import STUDY, Seen
from anchorlab.papers.anchor.open_questions.outcomes import (
    Outcome,
    compared,
    effect,
    left_out,
    left_out_table,
    on_many,
    outcomes,
    rise_curves,
    rises,
    timed,
)
from anchorlab.papers.anchor.open_questions.spikes import Spike, spikes
from tests.papers.hand_made_models import two_layers
from tests.papers.hand_made_runs import HandMadeRun, ends, results_of, run_ending, seen_by_hand, values_of


@pytest.mark.parametrize("setting", [QUICK, PAPER, SMOKE], ids=["quick", "paper", "smoke"])
def test_every_choice_holds_the_base_and_rises(setting):
    for choice, amounts in setting.amounts.items():
        assert [setting.is_base(Value(choice, one)) for one in amounts].count(True) == 1, choice
        assert list(amounts) == sorted(set(amounts)), choice
    for choice, among in ((HEADS, {1, 4}), (SHARED, {1, 4}), (LAYERS, {2, 4}), (SCALE, {0.3, 3.0})):
        assert among <= {*setting.amounts[choice]}


def test_one_choice_is_changed_at_a_time_and_has_a_short_label():
    base, *alone, together, many, heads, layers, order, constant = experiments(QUICK).values()
    changed = {
        "heads: 2": {"heads": 2}, "heads: 4": {"heads": 4}, "heads, one total width: 2": {"heads": 2, "head_width": 32},
        "heads, one total width: 4": {"heads": 4, "head_width": 16},
        **{f"layers: {count}": {"layers": count} for count in (1, 3, 4)},
        **{f"width: {width}": {"width": width} for width in (16, 32, 128)},
    }  # fmt: skip
    assert {one.label: one.model for one in alone if one.recipe == base.recipe} == {
        label: base.model.replace(**fields) for label, fields in changed.items()
    }
    batches = [one for one in alone if one.recipe != base.recipe]
    assert [(one.model, one.recipe) for one in batches] == [
        (base.model, base.recipe.replace(batch=batch)) for batch in (15, 150)
    ]
    assert all(one.members == base.members for one in alone)
    assert (together.model, together.recipe, len(together.members)) == (base.model, base.recipe, 110)
    usual = {"learning_rate": 3e-3, "weight_decay": 0.3, "initialisation_scale": 1.0}
    members = together.members
    differing = [
        {name: values[at] for name in usual if (values := getattr(members, name))[at] != usual[name]}
        for at in range(len(members))
    ]
    assert all(len(one) == 1 for one in differing)
    assert differing[::10] == [
        *({"learning_rate": rate} for rate in (3e-4, 1e-3, 1e-2, 3e-2)),
        *({"weight_decay": decay} for decay in (0.0, 0.1, 1.0, 3.0)),
        *({"initialisation_scale": scale} for scale in (0.1, 0.3, 3.0)),
    ]
    assert members.seeds == base.members.seeds * 11
    assert (many.model, many.recipe.data.size) == (base.model, 1000)
    assert [one.model for one in (heads, layers)] == [
        base.model.replace(**fields) for fields in ({"heads": 4, "head_width": 16}, {"layers": 4})
    ]
    assert heads.recipe == many.recipe
    removed = {name: [edit.weight for edit in edits] for name, edits in layers.recipe.evaluation.edits.items()}
    assert removed == {
        "without the last 1": ["blocks.3"],
        "without the last 2": ["blocks.2", "blocks.3"],
        "without the last 3": ["blocks.1", "blocks.2", "blocks.3"],
    }
    assert list(many.recipe.evaluation.edits) == ["without the last 1"]
    fewer = layers.recipe.replace(evaluation=many.recipe.evaluation)
    assert fewer == many.recipe
    assert (order.model, order.recipe.data.size) == (base.model, 1000)
    assert constant.recipe.schedule.kind == "constant" and constant.recipe.clip is None
    assert constant.members.learning_rate == (3e-3,) * 10 + (1e-2,) * 10
    labels = [Value(HEADS, amount).label for amount in (4, 0.0, 0.3, 0.01, 3e-3, 2e-5)]
    assert labels == ["4", "0", "0.3", "0.01", "3e-3", "2e-5"]


ACCURACY = {  # two seeds at each value that is not the base's
    (HEADS, 4): (0.8, 0.9),
    (SHARED, 4): (0.7, 0.75),
    (LAYERS, 4): (0.6, 0.65),
    (WIDTH, 32): (0.1, 0.15),
    (BATCH, 15): (0.2, 0.25),
    (BATCH, 150): (0.3, 0.35),
    (RATE, 1e-3): (0.05, 0.0),
    (RATE, 1e-2): (0.95, 1.0),
    (DECAY, 0.1): (0.36, 0.37),
    (DECAY, 1.0): (0.38, 0.39),
    (SCALE, 0.3): (0.85, 0.86),
    (SCALE, 3.0): (0.01, 0.02),
}
AT_BASE = (0.4, 0.45)
WIDER = replace(SMOKE, amounts=SMOKE.amounts | {RATE: (1e-3, 3e-3, 1e-2), BATCH: (15, 50, 150), DECAY: (0.1, 0.3, 1.0)})


def run_of(experiment, accuracy):
    return run_ending(experiment, accuracy, [1.0 - value / 10 for value in accuracy], before=(0.0, 0.0))


def choice_runs():
    found = experiments(WIDER)
    members = [ACCURACY[one.choice, one.amount] for one in WIDER.together]
    return {
        BASE: run_of(found[BASE], AT_BASE),
        **{one: run_of(found[one], ACCURACY[one.choice, one.amount]) for one in WIDER.alone},
        TOGETHER: run_of(found[TOGETHER], [value for pair in members for value in pair]),
    }


def test_outcomes_and_times_are_those_of_their_own_runs_and_members():
    found = outcomes(choice_runs(), WIDER)
    assert list(found) == list(WIDER.amounts)
    for choice, values in found.items():
        for one in values:
            expected = AT_BASE if one.base else ACCURACY[choice, one.value.amount]
            assert one.test.tolist() == pytest.approx(list(expected)), (choice, one.value)
            assert one.train.tolist() == pytest.approx([1 - value / 10 for value in expected])
            assert one.steps == 2
    fast = found[RATE][-1]  # 0.95 and 1 at step 2, 0 at step 1
    assert fast.times.tolist() == pytest.approx([1 + 0.9 / 0.95, 1 + 0.9])
    assert all(isnan(time) for time in found[HEADS][0].times.tolist()) and found[HEADS][0].until.tolist() == [2, 2]
    found = timed(many_runs(), WIDER)
    assert {(one.choice, one.amount): outcome.test.tolist() for one, outcome in found.items()} == {
        key: pytest.approx(list(values)) for key, values in ON_MANY.items()
    }
    assert found[Value(LAYERS, 4)].until.tolist() == pytest.approx([1 + 0.9 / 0.94, 2])
    assert [(one.model.layers, one.model.heads) for one in [*experiments(PAPER).values()][-5:-2]] == [
        (4, 4),
        (4, 1),
        (2, 4),
    ]


ON_MANY = {(SHARED, 1): (0.92, 1.0), (SHARED, 4): (0.96, 0.98), (LAYERS, 2): (0.92, 1.0), (LAYERS, 4): (0.94, 0.8)}


def many_runs():
    heads, layers = Value(SHARED, 4), Value(LAYERS, 4)
    accuracy = {MANY: (SHARED, 1), (MANY, heads): (SHARED, 4), (MANY, layers): (LAYERS, 4)}
    return {label: many_run(experiments(WIDER)[label], ON_MANY[key]) for label, key in accuracy.items()}


def many_run(experiment, accuracy):
    """A run that loses a tenth of its accuracy with each layer that is left out."""
    values = {("test", "accuracy"): [[0.0, 0.0, one] for one in accuracy]}
    values["train", "accuracy"] = [[0.0, 0.0, 1 - one / 10] for one in accuracy]
    for count, edit in enumerate(experiment.recipe.evaluation.edits, start=1):
        values["test", "accuracy", edit] = [[0.0, 0.0, one - count / 10] for one in accuracy]
    return HandMadeRun(experiment, (0, 1, 2), values, {2: two_layers((1, 1), (0, 0))})


def test_layers_left_out_are_read_by_their_number():
    found = {value: left_out(run) for value, run in on_many(many_runs()).items()}
    accuracy = torch.tensor([[0.94, 0.8], [0.84, 0.7], [0.74, 0.6], [0.64, 0.5]])
    torch.testing.assert_close(found[Value(LAYERS, 4)].float(), accuracy)
    assert [len(one) for one in found.values()] == [2, 2, 2, 4]
    row = left_out_table(found).rows[-2]
    assert row == (LAYERS, "4", 2, *map(pytest.approx, (0.67, 0.6, 0.74)))


def test_the_loss_rises_where_weights_move_and_is_compared_at_one_move():
    runs = on_many(many_runs())
    found = rises(runs)
    assert {value: one.shape for value, one in found.items()} == dict.fromkeys(runs, (4, 2))
    by_hand = {
        Value(LAYERS, 2): tensor([[9.0], [9.0], [2.0], [9.0]]),
        Value(LAYERS, 4): tensor([[9.0]] * 2 + [[-1.0]] * 2),
    }
    logarithm, none = compared(by_hand, LAYERS).flatten().tolist()
    assert logarithm == pytest.approx(log(2)) and isnan(none)
    curve = rise_curves(by_hand).lines[0]
    assert (curve.label, curve.x, curve.mean) == ("layers: 2", (0.05, 0.1, 0.2, 0.4), (9.0, 9.0, 2.0, 9.0))


def test_an_effect_is_that_of_values_chosen_by_the_other_seeds_and_zero_on_average():
    # The second value is the best without any seed; the third is the worst without the first seed, else the first.
    accuracy = tensor([[0.1, 0.3, 0.2], [0.0, 0.9, 0.8], [0.5, 0.2, 0.1]])
    assert effect(accuracy).tolist() == pytest.approx([0.0 - 0.5, 0.9 - 0.3, 0.8 - 0.2])
    assert effect(tensor([[0.1], [0.9]])).tolist() == []
    # Three seeds at three values, each 0 or 1 as a coin falls: all 512 outcomes.
    each = [effect(tensor(one).float().view(3, 3)).mean().item() for one in product((0, 1), repeat=9)]
    assert sum(each) / len(each) == pytest.approx(0, abs=1e-6)


def constant_run(losses, accuracies):
    experiment = experiments(replace(WIDER, rates=(3e-3,)))[SPIKES]
    steps = range(0, 10 * len(losses[0]), 10)
    values = {("train", "loss"): losses, ("test", "accuracy"): accuracies}
    return HandMadeRun(experiment, steps, {**values, ("test", "loss"): losses[::-1], ("train", "accuracy"): losses})


def test_spikes_of_losses_made_by_hand():
    #        0    10   20   30   40   50   60   70   80   90   100  110
    first = [4.0, 2.0, 1.0, 1.0, 1.0, 1.1, 5.0, 20.0, 2.0, 1.0, 1.0, 1.0]
    up = [.00, .10, .20, .30, .40, .45, .20, .10, .50, .70, .70, .70]  # fmt: skip
    second = [1.0, 1.0, 1.0, 1.0, 1.0, 9.9, 1.0, 1.0, 1.0, 1.0, 10.0, 3.0]  # nine times is none, and one does not end
    found = spikes(constant_run([first, second], [up, up]))
    # Before: step 40. After: step 90, the first at which the loss is 1 again. 50 steps earlier is before the start.
    assert found == [Spike(0, 40, 90, 1.0, 20.0, (0.4, 0.7), 0.4, seed=1000)]
    assert found[0].gain == pytest.approx(0.7 - 0.4 - 0.4)
    later = [[3.0, 3.0, *one] for one in (first, second)]
    (moved,) = spikes(constant_run(later, [[0.0, 0.3, *up]] * 2))
    assert (moved.before, moved.after, moved.drift) == (60, 110, pytest.approx(0.4 - 0.3))  # from step 10
    falling = [2.0**-at for at in range(12)]
    diverged = [*falling[:8], nan, nan, nan, nan]
    assert not spikes(constant_run([falling, diverged], [falling, falling]))


def order_run(members=3):
    """Both layers at three checkpoints: the first member shifts first, the second does both at once, as the third."""
    experiment = experiments(QUICK)[ORDER]
    experiment = replace(experiment, members=experiment.members.take(range(members)))
    ensembles = {
        0: two_layers(*[(0, 0)] * 3), 10: two_layers((1, 0), (1, 1), (1, 1)), 20: two_layers((1, 1), (1, 1), (1, 1)),
    }  # fmt: skip
    return HandMadeRun(experiment, (0, 20), {("test", "accuracy"): ends(1.0, 0.9, 0.85)}, ensembles)


def test_layers_rise_in_the_order_in_which_they_were_made_if_both_do_their_part(monkeypatch):
    found = layers_along(order_run())
    assert found.attention.steps == (0, 10, 20)
    torch.testing.assert_close(found.attention.values["shift"][0], tensor([0.0, 1.0, 1.0]).double())
    torch.testing.assert_close(found.attention.values["broadcast"][0], tensor([0.0, 0.0, 1.0]).double())
    # the third member does not answer
    assert found.halfway["shift"].tolist() == pytest.approx([5, 5])
    assert found.halfway["broadcast"].tolist() == pytest.approx([15, 5])
    run = order_run()
    run._ensembles[20] = two_layers((1, 0), (1, 1), (1, 1))
    assert layers_along(run).halfway["shift"].tolist() == pytest.approx([5])
    monkeypatch.setattr(
        layers, "read_heads", lambda record, batch: replace(read_heads(record, batch), shift_by=tensor([2, 1, 1]))
    )
    assert layers_along(order_run()).halfway["shift"].tolist() == pytest.approx([5])


def outcome(amount, test, times=(nan, nan), base=False, train=(1.0, 1.0)):
    return Outcome(Value("", amount), base, 100, tensor(test), tensor(train), tensor(times))


def spike(gain, seed=0):
    return Spike(0, 10, 20, 1.0, 20.0, (0.5, 0.6 + gain), 0.1, seed)


def halfway(shift, broadcast):
    return Layers(Emergence((), {}), {"shift": tensor(shift), "broadcast": tensor(broadcast)})


def seen(**changes):
    """What reproduces every claim, with changes."""
    found = {
        SHARED: (outcome(1, (0.2, 0.4), base=True), outcome(4, (0.5, 0.4))),
        LAYERS: (outcome(2, (0.2, 0.4), base=True), outcome(4, (0.5, 0.4))),
        WIDTH: (outcome(32, (0.1, 0.1)), outcome(64, (0.3, 0.4), base=True)),
        RATE: (outcome(1e-4, (0.0, 0.0)), outcome(1e-3, (0.1, 0.2)), outcome(3e-3, (0.5, 0.9), base=True)),
        BATCH: (outcome(15, (0.4, 0.5)), outcome(50, (0.7, 0.8), base=True), outcome(500, (0.0, 0.0))),
        DECAY: (outcome(0.1, (0.4, 0.5)), outcome(0.3, (0.5, 0.9), base=True), outcome(3, (0.0, 0.0))),
        SCALE: (outcome(0.3, (0.5, 0.6)), outcome(1, (0.3, 0.4), base=True), outcome(3, (0.3, 0.4))),
    }
    found |= changes.pop("choices", {})
    times = {(SHARED, 1): (nan, nan), (SHARED, 4): (60.0, nan), (LAYERS, 2): (nan, 80.0), (LAYERS, 4): (60.0, 60.0)}
    times |= changes.pop("times", {})
    rises = {  # at moves 0.05, 0.1, 0.2 and 0.4; the third is compared
        Value(choice, amount): tensor([[9.0, 1.0], [1.0, 9.0], values, [7.0, 7.0]])
        for choice, by_amount in ((SHARED, ((0.2, 0.4), (0.3, 0.2))), (LAYERS, ((0.5, 0.5), (1.0, 2.0))))
        for amount, values in zip(COMPARED[choice], by_amount, strict=True)
    }
    rest = {
        "left_out": {Value(LAYERS, 4): tensor([[1.0, 0.95, 0.8], [1.0, 0.1, 0.1], [0.9, 0.95, 0.8], [0.0, 0.0, 0.1]])},
        "rises": rises,
        "many": {Value(choice, amount): outcome(amount, (1.0, 1.0), one) for (choice, amount), one in times.items()},
        "spikes": [*[spike(0.02)] * 8, spike(0.3), spike(0.01, seed=1)],
        "layers": halfway([5.0] * 10, [*[15.0] * 9, 5.0]),
        **changes,
    }
    return seen_by_hand(Seen, choices=found, **rest)


@pytest.mark.slow
def test_values_of_what_was_made_by_hand():
    assert values_of(STUDY, seen()) == {
        "heads-generalise": pytest.approx(0.15),
        "heads-sooner": pytest.approx((60 + 100) / (100 + 100)),
        "layers-generalise": pytest.approx(0.15),
        "layers-sooner": pytest.approx(60 / 90),
        "width-matters": pytest.approx(0.25),
        "rate-sensitive": pytest.approx(0.55),  # 1e-4 is too far from 3e-3
        "rate-most-sensitive": pytest.approx(0.55 - 0.3),
        "batch-matters": pytest.approx(0.3),  # 500 is too far from 50
        "decay-matters": pytest.approx(0.25),  # 3 is too far from 0.3
        "small-weights-generalise": pytest.approx(0.2),
        "spikes-help": pytest.approx(0.9),
        "layer-order": pytest.approx(0.9),
        "deep-layers-negligible": pytest.approx((0.9 + 1.0) / 2),  # the third seed has not learned the task
        # each seed is measured the way round that the other one shows
        "landscape-differs-by-heads": pytest.approx((0.2 / 0.3 * 0.2 / 0.4) ** 0.5),
        "landscape-differs-by-layers": pytest.approx((2 * 4) ** 0.5),
    }


def test_a_seed_is_one_unit_of_several_conditions_and_either_layer_may_be_first():
    found = results_of(STUDY, seen())
    # One seed takes 60 of the 100 steps of one head with four, the other the whole training with both.
    assert found["heads-sooner"].units == pytest.approx((0.6, 1.0))
    # Less the batch for one seed, the weight decay for the other.
    assert found["rate-most-sensitive"].units == pytest.approx((0.4 - 0.3, 0.7 - 0.4))
    assert found["spikes-help"].units == (1.0, 0.0)  # of two seeds, and not of ten spikes
    assert (found["layer-order"].units.count(1.0), found["layer-order"].units.count(0.0)) == (9, 1)
    assert found["layer-order"].interval == pytest.approx((0.606, 0.995), abs=1e-3)  # exact binomial: 9 of 10
    assert values_of(STUDY, seen(layers=halfway([9.0, 9.0], [3.0, 3.0])))["layer-order"] == 1
    assert values_of(STUDY, seen(layers=halfway([9.0, 3.0], [3.0, 9.0])))["layer-order"] == 0.5


def test_what_did_not_happen_is_not_judged_and_heads_have_one_total_width():
    unfit = {
        SCALE: (outcome(0.3, (0.5, 0.6)), outcome(1, (0.0, 0.0), base=True), outcome(3, (0.3, 0.2), train=(0.98, 1.0)))
    }
    slow = {(SHARED, 4): (nan, nan)}
    found = values_of(STUDY, seen(choices=unfit, times=slow, spikes=[spike(0.3)] * 9, layers=halfway([], [])))
    assert {name for name, value in found.items() if value is None} == {"heads-sooner", "spikes-help", "layer-order"}
    assert found["small-weights-generalise"] == pytest.approx(0.4)  # of the seed that fits
    # as wide each, several heads are far better and sooner; of one total width they are not
    wide = (outcome(1, (0.2, 0.2), base=True), outcome(4, (0.9, 0.9)))
    shared = (outcome(1, (0.2, 0.2), base=True), outcome(4, (0.1, 0.1)))
    times = {(HEADS, 4): (10.0, 10.0), (SHARED, 1): (60.0, 60.0), (SHARED, 4): (90.0, 90.0)}
    found = values_of(STUDY, seen(choices={HEADS: wide, SHARED: shared}, times=times))
    assert (found["heads-generalise"], found["heads-sooner"]) == (pytest.approx(-0.1), pytest.approx(1.5))


def scales(*test, train=((1.0, 1.0),) * 4):
    """Two seeds at a tenth, at three tenths, at the base's and at three times the initial scale."""
    values = zip((0.1, 0.3, 1.0, 3.0), test, train, strict=True)
    return seen(choices={SCALE: tuple(outcome(at, one, base=at == 1, train=fit) for at, one, fit in values)})


def test_smaller_weights_are_judged_over_the_whole_curve_on_seeds_that_fit_at_both():
    # the first curve falls over every factor of ten, the second, a hump, only from 0.3 to 3
    falling = scales((0.9, 0.9), (0.7, 0.9), (0.5, 0.7), (0.4, 0.4))
    found = results_of(STUDY, falling)["small-weights-generalise"]
    assert found.value == pytest.approx(0.3)  # of 0.4 and 0.2 from 1 to a tenth, and 0.3 and 0.5 from 3 to 0.3
    assert found.units == pytest.approx((0.3, 0.2))
    hump = scales((0.1, 0.2), (0.8, 0.8), (0.6, 0.6), (0.3, 0.3))
    found = results_of(STUDY, hump)["small-weights-generalise"]
    assert found.value == pytest.approx(-0.45) and not found.agrees
    train = ((1.0, 0.5), (1.0, 1.0), (1.0, 1.0), (0.5, 1.0))
    found = scales((0.9, 0.0), (0.9, 0.9), (0.6, 0.6), (0.0, 0.7), train=train)
    assert values_of(STUDY, found)["small-weights-generalise"] == pytest.approx(0.2)  # the second seed's, not 0.3
    nothing = scales(*[(0.5, 0.5)] * 4, train=((0.5, 0.5),) * 4)
    assert values_of(STUDY, nothing)["small-weights-generalise"] is None


def test_figures_and_tables_of_runs_made_by_hand():
    constant = experiments(WIDER)[SPIKES]
    losses = [[1.0] * 5 + [20.0, 1.0]] * 4
    accuracies = [[0.1 * member] * 6 + [0.5 + 0.1 * member] for member in range(4)]
    values = {("train", "loss"): losses, ("test", "accuracy"): accuracies}
    runs = [
        *choice_runs().values(),
        *many_runs().values(),
        order_run(),
        HandMadeRun(constant, range(0, 70, 10), values),
    ]
    assert len(STUDY.see(runs, WIDER).spikes) == 4
    made = STUDY.analysis(runs, WIDER)
    dots, speed, loss, accuracy, order, rise = made.figures
    assert len(rise.lines) == 4
    heads = dots.panels[0]
    assert (heads.title, heads.ticks, heads.marked) == (HEADS, ("1", "4"), 0)
    assert heads.values == (pytest.approx(AT_BASE), pytest.approx((0.8, 0.9)))
    assert [(one.label, one.mean[-1]) for one in speed.lines] == [
        ("2 layers, heads: 1", pytest.approx(0.96)),
        ("2 layers, heads: 4", pytest.approx(0.97)),
        ("4 layers, heads: 1", pytest.approx(0.87)),
    ]
    assert [(one.label, one.mean) for one in loss.lines] == [
        ("learning rate 0.003", tuple(losses[0])),
        ("learning rate 0.01", tuple(losses[2])),
    ]
    assert accuracy.lines[1].mean == pytest.approx(accuracies[2])
    assert [one.x for one in order.lines] == [(0, 10)] * 2  # the end is long after
    assert [one.mean[1] for one in order.lines] == pytest.approx([1.0, 2 / 3])
    table, times, removed, spikes_found = made.tables
    assert [row[2] for row in removed.rows] == [0, 1, 0, 1, 0, 1, 0, 1, 2, 3]
    assert times.rows[3] == (
        LAYERS, "4", *map(pytest.approx, (0.87, 0.8, 0.94, 0.913)), 2, 1, pytest.approx(1 + 0.9 / 0.94),
    )  # fmt: skip
    rows = {row[:2]: row[2:] for row in table.rows}
    assert rows[RATE, "0.01"] == (
        *map(pytest.approx, (0.975, 0.95, 1.0, 0.9025)), 2, 2, pytest.approx(1 + (0.9 / 0.95 + 0.9) / 2),
    )  # fmt: skip
    assert rows[RATE, "3e-3 *"][-3:] == (2, 0, None)
    assert spikes_found.rows[3] == (0.01, 1001, 40, 60, 1.0, 20.0, *map(pytest.approx, (0.3, 0.8, 0.0, 0.5)))
