"""`anchorlab study` of files, with other values, and with `--dry-run`, which says what would run and writes nothing."""

import json
import subprocess
import sys

import pytest

from anchorlab.cli.terminal.forecast import duration
from anchorlab.cli.terminal.output import size_text
from anchorlab.findings import Findings, Provenance
from anchorlab.studies import findings_directory
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


def test_an_error_of_a_claim_names_the_line(anchorlab, workplace):
    path = write(workplace, "cli_late")
    path.write_text(path.read_text().replace('seen.loss["mine"]', "seen.losses"))
    line = path.read_text().splitlines().index("    return seen.losses") + 1
    said = anchorlab("study", "cli_late.py", "--workers", "1")
    wrong = "AttributeError: 'Seen' object has no attribute 'losses'"
    message = f"anchorlab: cli_late.py, line {line}: {wrong}; correct the file"
    assert (said.code, said.err.splitlines()[-1]) == (2, message)


def test_one_claim_alone_is_printed_and_not_kept(anchorlab, workplace):
    write(workplace, "cli_claim")
    said = anchorlab("study", "cli_claim.py", "--claim", "finite", "--workers", "1", "--json")
    found = json.loads(said.out)
    assert (said.code, found["report"], [one["id"] for one in found["claims"]]) == (0, None, ["own/cli_claim/finite"])
    assert not (workplace / "runs" / "studies").exists()
    for more in (("--only", "mine"), ("--dry-run",), ("--report", "page.html")):
        said = anchorlab("study", "cli_claim.py", "--claim", "finite", *more)
        refused = f"anchorlab: {more[0].strip('-')}: cannot be combined with --claim; leave out one of them\n"
        assert (said.code, said.err) == (2, refused)


def test_some_experiments_alone_are_forecast_and_not_trained_in_a_dry_run(anchorlab, workplace):
    write(workplace, "cli_only")
    said = anchorlab("study", "cli_only.py", "--only", "mine", "--dry-run", "--workers", "1", "--json")
    (cell,) = json.loads(said.out)["cells"]
    assert (said.code, cell["label"], cell["state"]) == (0, "mine", "new")
    assert not any(one.endswith("spec.json") for one in said.new_files)
    said = anchorlab("study", "cli_only.py", "--only", "mine", "--report", "page.html")
    assert (said.code, said.err) == (2, "anchorlab: report: cannot be combined with --only; leave out one of them\n")
    words = ("--only", "mine", "--model.width", "4,6", "--dry-run", "--workers", "1", "--json")
    cells = json.loads(anchorlab("study", "cli_only.py", *words).out)["cells"]  # of two studies, with one label
    assert [one["label"] for one in cells] == ["mine", "mine"] and len({one["run"] for one in cells}) == 2


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


SOURCE = Provenance("smoke", "0", "2 CPU cores", "0123456789abcdef", "2.6.0", 141.0)
SMOKE = ("--profile", "smoke", "--json")


@pytest.fixture
def asked(monkeypatch):
    """The studies that were asked for, in order; nothing is trained."""
    found = []

    def run(chosen, profile, store, *_, on, parts, claims):
        found.append(chosen)
        claims = tuple(chosen.claim(one).judge(1.0, profile, own=chosen.has_own_claims) for one in chosen.claims)
        findings_directory(store, chosen.name, profile).mkdir(parents=True)
        return Findings(chosen.name, chosen.title, "", profile, SOURCE, claims=claims)

    monkeypatch.setattr("anchorlab.studies.run_study", run)
    return found


def test_fields_and_seeds(anchorlab, asked):
    options = ("--model.heads", "3", "--recipe.learning-rate=5e-3", "--seeds", "4:7")
    said = anchorlab("study", "anchor/identity", *SMOKE, *options)
    assert (said.code, said.err) == (0, "")
    (one,) = asked
    assert one.name == json.loads(said.out)["study"]
    assert one.name == "anchor/identity-heads-3-optimiser-learning-rate-5e-3-seeds-4-to-6"
    for experiment in one.experiments_of("smoke"):
        assert (experiment.model.heads, experiment.recipe.optimiser.learning_rate) == (3, 5e-3)
        assert experiment.members.seeds == (4, 5, 6)
    verdicts = {claim["verdict"] for claim in json.loads(said.out)["claims"]}
    assert verdicts <= {"supported", "not supported", "met", "not met"}


def test_several_values_make_several_studies(anchorlab, asked):
    said = anchorlab("study", "anchor/identity", *SMOKE, "--model.heads", "2,3", "--recipe.batch", "10,20")
    assert said.code == 0
    names = [f"anchor/identity-heads-{heads}-batch-{batch}" for heads in (2, 3) for batch in (10, 20)]
    assert [one.name for one in asked] == [one["study"] for one in json.loads(said.out)] == names


def test_a_list_is_one_value_where_the_field_holds_a_list(anchorlab, asked):
    said = anchorlab("study", "anchor/identity", *SMOKE, "--recipe.optimiser.betas", "0.8,0.9")
    assert said.code == 0
    (one,) = asked
    assert one.experiments_of("smoke")[0].recipe.optimiser.betas == (0.8, 0.9)


def test_without_options_the_study_is_itself(anchorlab, asked):
    anchorlab("study", "anchor/identity", *SMOKE)
    assert [one.name for one in asked] == ["anchor/identity"]


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


@pytest.mark.parametrize(("number", "words"), [(500, "500 bytes"), (2_500_000, "2.5 MB"), (1_234_000_000, "1.23 GB")])
def test_sizes(number, words):
    assert size_text(number) == words
