import pytest

pytest.importorskip("openai")


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    """No key of the machine's own reaches a test."""
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "kept" / "answers.jsonl"
