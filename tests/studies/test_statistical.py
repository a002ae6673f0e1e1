"""The statistical study's numbers on hand-made scores."""

import pytest
import torch

from anchorlab.studies.anchor.statistical import CONTENT, KINDS, measure


def made_up(answer: float, right: list[float]) -> dict[str, torch.Tensor]:
    """Two members and five sequences, of which the last bears x + 1."""
    return {
        "label accuracy": torch.tensor([right, right]),
        "probability of answer": torch.full((2, 5), answer),
        "probability of changed": torch.full((2, 5), 1 - answer),
        "total variation": torch.full((2, 5), abs(answer - 0.8)),
        "changed": torch.tensor([[False] * 4 + [True]] * 2),
    }


def test_measures_by_hand() -> None:
    scores = {(kind, content): made_up(0.8, [1.0, 1.0, 1.0, 1.0, 0.0]) for kind in KINDS for content in CONTENT}
    scores["second", "unseen"] = made_up(0.6, [1.0, 0.0, 1.0, 1.0, 1.0])
    found = {name: value for name, value in measure(scores).items() if value is not None}
    assert found["all-labels"].tolist() == pytest.approx([0.8] * 8)
    assert found["unchanged"].tolist() == pytest.approx([1.0] * 6 + [0.75] * 2)
    assert found["changed"].tolist() == pytest.approx([0.0] * 6 + [1.0] * 2)
    assert found["probability-of-x"].tolist() == pytest.approx([0.8] * 4)
    assert found["probability-of-x-plus-1"].tolist() == pytest.approx([0.2] * 4)
    assert found["second-kind"].tolist() == pytest.approx([0.8, 0.8, 0.6, 0.6])
    assert found["distance"].tolist() == pytest.approx([0.0, 0.0, 0.2, 0.2], abs=1e-6)
