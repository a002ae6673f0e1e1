"""The multi-anchor study's numbers against a count over samples and hand-made accuracies."""

from dataclasses import replace

import pytest
import torch

from anchorlab.papers.anchor.multi_anchor import ANCHORS, QUICK, STUDY, Seen, answer_frequency, experiments
from anchorlab.tasks import task
from tests.papers.hand_made_runs import HandMadeRun, ends, judged, results_of, seen_by_hand, values_of


def test_frequencies_of_answers_are_those_of_the_sampler_and_those_counted_by_hand():
    one, n = task("anchor/multi-anchor"), 400_000
    labels = torch.bincount(one.sample("train", n, 0).targets[:, 0], minlength=201) / n
    test = one.sample("test", 20_000, 0)
    anchors, answers = test.latents["anchors"][:, 0], test.answers[:, 0]
    counted = torch.stack([labels[answers[anchors == a].unique()].mean() for a in ANCHORS])
    assert torch.allclose(answer_frequency(), counted.float(), atol=4 * (0.01 / n / 8) ** 0.5)
    # 21 = 20 + 1 is never trained, 22 only as 20 + 2, ..., 28 as 20 + 8 .. 26 + 2: by hand 0 .. 7 of 730
    assert float(answer_frequency()[0]) == pytest.approx(sum(range(8)) / 8 / 730)
    # by hand: 30 to 37, the answers of 2, each have nine makers in training, all anchors but 2; so have those of 3
    assert answer_frequency()[1:3].tolist() == pytest.approx([9 / 10 / 73] * 2)


def by_hand(accuracy, train, frequency):
    return seen_by_hand(Seen, accuracy=accuracy, train=train, frequency=frequency)


# The anchors 1, 2, then 3 to 8, then 9 and 10; two seeds, the second of which learns 9 worst.
ACCURACY = torch.tensor([[0.0, 0.5], [0.5, 0.5], *[[1.0, 1.0]] * 6, [0.9, 0.4], [0.4, 0.8]])
RISING = torch.linspace(0.1, 1.0, 10)  # by rank 1 to 10


@pytest.mark.slow
def test_values_by_hand():
    seen = by_hand(ACCURACY, torch.tensor([1.0, 0.97]), RISING)
    inner = [(6 + 0.9) / 7, (6 + 0.4) / 7]
    # Means over seeds: 0.25, 0.5, six of 1, 0.65, 0.6, so the ranks are 1, 2, six of 7.5, 4, 3. Against 1 to 10:
    # centred products -4.5 * -4.5 + -3.5 * -3.5 + 2 * (-2.5 - 1.5 - 0.5 + 0.5 + 1.5 + 2.5) - 1.5 * 3.5 - 2.5 * 4.5,
    # squares 82.5 and 4.5 ** 2 + 3.5 ** 2 + 6 * 4 + 1.5 ** 2 + 2.5 ** 2.
    correlation = (20.25 + 12.25 - 5.25 - 11.25) / (82.5 * 65) ** 0.5
    # the boundary and rare answers are those of the anchor 10
    boundary, rare = (0.4 - inner[0] + 0.8 - inner[1]) / 2, 1.0 / ((0.3 + 0.9) / 2)
    expected = {"fits": 0.97, "operations": 1.0, "boundary": boundary, "worst": 0.5, "rare-answers": rare}
    assert values_of(STUDY, seen) == pytest.approx(expected | {"rarity-explains": correlation})


def test_the_opposite_by_hand():
    """The inner anchors are the worst, and their answers the rarest."""
    accuracy = torch.tensor([1.0, 0.9, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])[:, None]
    seen = by_hand(accuracy, torch.tensor([0.96]), accuracy[:, 0])
    assert values_of(STUDY, seen) == {
        "fits": pytest.approx(0.96), "operations": pytest.approx(0.4), "boundary": pytest.approx(1.0 - 0.4),
        "worst": 0.0, "rare-answers": pytest.approx(1.0 / 0.4), "rarity-explains": pytest.approx(1.0),
    }  # fmt: skip


def test_each_anchor_at_the_boundary_is_judged():
    """Two bad ones do not make up for one that is as good, and as frequent, as those within."""
    accuracy = torch.ones(10, 2)
    accuracy[[0, 1, 9]] = torch.tensor([[0.2, 0.4], [0.8, 0.6], [0.1, 0.1]])
    frequency = torch.tensor([0.2, 0.4, *[1.0] * 7, 0.8])
    found = results_of(STUDY, by_hand(accuracy, torch.ones(2), frequency))
    boundary, rare = found["boundary"], found["rare-answers"]
    assert (boundary.value, boundary.units) == (pytest.approx(-0.3), pytest.approx((-0.2, -0.4)))
    assert (boundary.agrees, boundary.detail) == (True, "-0.7 for 1, -0.3 for 2, -0.9 for 10")
    assert (rare.value, rare.verdict) == (pytest.approx(0.8), "reproduced")
    assert rare.detail == "0.2 for 1, 0.4 for 2, 0.8 for 10"
    accuracy[1], frequency[1] = 1.0, 1.0
    found = results_of(STUDY, by_hand(accuracy, torch.ones(2), frequency))
    assert (found["boundary"].value, found["boundary"].agrees) == (0.0, False)
    assert (found["rare-answers"].value, found["rare-answers"].verdict) == (1.0, "contradicted")


def test_equally_bad_anchors_have_no_worst_one_and_what_is_not_fitted_is_not_judged():
    (worst,) = (one for one in STUDY.claims if one.name == "worst")
    assert worst(by_hand(torch.zeros(10, 2), torch.ones(2), RISING)).tolist() == [False, False]
    unfitted = judged(STUDY, by_hand(ACCURACY, torch.tensor([0.5, 1.0]), RISING))
    assert unfitted["fits"] == 0.5
    assert {name for name, value in unfitted.items() if value is not None} == {"fits", "rare-answers"}


def test_accuracies_are_read_anchor_by_anchor_on_unseen_keys():
    (experiment,) = experiments(replace(QUICK, seeds=2)).values()
    values = {("test", "accuracy", "none", str(anchor)): ends(anchor / 20, anchor / 10) for anchor in ANCHORS}
    values |= {("train", "accuracy", "none", str(anchor)): ends(0.77, 0.77) for anchor in ANCHORS}
    values |= {("train", "accuracy"): ends(0.97, 0.99), ("test", "accuracy"): ends(0.66, 0.66)}
    seen = STUDY.see([HandMadeRun(experiment, [0, 2500], values)], QUICK)
    torch.testing.assert_close(seen.accuracy, torch.tensor([[anchor / 20, anchor / 10] for anchor in ANCHORS]))
    assert seen.train.tolist() == pytest.approx([0.97, 0.99])
    torch.testing.assert_close(seen.frequency, answer_frequency())
