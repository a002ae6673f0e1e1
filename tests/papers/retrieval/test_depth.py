"""What depth buys, on losses and runs made by hand, and the layers that information needs on short chains."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch
from torch import tensor

from anchorlab.papers.retrieval import information_flow
from anchorlab.papers.retrieval.depth import STUDY, Seen, Setting, experiments, final_loss
from anchorlab.papers.retrieval.settings import least_layers_of, quick
from anchorlab.studies import study
from tests.papers.hand_made_runs import HandMadeRun, judged, results_of, seen_by_hand, values_of

STEPS = (0, 100, 200)

# two depths of two members and three symbols; without the curriculum x_2 alone is asked for
READ = {
    "setting": Setting((1, 2), quick(3, 1, 200, seeds=2), quick(2, 1, 200, seeds=1)),
    "loss": tensor([[0.9, 0.7], [0.3, 0.1]]),
    "loss_without": tensor([[0.8], [0.75]]),
    "partial": tensor([[[0.4, 0.6, 0.9], [0.6, 0.7, 0.8]], [[0.1, 0.2, 0.3], [0.2, 0.45, 0.4]]]),
    "retrieved": tensor([[[10, inf, inf], [inf, inf, inf]], [[10, 20, 30], [10, 30, 20]]]),
    "apart": 10,
    "least": (1, 2, 2),
}


def seen(**changed):
    return seen_by_hand(Seen, **READ | changed)


def test_values_of_losses_made_by_hand():
    # the order of the two that retrieve two symbols; 0.15, 0.325, 0.35 of the one depth that retrieves any on average
    expected = {"no-curriculum-fails": 1.0, "depth-helps": 0.6, "chain-order": 0.5, "later-is-harder": 1.0}
    assert values_of(STUDY, seen()) == pytest.approx(expected | {"second-step-retrieved": 0.325, "least-layers": 0.0})


def test_a_seed_is_one_unit_of_all_depths():
    changed = seen(
        loss_without=tensor([[0.8, 0.9, 0.6], [0.75, 1.0, 0.9]]),
        retrieved=tensor([[[10, 20, inf], [inf, inf, inf]], [[10, 20, 30], [10, 30, 20]]]),
    )
    found = results_of(STUDY, changed)
    assert found["chain-order"].units == (1.0, 0.0)
    assert found["chain-order"].value == 0.5  # and not two of three runs
    assert found["no-curriculum-fails"].units == (1.0, 1.0, 0.0)
    assert found["depth-helps"].units == pytest.approx((0.6, 0.6))
    assert found["later-is-harder"].units == (1.0, 0.0)  # 0.1, 0.2, 0.3, and 0.2, 0.45, 0.4, at the deeper alone
    assert found["least-layers"].units == (0.0, 0.0)


@pytest.mark.parametrize(("apart", "share"), [(10, 0.5), (11, 1.0), (21, None)])
def test_times_nearer_than_two_evaluations_are_a_tie(apart, share):
    retrieved = tensor([[[10.0, 20.0, 30.0], [10.0, 30.0, 20.0]]] * 2)  # the second is out of order by 10 steps
    assert values_of(STUDY, seen(retrieved=retrieved, apart=apart))["chain-order"] == share


def test_other_values_of_every_claim():
    other = seen(
        setting=Setting((1, 2), quick(3, 1, 200, seeds=2), quick(1, 1, 200, seeds=1)),
        loss=READ["loss"].flip(0),
        loss_without=tensor([[0.9], [0.69]]),
        partial=READ["partial"] + tensor([0.0, 0.15, 0.0]),  # x_2 0.75 and 0.85, then 0.35 and 0.6; x_3 0.35 there
        retrieved=tensor([[[10, 20, 30], [inf, inf, inf]], [[10, 20, inf], [10, inf, inf]]]),
        least=(2, 1, 1),
    )
    # one of two models retrieves x_1 with one layer
    expected = {"no-curriculum-fails": 0.0, "depth-helps": -0.6, "chain-order": 1.0, "later-is-harder": 0.0}
    assert values_of(STUDY, other) == pytest.approx(expected | {"second-step-retrieved": 0.475, "least-layers": 0.5})


def test_without_the_second_step_nothing_is_said_of_the_order_of_symbols():
    found = seen(partial=READ["partial"] + tensor([0.0, 0.2, 0.2]))
    values = judged(STUDY, found)
    assert (values["second-step-retrieved"], values["depth-helps"]) == pytest.approx((0.525, 0.6))
    assert values["chain-order"] is values["later-is-harder"] is values["least-layers"] is None
    assert values_of(STUDY, found)["later-is-harder"] == 1.0  # what it would be


def test_what_is_not_retrieved_with_the_curriculum_is_not_judged_without_it():
    all_but_x_2 = tensor([0.1, 0.5, 0.1]).expand(2, 2, 3)
    nothing = seen(partial=all_but_x_2, retrieved=torch.full((2, 2, 3), inf))
    found = values_of(STUDY, nothing)
    assert (
        found["no-curriculum-fails"] is found["chain-order"] is found["least-layers"] is None
    )  # no depth retrieves x_2
    nothing = seen(partial=torch.ones(2, 2, 3), retrieved=torch.full((2, 2, 3), inf))
    assert values_of(STUDY, nothing)["later-is-harder"] is None


def test_what_half_of_the_models_retrieve_is_not_learnable_and_any_depth_may_be_best():
    partial = READ["partial"].clone()
    partial[1, 1, 2] = 0.6
    assert values_of(STUDY, seen(partial=partial))["least-layers"] is None
    turned = seen(partial=READ["partial"].flip(0))
    assert values_of(STUDY, turned)["second-step-retrieved"] == pytest.approx(0.325)


def test_losses_are_read_by_depth_and_symbol():
    setting = Setting((2, 5), quick(3, 1, 200, seeds=1), quick(2, 1, 200, seeds=2))
    losses = [[[1, 1, 0.6]], [[1, 0.5, 0.2]], [[1, 1, 0.8], [1, 1, 0.9]], [[1, 1, 0.7], [1, 0.1, 1.1]]]
    partials = [([1, 0, 0], [1, 1, 0.75], [1, 1, 0.9]), ([1, 1, 0.1], [1, 1, 0.2], [1, 0.5, 0.3]), None, None]
    runs = []
    for experiment, loss, partial in zip(experiments(setting).values(), losses, partials, strict=True):
        values = {("test", "loss"): loss}
        for symbol in experiment.task.asked:
            values["test", f"partial_{symbol}"] = loss if partial is None else [partial[symbol - 1]]
        edited = {(*key, "half"): [[7.0] * 3] * len(loss) for key in values}
        runs.append(HandMadeRun(experiment, STEPS, {**values, **edited}))
    assert [run.experiment.task.asked for run in runs] == [(1, 2, 3), (1, 2, 3), (2,), (2,)]
    seen = STUDY.see(runs, setting)
    assert seen.end == 2
    assert seen.apart == 100
    assert seen.least == [2, 3, 3]  # log_2(2D + 2), one head behind a mask
    torch.testing.assert_close(seen.loss, tensor([[0.6], [0.2]]))
    torch.testing.assert_close(seen.loss_without, tensor([[0.8, 0.9], [0.7, 1.1]]))
    torch.testing.assert_close(seen.partial, tensor([[[0.0, 0.75, 0.9]], [[0.1, 0.2, 0.3]]]))
    at = tensor([[[50, inf, inf]], [[100 + 100 * 5 / 9, 100 + 100 * 5 / 8, 100]]])
    torch.testing.assert_close(seen.retrieved, at.double(), rtol=1e-5, atol=0.0)


def test_the_final_loss_is_the_mean_over_the_last_hundred_steps():
    experiment = quick(3, 1, 1000, seeds=2)
    values = {("test", "loss"): [[9.0, 9.0, 0.5, 0.7, 0.6], [9.0, 9.0, 0.2, 0.2, 0.5]]}
    run = HandMadeRun(experiment, (0, 900, 901, 950, 1000), values)
    torch.testing.assert_close(final_loss(run), tensor([0.6, 0.3]))


@pytest.mark.parametrize(
    ("mask", "heads", "least"),
    [
        (True, 1, [2, 3, 3, 4]),  # a mask leaves as little to many heads as to one: log_2(2D + 1), rounded up
        (True, 2, [2, 3, 3, 4]),
        (False, 1, [2, 3, 3, 4]),
        (False, 2, [2, 2, 3, 3]),  # log_3(4D + 1), rounded up
    ],
)
def test_the_least_depths_are_those_of_the_model_s_mask_and_heads(mask, heads, least):
    experiment = quick(4, 1, 200, seeds=1)
    run = HandMadeRun(replace(experiment, model=experiment.model.replace(mask=mask, heads=heads)), (0,), {})
    assert least_layers_of(run, (1, 2, 3, 4)) == least


def test_figures_and_table_by_depth():
    setting = Setting((2, 5), quick(3, 1, 200, seeds=1), quick(2, 1, 200, seeds=1))
    runs = []
    for at, experiment in enumerate(experiments(setting).values()):  # losses 0.1 to 0.4, partial losses of their own
        values = {("test", "loss"): [[1, 1, 0.1 * (at + 1)]]}
        values |= {("test", f"partial_{symbol}"): [[1, 1, at + symbol]] for symbol in experiment.task.asked}
        runs.append(HandMadeRun(experiment, STEPS, values))
    found = STUDY.analysis(runs, setting)
    with_it, without = found.figures[0].lines
    assert (with_it.label, with_it.x) == ("implicit curriculum (D = 3)", (2, 5))
    assert with_it.mean == pytest.approx((0.1, 0.2)) and without.mean == pytest.approx((0.3, 0.4))
    assert [(one.label, one.mean) for one in found.figures[1].lines] == [
        ("x_1", (1, 2)),
        ("x_2", (2, 3)),
        ("x_3", (3, 4)),
    ]
    assert [one.mean for one in found.figures[2].lines] == [(1, 1, 2), (1, 1, 3), (1, 1, 4)]  # of the deepest
    assert found.tables[0].columns == ("layers", "with curriculum", "without", "x_1", "x_2", "x_3")
    assert found.tables[1].rows[0] == ("x_1", 2, None, None)
    assert found.tables[0].rows[1] == (5, pytest.approx(0.2), pytest.approx(0.4), 2, 3, 4)


# up to D = 9: 4D + 1 passes 9 at D = 3 and 27 at D = 7
FREE = [2] * 2 + [3] * 4 + [4] * 3


# D = 1 without a layer and after one: three positions, of which the query comes last to know all four pieces
HELD = np.array([[[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], [[1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 1, 1]]], dtype=bool)


def flows(free=FREE, causal=(5,) * 9, one_head=(2, 2, 3) + (4,) * 6, held=HELD):
    simulated = {name: np.array([9] * 9) for name in information_flow.FLOWS}  # what must not be read
    simulated |= {"no mask": np.array(free), "causal mask": np.array(causal)}
    simulated["causal mask, one head"] = np.array(one_head)
    read = {"setting": 9, "held": [HELD, held], "simulated": simulated, "formula": simulated}
    return seen_by_hand(information_flow.Seen, **read)


def test_values_of_flows_inside_and_outside_the_bands():
    # the bound at D = 6, the largest with three layers; two pieces, then four
    expected = {"bound": 3 - np.log(12) / np.log(3), "contiguous": 1.0, "length-at-most": 1.0, "factor-three": 1.0}
    assert values_of(information_flow.STUDY, flows()) == pytest.approx(expected | {"three-for-three": 3.0})
    assert information_flow.STUDY.claims[0](flows()).spread == "all D to 9"
    flow = study("retrieval/information-flow")
    lengths = {name: profile.setting for name, profile in flow.profiles.items()}
    assert lengths == {"quick": 2000, "paper": 10_000, "smoke": 30}
    assert not flow.experiments_of("quick")
    early = HELD.copy()
    early[0, 0] = True, True, True, False
    early[1, 1] = True, False, True, True  # one of twelve has a gap
    wrong = flows([0, 2, 2, 3, 3, 3, 4, 4, 4], (5,) * 9, [2, 3, 4] + [4] * 6, held=early)
    # three pieces before the first layer; of D = 1 to 3 the second alone: 2 is no 0 + 1, and 4 no 2 + 1
    expected = {"bound": -np.log(2) / np.log(3), "contiguous": 11 / 12, "length-at-most": 1.5, "factor-three": 1 / 3}
    assert values_of(information_flow.STUDY, wrong) == pytest.approx(expected | {"three-for-three": 4.0})


def test_a_short_study():
    """Up to D = 30: 4D + 1 passes 9 at D = 3 and 27 at D = 7, 81 at D = 21; 2D passes 3 at 2, 9 at 5, 27 at 14."""
    found = information_flow.STUDY.analysis([], 30)
    least = [2] * 2 + [3] * 4 + [4] * 14 + [5] * 10
    bound = [1] * 1 + [2] * 3 + [3] * 9 + [4] * 17
    values = values_of(information_flow.STUDY, found.seen)
    assert values["bound"] > 0 and values["factor-three"] == 1 and values["three-for-three"] == 3
    theorem, free, *_ = found.tables[0].rows
    assert free[3] == sum(one == two for one, two in zip(least, bound, strict=True)) / 30
    assert theorem[4:] == tuple(bound[one - 1] for one in (1, 2, 3, 4, 5, 10))
    assert free[4:] == tuple(least[one - 1] for one in (1, 2, 3, 4, 5, 10))
    assert all(row[2] == 1 for row in found.tables[0].rows)
    shared, layers = found.figures
    assert layers.lines[0].label == "Theorem 1"
    assert layers.lines[0].x == (1, 2, 4, 5, 13, 14, 30)
    assert layers.lines[0].mean == (1, 2, 2, 3, 3, 4, 4)
    (drawn,) = shared.maps[0]
    assert drawn.row_ticks == ("x₀", "x₀", "x₁", "x₁", "x₂", "x₂", "x₃", "x₃", "x₄", "x₄", "x₅")
    assert drawn.column_ticks[:4] == ("x₀", "p₁", "x₁", "p₂")
    assert drawn.values[0] == (0, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3)  # one to the right, then four, then thirteen
    assert drawn.values[1][:4] == (0, 0, 1, 2)
