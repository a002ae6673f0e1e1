"""Ceilings of curves against closed forms."""

from math import log

import pytest

from anchorlab.errors import SpecError
from anchorlab.studies.ideal import ideal_scores
from anchorlab.tasks import task


def test_the_noisy_associative_memory():
    """p(y | x) is the prediction: its loss is the law's entropy in training and -log(1 - alpha) without noise."""
    memory = task("associative/noisy", inputs=3, alpha=0.1)
    entropy = -0.9 * log(0.9) - 0.1 * log(0.1)
    assert ideal_scores(memory, "train", n=30) == pytest.approx({"loss": entropy, "right": 0.9, "noise": 0.1}, rel=1e-5)
    assert ideal_scores(memory, "clean", n=30)["loss"] == pytest.approx(-log(0.9), rel=1e-5)


@pytest.mark.parametrize("alpha", [0.25, 0.5])
def test_recall_in_clean_sequences(alpha):
    """Where y has been told it gets 1 - alpha, else a seventh of that; the noise gets alpha in any case."""
    recall = task("recall/noisy", source="uniform", tokens=7, length=10, alpha=alpha)
    trigger = recall.triggers[0]
    tokens = recall.sample("clean", 500, seed=0).inputs.tolist()
    told = sum(trigger in sequence[:-2] for sequence in tokens) / 500  # what follows a trigger at T - 1 is set
    assert 0.5 < told < 0.9
    found = ideal_scores(recall, "clean", n=500, seed=0)
    assert found["right"] == pytest.approx((1 - alpha) * (told + (1 - told) / 7), rel=1e-5)
    assert found["noise"] == pytest.approx(alpha, rel=1e-5)
    assert found["loss"] == pytest.approx(-log(1 - alpha) + (1 - told) * log(7), rel=1e-5)


def test_least_squares_in_a_task_of_vectors():
    """The least-norm fit of k of d exact pairs leaves 1 - k/d of a variance of 1."""
    one = task("classics/linear-regression", dimension=4, examples=6)
    found = ideal_scores(one, "train", n=20_000)
    assert found == pytest.approx(dict.fromkeys(("loss", "error"), (1 + 0.75 + 0.5 + 0.25) / 6), rel=0.03)


def test_no_prediction_beats_it_on_its_own_law():
    recall = task("recall/noisy", source="uniform", tokens=5, length=12, alpha=0.5)
    batch = recall.sample("train", 4096, seed=0)
    law = recall.ideal(batch.inputs)
    for weight in (0.9, 0.5):  # mixed with guessing
        worse = weight * law + (1 - weight) / law.shape[-1]
        loss = -worse.gather(-1, batch.targets.unsqueeze(-1)).log().mean()
        assert ideal_scores(recall, "train")["loss"] < float(loss)


def test_a_task_without_an_exact_predictor_says_so():
    with pytest.raises(SpecError):
        ideal_scores(task("retrieval/minimal"), "train", n=4)
