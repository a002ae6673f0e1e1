"""Truths as files: read back as written, and refused if damaged."""

import json

import pytest

from anchorlab.errors import SpecError
from anchorlab.rankings import Known, known_models
from anchorlab.rankings.models import handed_out
from tests.rankings.hand_made import BACKUP


def test_a_truth_is_read_back(tmp_path):
    (tmp_path / "one.json").write_text(json.dumps(BACKUP.model_dump(mode="json")))
    assert known_models(tmp_path) == {"one": BACKUP}
    assert BACKUP.landscape.minimal(0.1)[0] == (("0.0", "1.0"), ("0.1", "1.0"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"loss": [1.0] * 8}, "one.json: loss: has 8 numbers for 4 units; write it again"),
        ({"truth": {"units": [], "minimal": []}}, "one.json: truth.minimal: holds no sets of the units; write it"),
        ({"colour": 1}, "one.json: colour: unknown field"),
        ({"format": 2}, "one.json: format: "),
    ],
)
def test_a_damaged_truth(tmp_path, change, told):
    (tmp_path / "one.json").write_text(json.dumps(BACKUP.model_dump(mode="json") | change))
    with pytest.raises(SpecError, match=told) as caught:
        known_models(tmp_path)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_truth(tmp_path):
    with pytest.raises(SpecError, match=r"truth: .* holds no truth; name the folder `truth`"):
        known_models(tmp_path)
    (tmp_path / "one.json").write_text("{")
    with pytest.raises(SpecError, match=r"one.json: is damaged; write it again"):
        known_models(tmp_path)


def test_without_a_folder_the_models_are_measured(monkeypatch):
    """The default is the export with seed 0."""
    monkeypatch.setattr("anchorlab.rankings.known.handed_out", lambda: handed_out("identity/backup"))
    ((name, found),) = known_models().items()
    ((same, made),) = handed_out("identity/backup")
    assert name == same and isinstance(found, Known) and found.truth == made.truth
    # a model without its circuit gives equal logits to at least all 81 items
    assert found.loss[0] > 3 and found.loss[-1] < 1e-3
