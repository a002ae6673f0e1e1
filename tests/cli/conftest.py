import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from anchorlab.cli import main


@dataclass
class Spoken:
    """What a command said, and what it left in its working directory."""

    code: int
    out: str
    err: str
    new_files: set[str]


@pytest.fixture
def workplace(tmp_path, monkeypatch) -> Path:
    """An empty working directory, which holds the store of runs too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANCHORLAB_STORE", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


@pytest.fixture
def anchorlab(workplace, capsys):
    """Runs a command line in the working directory."""

    def call(*arguments: str) -> Spoken:
        before = {str(path) for path in workplace.rglob("*")}
        capsys.readouterr()
        code = main(arguments)
        out, err = capsys.readouterr()
        return Spoken(code, out, err, {str(path) for path in workplace.rglob("*")} - before)

    return call


@pytest.fixture
def refused(anchorlab):
    """The one line that refuses a command line: exit code 2, nothing printed beside it and nothing written."""

    def call(*arguments: str) -> str:
        said = anchorlab(*arguments)
        assert (said.code, said.out, said.err.count("\n"), said.new_files) == (2, "", 1, set())
        return said.err

    return call


MODEL = ["--model.layers=1", "--model.heads=1", "--model.width=8", "--model.head-width=4"]
RECIPE = ["--recipe.batch=10", "--recipe.data.size=20", "--recipe.evaluation.size=10", "--recipe.duration=4"]


@pytest.fixture
def small() -> list[str]:
    """Options that make a training of a blink."""
    return [*MODEL, *RECIPE, "--workers=1", "--seeds=0:2"]


@pytest.fixture
def trained(anchorlab):
    """Trains as the words of a command line say, and returns the run's address."""
    return lambda *words: json.loads(anchorlab("train", *words, "--json").out)["run"]


@pytest.fixture
def address(trained, small):
    """A run of two members."""
    return trained("anchor/identity", *small)


@pytest.fixture
def folder(workplace):
    """A tiny random language model as a folder of its own."""
    pytest.importorskip("transformers")
    from anchorlab.papers.pretrained.tiny import tiny_model

    made = tiny_model()
    made.hugging_face.save_pretrained(workplace / "tiny")
    made.tokenizer.save_pretrained(workplace / "tiny")
    return "tiny"
