"""Attention and softmax removed, on accuracies and steps made by hand."""

from dataclasses import replace

import pytest
import torch

from anchorlab.papers.anchor import identity
from anchorlab.papers.anchor.attention import EQUAL, IN_0, IN_1, LINEAR, SOFTMAX, STUDY, Seen, experiments
from tests.papers.hand_made_runs import judged, run_ending, seen_by_hand, values_of

SETTING = replace(identity.TWO_LAYERS, seeds=2)
TEST = {SOFTMAX: (1, 1), LINEAR: (0.9, 0.3), EQUAL: (0.1, 0.2), IN_0: (1, 0.9), IN_1: (0.1, 0.6)}
TRAIN = {SOFTMAX: (1, 1), LINEAR: (0.96, 0.5), EQUAL: (0.98, 0.94), IN_0: (1, 1), IN_1: (1, 0.97)}


def seen(train):
    test, trained = ({name: torch.tensor(row).float() for name, row in rows.items()} for rows in (TEST, train))
    until = {SOFTMAX: torch.tensor([100.0, 150.0]), LINEAR: torch.tensor([200.0, 600.0])}
    return seen_by_hand(Seen, train=trained, test=test, until=until)


def test_values_of_accuracies_made_by_hand():
    values = {
        "attention-needed": 0.15, "layer-0-alone-fails": 0.35, "layer-1-alone-suffices": 0.95,
        "softmax-not-needed": 0.9, "softmax-sooner": 0.375,
    }  # fmt: skip
    assert values_of(STUDY, seen(TRAIN)) == pytest.approx({"fits": 0.96, **values})
    none_fits = values_of(STUDY, seen({**TRAIN, LINEAR: (0.94, 0.5)}))
    assert none_fits == pytest.approx({"fits": 0.96, **values, "softmax-not-needed": None})
    unfit = judged(STUDY, seen({**TRAIN, IN_1: (0.9, 0.97)}))
    assert unfit == {"fits": pytest.approx(0.935), **dict.fromkeys(values)}


def test_learning_lasts_until_the_accuracy_is_reached_or_to_the_end():
    one = experiments(SETTING)[LINEAR]
    found = Seen.until.read(run_ending(one, [1.0, 0.89], [1.0, 1.0], before=(0.0, 0.8)))
    half, whole = one.steps / 2, one.steps
    assert found.tolist() == pytest.approx([half + (whole - half) / 2, whole])


def test_models_differ_in_attention_alone_and_the_first_is_the_identity_study_s():
    found = experiments(SETTING)
    assert found[SOFTMAX].cell == identity.experiment(SETTING).cell
    kinds = [one.model.attention for one in found.values()]
    assert kinds == ["softmax", "linear", "uniform", ("uniform", "softmax"), ("softmax", "uniform")]
    assert {replace(one, model=SETTING.model).cell for one in found.values()} == {found[SOFTMAX].cell}
