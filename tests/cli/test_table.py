"""`anchorlab table`: from a text to a task over its characters."""

import json

import pytest

from anchorlab.cli.main import main
from anchorlab.errors import SpecError
from anchorlab.tasks import NoisyRecall, task


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "rhyme.txt"
    path.write_text("abcabcaabbcc" * 5)
    return path


def test_a_text_becomes_a_table_and_a_task(text, tmp_path, capsys):
    assert main(["table", str(text), "--folder", str(tmp_path / "tables"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["number"] == 3
    recall = task("recall/noisy", source=said["counts"], triggers=(0,), length=8)
    assert recall.chain.states == 4
    assert recall.chain.transition[0, :3].tolist() == pytest.approx([5 / 20, 15 / 20, 0])
    assert recall.text_of(2) == "c"


def test_a_changed_table_is_refused(text, tmp_path, capsys):
    main(["table", str(text), "--folder", str(tmp_path)])
    counts = tmp_path / "rhyme_bigrams.csv"
    made = NoisyRecall(source=str(counts), triggers=(0,), length=8)
    assert NoisyRecall.parse(made.model_dump(), "task") == made
    text.write_text("abcabcaabbcc" * 6)
    main(["table", str(text), "--folder", str(tmp_path)])
    with pytest.raises(SpecError, match=r"digest: the table .* has changed since"):
        NoisyRecall.parse(made.model_dump(), "task")
    again = NoisyRecall(source=str(counts), triggers=(0,), length=8)
    assert again.chain.transition[0, :3].tolist() == pytest.approx([6 / 24, 18 / 24, 0])
    capsys.readouterr()
    assert main(["table", str(tmp_path / "none.txt")]) == 2
    assert "none.txt cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("counts", "characters", "problem"),
    [
        ("1,2\n3\n", "[]", "not a square table"),
        ("1,2\n3,4\n", '["a"]', "different numbers of rows and characters"),
        (None, "[]", "read"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, counts, characters, problem):
    if counts is not None:
        (tmp_path / "x_bigrams.csv").write_text(counts)
    (tmp_path / "x_characters.json").write_text(characters)
    with pytest.raises(SpecError, match=problem):
        NoisyRecall(source=str(tmp_path / "x_bigrams.csv"), triggers=(0,), length=8).text_of(0)
