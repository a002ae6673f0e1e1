"""When training and unseen pairs are learned, on runs made by hand."""

from dataclasses import replace

import pytest

from anchorlab.papers.classics.grokking import DECAY, MORE, PLAIN, QUICK, STUDY, experiments, see
from tests.papers.hand_made_runs import HandMadeRun, values_of, verdicts_of

STEPS = (0, 100, 200, 300, 400)
# accuracies of two seeds; 0.95 is reached halfway from 0.9 to 1
TRAIN = {
    DECAY: [[0, 0.9, 1, 1, 1], [0, 0, 0.9, 1, 1]],  # at 150 and 250
    PLAIN: [[0, 0.9, 1, 1, 1], [0, 0.9, 1, 1, 1]],
    MORE: [[0, 0.9, 1, 1, 1], [0, 0.9, 1, 1, 0.98]],
}
TEST = {
    DECAY: [[0, 0.1, 0.2, 0.9, 1], [0, 0, 0.2, 0.4, 0.95]],  # at 350 and 400
    PLAIN: [[0, 0, 0.1, 0.2, 0.3], [0, 0, 0, 0.95, 1]],  # never, and at 300
    MORE: [[0, 0, 0.95, 1, 1], [0, 0.95, 1, 1, 1]],  # at 200 and 100
}


def runs(train=TRAIN, test=TEST):
    wrong = [[9] * 5, [9] * 5]  # losses, which no claim reads
    return [
        HandMadeRun(
            one,
            STEPS,
            {
                ("train", "accuracy"): train[one.label],
                ("test", "accuracy"): test[one.label],
                ("train", "loss"): wrong,
                ("test", "loss"): wrong,
            },
        )
        for one in experiments(replace(QUICK, seeds=2))
    ]


def test_values_of_runs_made_by_hand():
    assert values_of(STUDY, see(runs())) == {
        "long-after": pytest.approx((350 / 150 + 400 / 250) / 2),
        "memorised-first": pytest.approx((0.2 + 0.4) / 2),  # at 200 and 300
        "decay-sooner": 0.5,  # the second seed generalises sooner without
        "less-data-later": pytest.approx((350 / 200 + 400 / 100) / 2),
        "memorised": pytest.approx((1 + 0.98) / 2),
    }


def test_a_model_that_groks_agrees():
    late = [[0, 0.9, 1, 1, 1]] * 2
    test = {DECAY: [[0, 0, 0, 0, 1]] * 2, PLAIN: [[0] * 5] * 2, MORE: [[0, 0, 0, 0, 1]] * 2}
    train = {**dict.fromkeys(TRAIN, late), DECAY: [[0.9, 1, 1, 1, 1]] * 2}
    assert verdicts_of(STUDY, see(runs(train, test))) == {
        "long-after": "agrees at small scale",
        "memorised-first": "agrees at small scale",
        "decay-sooner": "agrees at small scale",
        "less-data-later": "differs at small scale",
        "memorised": "agrees at small scale",
    }


def test_a_model_that_generalises_at_once_differs():
    found = verdicts_of(STUDY, see(runs(TRAIN, {**TEST, DECAY: TRAIN[DECAY], PLAIN: TRAIN[DECAY]})))
    assert found["long-after"] == found["memorised-first"] == found["decay-sooner"] == "differs at small scale"


def test_what_never_comes_is_not_judged():
    never = {**TEST, DECAY: [[0] * 5, [0, 0, 0, 1, 1]]}
    found = values_of(STUDY, see(runs(test=never)))
    assert found["long-after"] is found["less-data-later"] is None
    assert found["decay-sooner"] == 0.5  # 295 before 300
    unfit = {**TRAIN, DECAY: [[0] * 5, [0, 1, 1, 1, 1]]}
    assert values_of(STUDY, see(runs(unfit)))["memorised-first"] is None


def test_experiments_differ_in_decay_and_data_alone():
    decay, plain, more = experiments(QUICK)
    assert (decay.recipe.optimiser.weight_decay, plain.recipe.optimiser.weight_decay) == (1.0, 0.0)
    assert decay.task == plain.task and decay.task.training_pairs == round(0.6 * 41**2) == decay.recipe.data.size
    assert more.task == decay.task.replace(fraction=0.75) and more.recipe.data.size == round(0.75 * 41**2)
    assert more.recipe.replace(data=decay.recipe.data) == decay.recipe
