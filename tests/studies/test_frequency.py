"""The frequency study's numbers on hand-made curves."""

import pytest
import torch

from anchorlab.studies.anchor.frequency import measure
from anchorlab.studies.tables import first_crossing


def test_first_crossing_by_hand() -> None:
    steps = [0, 10, 20, 30]
    values = torch.tensor([[0.0, 0.5, 1.0, 1.0], [0.0, 0.2, 0.1, 0.4], [0.9, 0.0, 0.0, 0.0], [0.0, 0.8, 0.1, 0.9]])
    found = first_crossing(steps, values, 0.75)
    assert found[[0, 2, 3]].tolist() == pytest.approx([15.0, 0.0, 9.375]) and found[1].isnan()
    assert first_crossing(steps, 3 - values, 2.25, falling=True)[[0, 2, 3]].tolist() == pytest.approx([15, 0, 9.375])


def test_measures_by_hand() -> None:
    fitted = {"low": torch.tensor([100.0, 120.0]), "high": torch.tensor([200.0, 90.0])}
    generalised = {"low": torch.tensor([300.0, torch.nan]), "high": torch.tensor([400.0, 500.0])}
    final = {"low": torch.tensor([1.0, 0.8]), "high": torch.tensor([0.95, 0.9])}
    found = measure(fitted, generalised, final)
    assert found["accuracy-first"] is None
    assert found["loss-first"].tolist() == [1.0, 0.0]
    assert found["slower"].tolist() == pytest.approx([2.0, 0.75])
    assert found["both-learned"].tolist() == pytest.approx([0.95, 0.8])
