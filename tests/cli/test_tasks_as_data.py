"""`check` and `export`, on a task whose rows are known, and `table`, which makes a task of the characters of a text."""

import json
import os
import time

import pytest

from anchorlab.cli.main import main
from anchorlab.cli.terminal.output import waiting
from anchorlab.errors import SpecError
from anchorlab.tasks import NoisyRecall, task
from tests.made_up_task import MadeUp

HOLDS = 'family = "test-made-up"\nwords = ["first words", "the second: 12 of 12"]\n'


@pytest.fixture
def made_up(workplace):
    (workplace / "made.toml").write_text(HOLDS)
    (workplace / "broken.toml").write_text(HOLDS + "holds = false\n")
    return workplace


def test_check_says_whether_it_holds_also_as_json(anchorlab, made_up):
    said = anchorlab("check", "made.toml")
    assert (said.code, said.out, said.err) == (0, "first words\nthe second: 12 of 12\nholds\n", "")
    said = anchorlab("check", "broken.toml")
    assert (said.code, said.out.splitlines()[-1], said.err) == (1, "does not hold", "")
    said = anchorlab("check", "broken.toml", "--json")
    assert said.code == 1
    assert json.loads(said.out) == {
        "task": "broken.toml", "method": "enumeration", "holds": False,
        "words": ["first words", "the second: 12 of 12"], "numbers": {"latents": 3},
    }  # fmt: skip


def test_export_and_export_again_from_what_it_wrote(anchorlab, made_up):
    said = anchorlab("export", "made.toml", "--format", "jsonl", "--n", "3", "--out", "first", "--seed", "5")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("3 sequences each of train, test on data in ")
    first = made_up / "first"
    assert json.loads((first / "train.jsonl").read_text().splitlines()[2])["inputs"] == [2, 3, 5]
    card = (first / "README.md").read_text()
    command = next(line for line in card.splitlines() if line.startswith("anchorlab export "))
    words = command.replace("specification.toml", "first/specification.toml").replace("FOLDER", "second").split()
    assert anchorlab(*words[1:]).code == 0
    for path in first.iterdir():
        assert path.read_bytes() == (made_up / "second" / path.name).read_bytes()


def test_export_of_some_splits_as_json(anchorlab, made_up):
    said = anchorlab("export", "made.toml", "--split", "test on data", "--n=2", "--text", "--out=out", "--json")
    assert json.loads(said.out) == {
        "task": "made.toml", "folder": str(made_up / "out"), "format": "parquet", "splits": ["test on data"], "n": 2,
        "files": ["README.md", "specification.toml", "test_on_data.parquet"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--split", "tran", "--out", "x"], "split: unknown split 'tran'; did you mean 'train'?"),
        (["--out", "."], "out: "),
        (["--out", "/proc/x"], "out: /proc/x cannot be written"),
        (["--task.length", "3", "--out", "x"], "task.length: made.toml is a file"),
        ([], "--out: has no value"),
    ],
)
def test_bad_export(refused, made_up, options, told):
    assert told in refused("export", "made.toml", *options)


def test_a_long_check_says_what_it_does(anchorlab, made_up, monkeypatch):
    monkeypatch.setattr("anchorlab.cli.terminal.output.FIRST", 0.01)
    quick = MadeUp.proof
    monkeypatch.setattr(MadeUp, "proof", lambda self: time.sleep(0.1) or quick(self))
    assert anchorlab("check", "made.toml").err == "checking made.toml\n"
    assert anchorlab("check", "made.toml", "--json").err == ""


def test_a_terminal_gets_a_spinner(monkeypatch, capsys):
    monkeypatch.setattr("anchorlab.cli.terminal.output.FIRST", 0.01)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    with waiting("[checking]"):
        time.sleep(0.2)
    assert "[checking]" in capsys.readouterr().err


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
