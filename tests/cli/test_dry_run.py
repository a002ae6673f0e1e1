"""`--dry-run`: what is said is what would run, and nothing is written."""

import json
import sys

import pytest

from anchorlab.cli.terminal.forecast import duration, size
from tests.studies.study_file import write

TRAIN = ("train", "anchor/identity")


@pytest.mark.slow
def test_train_says_what_it_would_take(anchorlab, small):
    said = anchorlab(*TRAIN, *small, "--dry-run")
    assert (said.code, said.new_files) == (0, set())
    assert "left to train: 1 cell, 2 members, 8 member-steps" in said.out
    assert "with 1 process" in said.out and "nothing was trained or written" in said.out
    found = json.loads(anchorlab(*TRAIN, *small, "--dry-run", "--json").out)
    address = json.loads(anchorlab(*TRAIN, *small, "--json").out)["run"]
    assert [(cell["run"], cell["state"]) for cell in found["cells"]] == [(address, "new")]
    assert (found["workers"], found["device"]) == (1, "cpu") and 0 < found["seconds"] < 60
    again = anchorlab(*TRAIN, *small, "--dry-run")
    assert "finished" in again.out and "left to train: 0 cells" in again.out and "time:" not in again.out
    assert not again.new_files


def test_a_study_says_the_cells_that_it_runs(anchorlab, workplace, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    write(workplace, "cli_dry")
    options = ("study", "cli_dry.py", "--seeds", "0:3", "--recipe.duration", "4,5", "--workers", "1")
    said = anchorlab(*options, "--dry-run", "--json")
    assert (said.code, said.new_files) == (0, set())
    found = json.loads(said.out)
    assert found["left"] == {"cells": 4, "members": 6, "member_steps": 3 * 4 + 3 * 5}
    assert {cell["study"] for cell in found["cells"]} == {
        f"own/cli_dry-duration-{steps}-seeds-0-to-2" for steps in (4, 5)
    }
    assert anchorlab(*options, "--json").code == 0
    runs = {path.name for path in (workplace / "runs").iterdir()} - {"studies", "plugins.json", "lock"}
    assert {cell["run"] for cell in found["cells"]} == runs
    assert json.loads(anchorlab(*options, "--dry-run", "--json").out)["left"]["cells"] == 0


def test_several_studies_and_one_that_trains_nothing(anchorlab):
    names = ("anchor/identity", "anchor/frequency", "language/heads")
    said = anchorlab("study", *names, "--profile", "smoke", "--workers", "1", "--dry-run")
    assert (said.code, said.new_files) == (0, set())
    assert "anchor/frequency" in said.out and "for the controls" in said.out
    assert "not included, since they train nothing: language/heads" in said.out


def test_a_bad_field_or_device_is_named_as_without_it(anchorlab):
    said = anchorlab("study", "anchor/identity", "--model.heads", "0", "--dry-run")
    assert said.code == 2 and said.err.startswith("anchorlab: model.heads: ")
    said = anchorlab(*TRAIN, "--device", "abacus", "--dry-run")
    assert said.code == 2 and said.err.startswith("anchorlab: device: ")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "1 s"),
        (89, "89 s"),
        (91, "2 min"),
        (3600, "60 min"),
        (5400, "1 h 30 min"),
        (7200, "2 h"),
        (7490, "2 h"),
        (86400, "24 h"),
        (36 * 3600, "1 day 12 h"),
        (48 * 3600, "2 days"),
    ],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(("number", "words"), [(500, "0.5 kB"), (2_500_000, "2.5 MB"), (1_234_000_000, "1.23 GB")])
def test_sizes(number, words):
    assert size(number) == words
