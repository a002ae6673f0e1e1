"""The page on servers does what it says."""

import pytest

from tests.documents import DOCS, blocks
from tests.language.endpoint.scripted import served

PAGE = DOCS / "how_to" / "endpoints.md"


@pytest.mark.usefixtures("smollm2")
def test_the_page_on_servers_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with served() as server:
        code = "\n".join(blocks(PAGE, "python")).replace("http://127.0.0.1:8000/v1", server.url)
        exec(compile(code, PAGE.name, "exec"), {})
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "0.0 0.25"
    assert "Tally(remembered=0, answered=150, refused=0" in said
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == len(server.asked) == 150
