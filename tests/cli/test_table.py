"""`anchorlab table`: from a text to a task over its characters."""

import json
import os

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
        ("1,2\n3," + "9" * 30, '["a", "b"]', "not a square table"),
        *[("1,2\n3,4\n", odd, "no list of characters") for odd in ("[" * 100_000, "7", '{"a": 1, "b": 2}', "[1, 2]")],
        ("\xff\n", "[]", "x_bigrams.csv cannot be read: it is no text;"),
        (None, "[]", "read"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, counts, characters, problem):
    if counts is not None:
        (tmp_path / "x_bigrams.csv").write_bytes(counts.encode("latin-1"))
    (tmp_path / "x_characters.json").write_text(characters)
    with pytest.raises(SpecError, match=problem):
        NoisyRecall(source=str(tmp_path / "x_bigrams.csv"), triggers=(0,), length=8).text_of(0)


@pytest.mark.parametrize("name", ["x_bigrams.csv", "x_characters.json"])
@pytest.mark.parametrize("odd", ["a pipe", "a large file"])
def test_a_run_of_somebody_else_names_no_pipe_or_large_file_as_table(tmp_path, name, odd, monkeypatch):
    (tmp_path / "x_bigrams.csv").write_text("1,2\n3,4\n")
    (tmp_path / "x_characters.json").write_text('["a", "b"]')
    spec = {"name": "recall/noisy", "source": str(tmp_path / "x_bigrams.csv"), "triggers": (0,), "length": 8}
    assert NoisyRecall.parse(spec, "task").text_of(1) == "b"
    (tmp_path / name).rename(tmp_path / "before")
    if odd == "a pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to(tmp_path / "before")
        assert NoisyRecall.parse(spec, "task").text_of(1) == "b"  # a link to a file of one's own
        monkeypatch.setattr("anchorlab.tasks.recall.markov._MOST_BYTES", 5)
    with pytest.raises(SpecError, match=r"_bigrams.csv cannot be read: is (neither a file nor|larger than 5 bytes)"):
        NoisyRecall.parse(spec, "task")


def test_a_table_is_the_same_with_either_end_of_a_line(tmp_path):
    found = []
    for end in ("\n", "\r\n"):
        (tmp_path / "x_bigrams.csv").write_bytes(f"1,2{end}3,4{end}".encode())
        (tmp_path / "x_characters.json").write_text('["a", "b"]')
        found.append(NoisyRecall(source=str(tmp_path / "x_bigrams.csv"), triggers=(0,), length=8).digest)
    assert found[0] == found[1] != ""
