"""Noisy labels: their distribution, and what is refused."""

import numpy as np
import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.tasks import Labels, Operation


class TestLabels:
    def test_copies_are_exact(self) -> None:
        random = np.random.default_rng(0)
        assert Labels(copies=5).changed_rows(12, random).nonzero()[0].tolist() == [4, 9]
        assert Labels(copies=4, changed=3).share == 0.75
        share = Labels(probability=0.3).changed_rows(100_000, random).mean()
        assert abs(share - 0.3) < 5 * (0.21 / 100_000) ** 0.5
        with pytest.raises(SpecError, match="changed: 5 of 5 copies"):
            Labels(copies=5, changed=5)


def test_an_answer_keeps_its_label_where_the_change_would_leave_the_vocabulary() -> None:
    labels = Labels(change=Operation.parse("+5"), probability=0.25, targets="distribution")
    found = labels.distribution(torch.tensor([[2], [6]]), size=10)
    assert found[0, 0].tolist() == pytest.approx([0, 0, 0.75, 0, 0, 0, 0, 0.25, 0, 0])
    assert found[1, 0].tolist() == pytest.approx([0, 0, 0, 0, 0, 0, 1, 0, 0, 0])
