"""`check` and `export`, on a task whose rows are known."""

import json
import time

import pytest

from anchorlab.cli.terminal.output import waiting
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
        (["--format", "csv", "--out", "x"], "format: unknown format 'csv'; known: hf, jsonl, lm-eval, parquet"),
        (["--format", "lm-eval", "--out", "x"], "format: lm-eval takes questions in words, which made does not have;"),
        (["--n", "0", "--out", "x"], "n: cannot write 0 sequences"),
        (["--split", "tran", "--out", "x"], "split: unknown split 'tran'; did you mean 'train'?"),
        (["--out", "made.toml"], "made.toml is a file; name a folder"),
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
