import pytest


@pytest.fixture
def often(monkeypatch):
    """Reports after every step, so that a test can stop a training anywhere; and no waiting for the disk."""
    monkeypatch.setattr("anchorlab.training.trainer._REPORT_EVERY", 0.0)
    monkeypatch.setattr("anchorlab.training.trainer._LEAST_TRAINING_PER_KEEPING", 0)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
