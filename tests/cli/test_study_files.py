"""`anchorlab study` of files: a Python file with a study of one's own, a TOML file that varies one."""

import json
import subprocess
import sys

import pytest

from tests.studies.study_file import write


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """Python's path as it was before."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_a_python_file_takes_the_options_of_any_study(anchorlab, workplace):
    write(workplace, "cli_options")
    options = ("--seeds", "4:6", "--model.width", "4,6", "--report", "all.html", "--workers", "1", "--json")
    said = anchorlab("study", "cli_options.py", *options)
    assert (said.code, said.err) == (0, "")
    found = json.loads(said.out)
    assert [one["study"] for one in found] == [f"own/cli_options-width-{width}-seeds-4-5" for width in (4, 6)]
    assert {claim["verdict"] for one in found for claim in one["claims"]} == {"supported"}
    assert {one["provenance"]["seeds"] for one in found} == {"4..5"}
    assert (workplace / "all.html").stat().st_size > 1000


def test_a_toml_file_says_the_profile(anchorlab, workplace):
    write(workplace, "cli_base")
    (workplace / "mine.toml").write_text('profile = "none"\nseeds = 1\n')
    said = anchorlab("study", "cli_base.py", "--vary", "mine.toml")
    assert (said.code, said.err) == (2, "anchorlab: profile: unknown profile 'none'; known: quick\n")
    words = ("cli_base.py", "--vary", "mine.toml", "--profile", "quick", "--workers", "1", "--json")
    said = anchorlab("study", *words)
    assert said.code == 0
    found = json.loads(said.out)
    assert (found["study"], found["profile"]) == ("own/mine-own-cli_base", "quick")
    assert (workplace / "runs" / "studies" / "own-mine-own-cli_base" / "quick" / "report.html").exists()


def test_an_error_of_the_analysis_names_the_line(anchorlab, workplace):
    path = write(workplace, "cli_late")
    path.write_text(path.read_text().replace("runs[0]", "runs[1]"))
    line = path.read_text().splitlines().index('    return al.Analysis(al.at_end(runs[1], "train", "loss"))') + 1
    said = anchorlab("study", "cli_late.py", "--workers", "1")
    message = f"anchorlab: cli_late.py, line {line}: IndexError: list index out of range; correct the file"
    assert (said.code, said.err.splitlines()[-1]) == (2, message)


def test_a_file_and_a_study_of_ours_one_after_the_other(anchorlab, workplace):
    write(workplace, "cli_both")
    said = anchorlab("study", "cli_both.py", "retrieval/information-flow", "--profile", "smoke", "--json")
    assert said.code == 2  # the file has no smoke profile; the other study runs all the same
    mine, ours = json.loads(said.out)
    assert "unknown profile 'smoke'" in mine["error"] and ours["study"] == "retrieval/information-flow"


@pytest.mark.slow
def test_other_processes_know_its_task_and_model(workplace):
    more = "\nimport os, pathlib\nwith open('importers', 'a') as file:\n    print(os.getpid(), file=file)\n"
    write(workplace, "cli_spawned", more)
    command = "import sys; from anchorlab.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", command, "study", "cli_spawned.py", "--workers", "2"]
    done = subprocess.run(words, cwd=workplace, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    importers = (workplace / "importers").read_text().split()
    assert len(importers) == len(set(importers)) == 3  # this process and two others
    assert "1 claim: supported 1" in done.stdout


@pytest.mark.parametrize("word", ["mine.py", "mine.toml"])
def test_no_file_is_one_line(anchorlab, word):
    said = anchorlab("study", word)
    assert (said.code, said.out, said.new_files) == (2, "", set())
    assert said.err == f"anchorlab: study: there is no file {word}; check the path\n"
