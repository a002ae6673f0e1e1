"""The three matrices trained together, on curves and weights made by hand."""

import numpy as np
import pytest
import torch

from anchorlab.papers.truncation import joint_dynamics
from anchorlab.papers.truncation.joint_dynamics import STUDY, Seen, Setting
from anchorlab.theory.one_layer import OneLayer
from anchorlab.theory.uniform_recall import Sequences, UniformRecall
from tests.papers.hand_made_runs import results_of, seen_by_hand, values_of

STEPS = [0, 2, 4, 100, 200, 400]
CURVES = {
    "W_F, noise": [0, 0.5, 2, 2, 2, 2],
    "W_V, noise": [0, 0.1, 0.2, 0.2, 0.2, 0.2],
    "W_V, copying": [0, 0, 0, 0.5, 1.5, 3],
    "W_KQ, noise": [0, -0.002, -0.01, -0.01, -0.005, -2],
    "W_KQ, trigger": [0, 0, 0, 0, 1, 1],
    "attention to noise": [1, 1, 0.9, 0.9, 0.9, 0.05],
    "noise": [0.1, 0.3, 0.46, 0.5, 0.5, 0.5],
    "right": [0.1, 0.1, 0.1, 0.1, 0.1, 0.2],
    "noise without W_F": [0.1, 0.1, 0.1, 0.12, 0.1, 0.01],
    "right without W_F": [0.1, 0.1, 0.1, 0.1, 0.1, 0.6],
}


ALONE = {
    "attention to trigger": torch.tensor([2.0, 5.0]),
    "part of trigger": torch.tensor([0.3, 0.5]),
    "noise": torch.tensor([0.5, 0.4]),
    "noise without row": torch.tensor([0.1, 0.04]),
}


def seen_of(*changes):
    """One training set for each change of the curves."""
    along = {name: torch.tensor([{**CURVES, **one}[name] for one in changes]).double() for name in CURVES}
    return seen_by_hand(
        Seen,
        attention_alone=ALONE,
        setting=Setting(UniformRecall(10, 20, 0.5), 8, len(changes), 400),
        steps=STEPS,
        along=along,
    )


def test_claims_of_curves_made_by_hand():
    seen = seen_of({}, {})
    assert values_of(STUDY, seen) == {
        "feedforward-first": pytest.approx(0.1),
        "attention-later": pytest.approx(150 / 4),  # halfway from 0.5 at step 100 to 1.5 at 200
        "avoids-first": pytest.approx(-1),  # -0.01 · 10²
        "avoids-throughout": pytest.approx(-0.005),
        "avoids-at-end": pytest.approx(0.05),
        "in-order": 1,
        "noise-stays": pytest.approx(0.24),
        "right-without": pytest.approx(3),
        "trigger-attended": pytest.approx(3.5),
        "trigger-holds-noise": pytest.approx(0.4),
        "row-removes-noise": pytest.approx(0.15),
    }
    assert results_of(STUDY, seen)["in-order"].detail == "mean steps 2.67, 150, 300"


def test_claims_fail_where_attention_learns_the_noise():
    """W_V holds it, copying is never learned, and W_KQ seeks the noise after the first steps."""
    values = values_of(
        STUDY,
        seen_of(
            {
                "W_V, noise": [0, 1, 2, 2, 2, 2],
                "W_V, copying": [0.0] * 6,
                "W_KQ, noise": [0, 0, 0.01, 0.02, 0, -2],
                "attention to noise": [1, 1, 1, 1, 1, 0.5],
                "noise without W_F": [0.1, 0.1, 0.1, 0.4, 0.5, 0.5],
                "right without W_F": [0.1, 0.1, 0.1, 0.1, 0.1, 0.2],
            },
            {"W_KQ, noise": [0, 0, 0.01, 0, -2, -2], "W_V, copying": [0, 0, 0, 0, 0, 3]},  # avoided before copying
        ),
    )
    assert values["attention-later"] == pytest.approx((400 / 4 + (200 + 200 / 3) / 4) / 2)
    assert (values["in-order"], values["avoids-first"]) == (0, pytest.approx(1))
    assert values["avoids-throughout"] == pytest.approx((0.02 + 0.01) / 2)
    results = results_of(STUDY, seen_of({"W_V, noise": CURVES["W_F, noise"]}))
    assert results["feedforward-first"].value == 1
    assert values["noise-stays"] == pytest.approx((1 + 0.24) / 2)
    assert values["right-without"] == pytest.approx((1 + 3) / 2)


def test_noise_that_is_never_learned_counts_at_the_end():
    seen = seen_of({"noise": [0.1, 0.1, 0.2, 0.2, 0.2, 0.2]}, {})
    assert seen.noise_learned.tolist() == [5, 2]
    assert values_of(STUDY, seen)["avoids-first"] == pytest.approx((-200 - 1) / 2)


def test_quantities_of_known_matrices(monkeypatch):
    """Of tokens 0 the trigger, 1 to 3 and 4 the noise; the sequence is 1 0 2 0 4 0, and y is 1."""
    law, sequence = UniformRecall(4, 6, 0.5), np.array([1, 0, 2, 0, 4, 0])
    drawn = Sequences(sequence[:, None], np.array([1]), np.array([1]))
    monkeypatch.setattr(UniformRecall, "draw", lambda self, random, samples: drawn)
    value = np.zeros((5, 5))
    value[1:4, 1:4] = 3 * np.eye(3) + 1  # 4 for a token's own output, 1 for the other two
    value[4] = 5
    weights = OneLayer(np.array([9, 1, 2, 3, 8.0]), value, np.array([np.log(2), 0, 0, 0, np.log(0.5)]))
    monkeypatch.setattr(joint_dynamics, "train", lambda law, sample, rate, at: dict.fromkeys(sorted(at), weights))
    found = joint_dynamics._follow(Setting(law, 1, 1, 1), [0, 1], 0)
    assert {len(one) for one in found.values()} == {2}
    first = {name: one[0] for name, one in found.items()}
    # of 6 + 1 + 1 + 1/2 the triggers have 6, tokens 1 and 2 have 1 each and the noise a half
    attended = np.array([0, 4 / 8.5 + 1 / 8.5, 1 / 8.5 + 4 / 8.5, 2 / 8.5, 5])
    full = np.exp(attended + weights.feedforward)
    alone = np.exp(attended)
    assert first == pytest.approx({
        "W_F, noise": 8 - 2,
        "W_V, noise": 5 - 4 / 8.5,
        "W_V, copying": 3,
        "W_KQ, noise": np.log(0.5),
        "W_KQ, trigger": np.log(2),
        "attention to noise": (0.5 / 8.5) / (1 / 6),
        "noise": full[4] / full.sum(),
        "right": full[1] / full.sum(),
        "noise without W_F": alone[4] / alone.sum(),
        "right without W_F": alone[1] / alone.sum(),
    })  # fmt: skip


def test_what_attention_holds_without_the_layer_by_known_matrices(monkeypatch):
    """Of 0 the trigger, twice, 1 to 3 and 4 the noise, once each; the trigger has three times the others' weight."""
    law, sequence = UniformRecall(4, 6, 0.5), np.array([1, 0, 2, 0, 4, 3])
    drawn = Sequences(sequence[:, None], np.array([1]), np.array([1]))
    monkeypatch.setattr(UniformRecall, "draw", lambda self, random, samples: drawn)
    value = np.zeros((5, 5))
    value[4], value[1, 1] = [6, 1, 1, 1, 0], 4
    weights = OneLayer(np.zeros(5), value, np.array([np.log(3), 0, 0, 0, 0]))  # 3 + 3 of 10 to the trigger
    asked = []
    monkeypatch.setattr(
        joint_dynamics, "train", lambda law, sample, rate, at, feed_forward: asked.append(feed_forward) or {7: weights}
    )
    found = joint_dynamics._without_layer(Setting(law, 1, 1, 7), 0)
    assert asked == [False]
    noise, other = np.exp(0.6 * 6 + 0.3), np.exp(0.4)
    assert found == pytest.approx({
        "attention to trigger": 0.6 / (2 / 6),
        "part of trigger": 3.6 / 3.9,
        "noise": noise / (noise + other + 3),
        "noise without row": 1 / (1 + other + 3),
    })  # fmt: skip


def test_every_training_set_is_followed_along_all_steps():
    seen = Seen({}, STUDY.smoke)
    assert seen.steps[0] == 0 and seen.steps[-1] == STUDY.smoke.steps
    assert {tuple(one.shape) for one in seen.along.values()} == {(3, len(seen.steps))}
    assert len({*seen.along["W_F, noise"][:, -1].tolist()}) == 3  # each has sequences of its own
    assert seen.along["right"][:, 0].tolist() == pytest.approx([1 / 6] * 3)  # zero matrices
