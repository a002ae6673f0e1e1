"""The page on servers does what it says."""

import pytest

from tests.documents import DOCS, blocks
from tests.language.endpoint.scripted import served

PAGE = DOCS / "how_to" / "endpoints.md"


@pytest.mark.nightly
@pytest.mark.usefixtures("smollm2")
def test_the_page_on_servers_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with served() as server:
        code = "\n".join(blocks(PAGE, "python")).replace("http://127.0.0.1:8000/v1", server.url)
        assert "quick-unbegun@" in code
        exec(compile(code.replace("quick-unbegun@", "smoke@"), PAGE.name, "exec"), {})
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "0.0 0.25"
    of_study = [file.read_text().splitlines() for file in (tmp_path / "runs" / "answers").glob("*.jsonl")]
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 150
    assert len(server.asked) == 150 + sum(map(len, of_study)) and of_study
