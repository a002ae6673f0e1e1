import json
from typing import Literal

import pytest

from anchorlab.cli.removed import REMOVED
from anchorlab.models import ModelSpec

COLUMNS = 80


def test_tasks_and_studies(anchorlab):
    names = [entry["name"] for entry in json.loads(anchorlab("tasks", "--json").out)]
    assert {"anchor/identity", "recall/noisy", "retrieval/minimal"} <= set(names)
    shown = anchorlab("tasks").out
    assert all(name in shown for name in names)
    studies = [entry["name"] for entry in json.loads(anchorlab("studies", "--json").out)]
    assert {"anchor/identity", "truncation/feedforward-noise", "retrieval/depth"} <= set(studies)
    assert max(map(len, anchorlab("studies").out.splitlines())) <= COLUMNS


def test_show_takes_arguments_of_the_task(anchorlab):
    arguments = ("--task.length", "12", "--task.rule", "x A -> A(x)")
    found = json.loads(anchorlab("show", "anchor/identity", *arguments, "--json").out)
    assert [example["split"] for example in found] == ["train"] * 3 + ["test"] * 3
    for example in found:
        roles = [token["role"] for token in example["tokens"]]
        assert len(roles) == 12
        assert roles.index("key") == roles.index("anchor") - 1
        assert example["tokens"][roles.index("key")]["text"] == example["answer"]


def test_show_as_toml_is_a_file_that_declares_the_task(anchorlab, workplace):
    said = anchorlab("show", "anchor/identity", "--task.length", "12", "--toml")
    assert said.out.startswith('family = "anchor"\n')
    (workplace / "mine.toml").write_text(said.out)
    shown = [anchorlab("show", name, "--json").out for name in ("mine.toml", "anchor/identity")]
    assert len(json.loads(shown[0])[0]["tokens"]) == 12 != len(json.loads(shown[1])[0]["tokens"])


def test_models_and_their_fields(anchorlab):
    kinds = json.loads(anchorlab("models", "--json").out)
    assert {"decoder", "lstm", "fnn", "recall", "vectors"} <= {one["kind"] for one in kinds}
    decoder = json.loads(anchorlab("models", "decoder", "--json").out)
    assert decoder in kinds
    fields = {one["name"]: one["default"] for one in decoder["fields"]}
    assert (fields["layers"], fields["width"], fields["hidden"], "kind" in fields) == (4, 400, None, False)
    shown = anchorlab("models", "decoder")
    assert "layers          4" in shown.out and "torch or gamma" in shown.out and shown.new_files == set()
    assert max(map(len, shown.out.splitlines())) <= COLUMNS
    assert "did you mean 'recall'" in anchorlab("models", "recal").err


def test_a_field_of_a_model_without_a_default_is_required(anchorlab, monkeypatch):
    class Narrow(ModelSpec):
        kind: Literal["mine-narrow"] = "mine-narrow"
        width: int

    monkeypatch.setitem(ModelSpec.registry, "mine-narrow", Narrow)
    (field,) = json.loads(anchorlab("models", "mine-narrow", "--json").out)["fields"]
    assert field == {"name": "width", "default": None, "required": True, "meaning": ""}
    assert anchorlab("models", "mine-narrow").out.split()[-2:] == ["width", "required"]


def test_show_prints_answer_and_trace_and_colours_the_parts_of_a_sequence(anchorlab, monkeypatch):
    said = anchorlab("show", "retrieval/minimal", "-n", "1", "--split", "test")
    assert said.out.startswith("test\n")
    assert "→ " in said.out and "query A" in said.out
    assert (said.code, said.err, said.new_files) == (0, "", set())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = anchorlab("show", "anchor/identity", "-n", "1", "--split", "train").out
    assert "\x1b[1;37;48;5;166m3\x1b[0m" in coloured  # the anchor


def test_train_and_what_follows(anchorlab, small):
    """Train with nested options, list, show, check, inspect and remove the run."""
    said = anchorlab("train", "anchor/identity", *small, "--members.learning-rate", "1e-3,1e-4", "--json")
    assert (said.code, said.err) == (0, "")
    trained = json.loads(said.out)
    assert {(row["split"], row["metric"]) for row in trained["last"]} >= {("train", "accuracy"), ("test", "loss")}
    address = trained["run"]

    shown = json.loads(anchorlab("runs", "show", address[:6], "--json").out)
    spec = shown["spec"]
    assert (spec["model"]["layers"], spec["model"]["width"], spec["recipe"]["data"]["size"]) == (1, 8, 20)
    assert (spec["members"]["learning_rate"], spec["members"]["seeds"]) == ([1e-3, 1e-4], [0, 1])
    assert (spec["recipe"]["duration"], spec["recipe"]["schedule"]["horizon"]) == (4, 4)
    assert shown["last"] == trained["last"]
    words = anchorlab("runs", "show", address[:6]).out
    assert "recipe.data.size" in words and "last metrics" in words

    listed = json.loads(anchorlab("runs", "--json").out)
    assert [(row["run"], row["label"], row["members"], row["state"]) for row in listed] == [
        (address, "anchor/identity", 2, "finished")
    ]
    assert f"{address[:8]} " in anchorlab("runs").out
    assert anchorlab("runs", "check").out == "1 run, all files as they were written\n"

    heads = json.loads(anchorlab("inspect", address[:6], "-n", "20", "--json").out)
    assert {(row["member"], row["layer"], row["head"]) for row in heads} == {(0, 0, 0), (1, 0, 0)}
    assert all(0 <= row["value"] <= 1 for row in heads)
    table = anchorlab("inspect", address[:6], "-n", "20").out
    assert "0.0" in table and max(map(len, table.splitlines())) <= COLUMNS
    assert "the one of lowest loss among 2 members; --member shows another" in table
    assert "one of 2 members; --member shows another" in anchorlab("inspect", address[:6], "--member", "1").out

    assert anchorlab("runs", "remove", address[:6], "--yes").out == f"removed {address}\n"
    assert json.loads(anchorlab("runs", "--json").out) == []


def test_equal_sequences_in_two_splits_are_explained_where_they_are_chance(anchorlab):
    tiny = ("show", "retrieval/minimal", "--task.chains", "1", "--task.steps", "1", "-n", "1")
    note = "the splits differ in how sequences are drawn; that some are equal is chance"
    assert anchorlab(*tiny).out.count("A B A → B") == 2
    assert note in anchorlab(*tiny).out
    assert note not in anchorlab(*tiny, "--split", "test").out
    assert note not in anchorlab("show", "retrieval/minimal", "--task.chains", "9", "-n", "1").out
    assert note not in anchorlab("show", "anchor/identity", "-n", "2").out


def test_training_again_reads_the_store(anchorlab, small):
    first = anchorlab("train", "anchor/identity", *small)
    again = anchorlab("train", "anchor/identity", *small)
    assert (again.out, again.err, again.new_files) == (first.out, "", set())


def test_a_diverged_member_is_named(anchorlab, small):
    rates = ("--members.learning-rate", "1e-3,1e30")
    said = anchorlab("train", "anchor/identity", *small, *rates, "--json")
    told = json.loads(said.out, parse_constant=pytest.fail)
    named = f"anchor/identity ({told['run']}): seed 1 by step 1"  # the first evaluation after a step that is too long
    words = f"anchorlab: diverged (metrics are not finite): {named}; lower the learning rate or clip\n"
    assert (said.code, said.err) == (1, words)
    assert told["diverged"] == [1]
    shown = json.loads(anchorlab("runs", "show", told["run"], "--json").out, parse_constant=pytest.fail)
    assert None in {row["mean"] for row in shown["last"]}
    again = anchorlab("train", "anchor/identity", *small, *rates)
    assert (again.code, again.err) == (1, words) and "nan" in again.out


def test_train_from_a_file(anchorlab, trained, workplace, small):
    (workplace / "plus.toml").write_text('[operations]\n3 = "+5"\n')
    shown = json.loads(anchorlab("runs", "show", trained("plus.toml", *small), "--json").out)
    assert (shown["label"], shown["spec"]["task"]["operations"]) == ("plus", {"3": "+5"})


def test_train_on_vectors(anchorlab):
    options = ["--model.layers=1", "--model.heads=2", "--model.width=8", "--recipe.batch=4"]
    options += ["--recipe.evaluation.size=4"]
    said = anchorlab("train", "retrieval/minimal", *options, "--recipe.duration=2", "--seeds=3", "--workers=1")
    assert said.code == 0
    assert "1 member after 2 steps" in said.out and "partial_3" in said.out
    run = said.out.split("run ")[1].split()[0]
    assert "induction" not in anchorlab("inspect", run).out  # vectors do not recur


def test_members_of_the_recipe(anchorlab, small):
    said = anchorlab(
        *("train", "anchor/identity", *small, "--recipe.optimiser.kind", "sgd", "--recipe.optimiser.momentum", "0.9"),
        *("--recipe.schedule.kind", "constant", "--recipe.learning-rate", "0.1", "--recipe.evaluation.at", "1"),
        *("--recipe.evaluation.edits", '{"no mlp": [{"kind": "remove", "weight": "blocks.0.mlp"}]}'),
        *("--recipe.clip", "none", "--json"),
    )
    recipe = json.loads(anchorlab("runs", "show", json.loads(said.out)["run"], "--json").out)["spec"]["recipe"]
    assert recipe["optimiser"] == {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.0}
    assert (recipe["schedule"], recipe["clip"], recipe["evaluation"]["at"]) == ({"kind": "constant"}, None, [1])
    assert {row["edit"] for row in json.loads(said.out)["last"]} == {"none", "no mlp"}


@pytest.mark.slow
def test_study_claims_and_report(anchorlab, workplace):
    said = anchorlab("study", "truncation/feedforward-noise", "--profile", "smoke", "--workers", "1")
    assert said.code == 0
    assert max(map(len, said.out.splitlines()[:-1])) <= COLUMNS
    assert any(path.endswith("smoke/report.html") for path in said.new_files)

    claims = json.loads(anchorlab("claims", "--measured", "--json").out)
    assert {claim["profile"] for claim in claims} == {"smoke"}
    ledger = anchorlab("claims", "--measured").out
    assert ledger.startswith("truncation/feedforward-noise  profile smoke, ")
    symbols = {"agrees at small scale": "●", "differs at small scale": "○", "undecided": "◐", "not measured": "—"}
    for claim in claims:
        assert f"{symbols[claim['verdict']]} {claim['statement'][:20]}" in ledger

    again = json.loads(anchorlab("study", "truncation/feedforward-noise", "--profile", "smoke", "--json").out)
    source = {name: again["provenance"][name] for name in ("seeds", "commit", "hardware")}
    source["search_seeds"] = again["provenance"]["chosen_on"]
    assert (source["seeds"], source["search_seeds"]) == ("1000..1001", "0..109")
    assert [{**claim, **source} for claim in again["claims"]] == claims and again["profile"] == "smoke"

    (workplace / "pages").mkdir()
    page = anchorlab("report", "--out", "pages/all.html", "--json")
    assert page.code == 0
    told = json.loads(page.out)
    assert told["report"].endswith("pages/all.html")
    assert told["studies"] == [{"study": "truncation/feedforward-noise", "profile": "smoke"}]
    assert {path.rpartition("/")[2] for path in page.new_files} == {"all.html"}


@pytest.mark.parametrize("empty", [["claims", "--measured"], ["runs"], ["runs", "check"]])
def test_an_empty_store(anchorlab, empty):
    said = anchorlab(*empty)
    assert (said.code, said.err, said.new_files) == (0, "", set())
    assert said.out.count("\n") == 1


@pytest.mark.slow
def test_a_narrow_character_set(workplace):
    """A terminal that knows ASCII alone gets a question mark instead of a traceback."""
    import os
    import subprocess
    import sys

    said = subprocess.run(
        [sys.executable, "-m", "anchorlab", "show", "anchor/identity", "-n", "1"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert b"? " in said.stdout


@pytest.mark.parametrize("removed", REMOVED)
def test_a_removed_command_or_option_names_its_replacement_in_one_line(anchorlab, removed):
    for words in (removed.split(), [*removed.split(), "--store=elsewhere"]):
        said = anchorlab(*words)
        assert (said.code, said.out) == (2, "")
        assert said.err == f"anchorlab: {removed}: was removed in version 0.3; {REMOVED[removed]}\n"
