"""The multi-anchor study's numbers against a count over samples and hand-made accuracies."""

import pytest
import torch

from anchorlab.studies.anchor.multi_anchor import ANCHORS, answer_frequency, measure
from anchorlab.tasks import task


def test_frequencies_are_those_of_the_sampler() -> None:
    one, n = task("anchor/multi-anchor"), 400_000
    labels = torch.bincount(one.sample("train", n, 0).targets[:, 0], minlength=201) / n
    test = one.sample("test", 20_000, 0)
    anchors, answers = test.latents["anchors"][:, 0], test.answers[:, 0]
    counted = torch.stack([labels[answers[anchors == a].unique()].mean() for a in ANCHORS])
    assert torch.allclose(answer_frequency(), counted.float(), atol=4 * (0.01 / n / 8) ** 0.5)


def test_the_smallest_answer_of_all_by_hand() -> None:
    """21 = 20 + 1 is never trained, 22 only as 20 + 2, ..., 28 as 20 + 8 .. 26 + 2: by hand 0 .. 7 of 730."""
    assert float(answer_frequency()[0]) == pytest.approx(sum(range(8)) / 8 / 730)


def test_measures_by_hand() -> None:
    accuracy = torch.tensor([[0.0, 0.5], [0.5, 0.5], *[[1.0, 1.0]] * 6, [0.9, 0.4], [0.4, 0.8]])
    found = measure(accuracy, torch.tensor([1.0, 0.97]), torch.linspace(0.1, 1.0, 10))
    assert found["fits"].tolist() == pytest.approx([0.97])
    assert found["operations"].tolist() == [1.0, 1.0]
    inner = [(6 + 0.9) / 7, (6 + 0.4) / 7]
    assert found["boundary"].tolist() == pytest.approx([0.3 - inner[0], 0.6 - inner[1]])
    assert found["worst"].tolist() == [1.0, 0.0]
    assert found["rare-answers"].item() == pytest.approx((0.1 + 0.2 + 1.0) / 3 / ((0.3 + 0.9) / 2))
    unfitted = measure(accuracy, torch.tensor([0.5, 1.0]), torch.linspace(0.1, 1.0, 10))
    assert unfitted["operations"] is None and unfitted["worst"] is None
