"""The frequency study's numbers on hand-made curves."""

import pytest
import torch

from anchorlab.studies.anchor.frequency import measure


def test_measures_by_hand() -> None:
    fitted = {"low": torch.tensor([100.0, 120.0]), "high": torch.tensor([200.0, 90.0])}
    generalised = {"low": torch.tensor([300.0, torch.nan]), "high": torch.tensor([400.0, 500.0])}
    final = {"low": torch.tensor([1.0, 0.8]), "high": torch.tensor([0.95, 0.9])}
    found = measure(fitted, generalised, final)
    assert found["accuracy-first"] is None
    assert found["loss-first"].tolist() == [1.0, 0.0]
    assert found["slower"].tolist() == pytest.approx([2.0, 0.75])
    assert found["both-learned"].tolist() == pytest.approx([0.95, 0.8])
