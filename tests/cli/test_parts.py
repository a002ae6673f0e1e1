"""Seeds and experiments of a study one by one: `--seeds`, `--only`, `--parts`, and `verify --part`."""

import json

import pytest

from anchorlab.errors import SpecError
from anchorlab.runs import Store
from anchorlab.studies import Profile, study
from anchorlab.studies.parts import keep_part
from anchorlab.training import TrainedRun

STUDY = "anchor/frequency"
LOW, HIGH = "low frequency", "high frequency"


@pytest.fixture
def small_paper(monkeypatch):
    """In place of the study's paper profile, the quick one cut to two steps, with as many seeds."""
    from anchorlab.papers.anchor import frequency

    monkeypatch.setitem(frequency.STUDY.profiles, "paper", Profile(frequency.QUICK.shortened(2, 5), "", paper=True))


def test_one_seed_keeps_the_studys_name(anchorlab, small_paper):
    said = anchorlab("study", STUDY, "--profile", "paper", "--seeds", "1002", "--json", "--workers", "1")
    assert said.code == 0
    told = json.loads(said.out)
    assert (told["study"], told["profile"], told["provenance"]["seeds"]) == (STUDY, "paper:1002", "1002")
    assert {TrainedRun(run).experiment.members.seeds for run in Store("runs").runs()} == {(1002,)}


def test_only_some_experiments_are_trained(anchorlab):
    words = ("study", STUDY, "--profile", "smoke", "--seeds", "1001", "--json", "--workers", "1")
    said = anchorlab(*words, "--only", LOW)
    (low,) = [one.cell.address for one in study(STUDY).experiments_of("smoke:1001") if one.label == LOW]
    assert json.loads(said.out) == [{"experiment": LOW, "run": low}]
    assert [run.address for run in Store("runs").runs()] == [low]
    said = anchorlab(*words, "--only", "low")
    assert said.code == 2 and "only: unknown experiment 'low'" in said.err


def test_a_study_of_parts_from_two_folders_trains_nothing(anchorlab, workplace):
    for seed in (1000, 1001):
        anchorlab("study", STUDY, "--profile", "smoke", "--seeds", str(seed), "--store", f"day-{seed}", "--json")
    words = ("study", STUDY, "--profile", "smoke", "--json")
    for only in ((), ("--only", LOW)):
        for parts, members in ((["day-1000"], {1}), (["day-1000", "day-1001"], set())):  # that are left to train
            told = json.loads(anchorlab(*words, *only, "--parts", *parts, "--dry-run").out)
            assert {one["members"] for one in told["cells"] if one["trained"]} == members
    together = json.loads(anchorlab(*words, "--store", "third", "--parts", "day-1000", "day-1001").out)
    assert together["provenance"]["seeds"] == "1000..1001"
    trained = [run for run in Store(workplace / "third").runs() if TrainedRun(run).experiment.trained]
    assert trained == []
    said = anchorlab(*words, "--parts", "nowhere")
    assert said.code == 2 and said.err == "anchorlab: parts: nowhere is not a folder; name a folder of runs\n"


def test_verify_makes_parts_that_a_study_takes(anchorlab, workplace, small_paper):
    words = ("verify", STUDY, "--part", "parts", "--workers", "1", "--json", "--budget", "1h")
    made = json.loads(anchorlab(*words, "--seeds", "1002").out)
    assert [(one["study"], one["profile"], one["experiment"], one["seed"]) for one in made] == [
        (STUDY, "paper", LOW, "1002"),
        (STUDY, "paper", HIGH, "1002"),
    ]
    assert json.loads(anchorlab(*words, "--seeds", "1002").out) == []
    (high,) = json.loads(anchorlab(*words, "--seeds", "1003", "--only", HIGH).out)
    parts = Store(workplace / "parts")
    assert {run.address for run in parts.runs()} == {one["part"] for one in (*made, high)}
    assert parts.problems() == [] and not list(parts.root.rglob("checkpoints"))
    words = ("study", STUDY, "--profile", "paper", "--seeds", "1002", "--parts", "parts", "--store", "new", "--json")
    found = anchorlab(*words)
    assert json.loads(found.out)["provenance"]["reused"] == 2
    assert all(not TrainedRun(run).experiment.trained for run in Store(workplace / "new").runs())


def test_parts_that_would_be_made_are_listed(anchorlab):
    said = anchorlab("verify", STUDY, "--part", "parts", "--seeds", "1000:1002", "--dry-run", "--json")
    assert (said.code, said.new_files) == (0, set())
    told = [(one["experiment"], one["seed"]) for one in json.loads(said.out)]
    assert told == [(LOW, "1000"), (HIGH, "1000"), (LOW, "1001"), (HIGH, "1001")]


def test_studies_of_a_pattern_that_have_no_parts_are_named(anchorlab):
    """Claims of `order` read weights, and `open-questions` has no paper's own setting."""
    said = anchorlab("verify", "anchor/[fo]*", "--part", "parts", "--seeds", "1000", "--dry-run", "--json")
    assert (said.code, {one["study"] for one in json.loads(said.out)}) == (0, {STUDY})
    assert said.err.splitlines() == [
        "anchorlab: no part of anchor/order, anchor/open-questions: "
        "only papers' own settings have parts, which keep no weights"
    ]
    assert anchorlab("verify", STUDY, "--part", "parts", "--seeds", "1000", "--dry-run", "--json").err == ""


def test_a_budget_that_ends_leaves_the_rest_for_the_next_call(anchorlab, small_paper):
    said = anchorlab("verify", STUDY, "--part", "parts", "--seeds", "1000", "--budget", "0s", "--workers", "1")
    assert said.code == 0
    assert "the budget is spent; the same command goes on with 2 of these parts" in said.out


def test_a_seed_of_which_no_part_can_be_made_stops_no_other(anchorlab, workplace, small_paper, monkeypatch):
    def kept(study, profile, run, root):
        if run.experiment.members.seeds == (1000,):
            raise SpecError("run", "every member of it diverged", "lower the learning rate")
        return keep_part(study, profile, run, root)

    monkeypatch.setattr("anchorlab.studies.parts.keep_part", kept)
    words = ("verify", STUDY, "--part", "parts", "--only", LOW, "--seeds", "1000:1002", "--workers", "1", "--json")
    said = anchorlab(*words)
    (made,) = json.loads(said.out)
    assert (said.code, made["seed"]) == (1, "1001")
    assert f"no part of {STUDY}, {LOW}, seed 1000: run: every member of it diverged; lower" in said.err
    assert [run.address for run in Store(workplace / "parts").runs()] == [made["part"]]
