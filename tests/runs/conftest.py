import pytest

from anchorlab.runs import Cell, Store


@pytest.fixture
def cell():
    return Cell({"task": {"name": "tiny"}, "members": [3, 1, 4], "format": 1}, label="tiny one")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(request, monkeypatch):
    """A killed process loses nothing that it has written, only a machine without power does: tests need not wait."""
    if "disk" not in request.fixturenames:
        monkeypatch.setattr("os.fsync", lambda descriptor: None)
