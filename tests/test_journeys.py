"""What a newcomer wants to do works as `docs/journeys.md` shows it, in a few lines each."""

import re
import shlex

import pytest

from anchorlab.cli import main
from tests.documents import DOCS, all_blocks

PAGE = DOCS / "journeys.md"
MOST_LINES = 8


def test_none_is_long():
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        title = section.splitlines()[0]
        code = re.findall(r"^```\w+\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        lines = [line for line in "".join(code).splitlines() if line.strip()]
        assert 1 <= len(lines) <= MOST_LINES, title


@pytest.mark.slow
def test_all_work_one_after_the_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("ANCHORLAB_STORE", str(tmp_path / "runs"))
    names: dict[str, object] = {}
    said = {}
    for at, (language, text) in enumerate(all_blocks(PAGE)):
        if language == "python":
            exec(compile(text, f"{PAGE.name}, block {at}", "exec"), names)
        else:
            for line in text.splitlines():
                named = {name.upper(): names[name].run.address for name in ("run", "other") if name in names}
                words = [named.get(word, word) for word in shlex.split(line, comments=True)]
                assert main(words[1:]) == 0, (line, capsys.readouterr().err)
                said[" ".join(words[1:3])] = capsys.readouterr().out
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {
        "accuracy.png",
        "pattern.png",
        "ablated.png",
        "patched.png",
        "identity",
        "plus-five",
        "runs",
    }
    assert all((tmp_path / name).stat().st_size > 5000 for name in made if name.endswith(".png"))
    assert names["run"].run.address[:8] in said["runs --where"]
