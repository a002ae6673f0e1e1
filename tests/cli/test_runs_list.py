"""`anchorlab runs`: conditions, order, columns, sizes and labels."""

import json
import re

import pytest


@pytest.fixture
def runs(trained, small):
    """Three runs, by their addresses: the second has another learning rate, the third another task."""
    return [
        trained("anchor/identity", *small),
        trained("anchor/identity", *small, "--recipe.learning-rate=0.5"),
        trained("anchor/composite", *small),
    ]


def addresses(spoken):
    assert spoken.code == 0, spoken.err
    return [one["run"] for one in json.loads(spoken.out)]


def test_the_newest_come_first_with_their_sizes_and_the_total(anchorlab, runs, workplace):
    assert addresses(anchorlab("runs", "--json")) == runs[::-1]
    sizes = {
        run: sum(one.stat().st_size for one in (workplace / "runs" / run).rglob("*") if one.is_file()) for run in runs
    }
    found = {one["run"]: one for one in json.loads(anchorlab("runs", "list", "--json").out)}
    assert {run: one["MB"] for run, one in found.items()} == {run: float(f"{sizes[run] / 1e6:.3g}") for run in runs}
    assert found[runs[1]]["differs"] == {"recipe.optimiser.learning_rate": 0.5}
    assert set(found[runs[0]]["differs"]) == {"recipe.optimiser.learning_rate"}
    assert found[runs[2]]["differs"] == {} and found[runs[2]]["label"] == "anchor/composite"
    said = anchorlab("runs").out
    assert said.splitlines()[-1] == f"3 runs, {sum(sizes.values()) / 1e3:.3g} kB in all"
    assert re.search(rf"{runs[1][:8]}  anchor/identity, learning rate +2", said) and " 0.5 " in said
    assert said.count("anchor/identity") == 2 and said.count("MB") == 1  # in one block, at 80 columns


def test_conditions_order_and_columns(anchorlab, runs):
    assert addresses(anchorlab("runs", "--where", "recipe.learning-rate=0.5", "--json")) == [runs[1]]
    assert addresses(
        anchorlab("runs", "--where", "task.name=anchor/identity", "--where", "learning_rate<0.5", "--json")
    ) == [runs[0]]
    assert addresses(anchorlab("runs", "--sort", "when", "--json")) == runs
    assert addresses(anchorlab("runs", "--sort=label,when", "--reverse", "--json")) == [runs[1], runs[0], runs[2]]
    said = anchorlab("runs", "--sort", "when", "--columns", "layers,recipe.learning_rate,seeds", "--limit", "2")
    lines = said.out.splitlines()
    assert lines[0].split() == ["run", "layers", "learning_rate", "seeds"]
    assert lines[2].split() == [runs[1], "1", "0.5", "0..1"]
    assert lines[3].startswith("2 of 3 runs, ") and lines[3].endswith("; --limit 0 shows all")
    assert len(anchorlab("runs", "--limit", "0", "--columns", "run").out.splitlines()) == 5


def test_metrics_at_the_end_are_fields(anchorlab, runs):
    shown = json.loads(anchorlab("runs", "show", runs[0], "--json").out)["last"]
    expected = next(one["mean"] for one in shown if (one["split"], one["metric"]) == ("test", "loss"))
    found = json.loads(anchorlab("runs", "--where", f"run={runs[0]}", "--columns", "test.loss", "--json").out)
    assert found == [{"run": runs[0], "metrics.test.loss": pytest.approx(expected)}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--where", "layers"], "where: 'layers' is not a condition"),
        (["--where", "lyers=2"], "where.lyers: no run has a field 'lyers'; did you mean 'model.layers'?"),
        (["--sort", "lyers"], "sort: no run has a field"),
        (["--columns", ","], "columns: names no field; write one such as model.layers"),
        (["--limit", "-1"], "limit: -1 is negative; give a number of runs, or 0 for all"),
    ],
)
def test_a_slip_is_named_and_changes_nothing(anchorlab, runs, options, message):
    anchorlab("runs")  # makes the index
    said = anchorlab("runs", *options)
    assert (said.code, said.out, said.new_files) == (2, "", set())
    assert said.err.startswith(f"anchorlab: {message}")


def test_no_runs_and_none_that_fulfils_the_conditions(anchorlab, workplace):
    assert anchorlab("runs").out == "no runs; `anchorlab train TASK` makes one\n"
    assert list(workplace.iterdir()) == []


def test_none_fulfils(anchorlab, runs):
    assert anchorlab("runs", "--where", "layers=7").out == "none of 3 runs fulfils these conditions\n"
    assert anchorlab("runs", "--where", "layers=7", "--json").out == "[]\n"


def test_a_damaged_run_that_may_be_missing_is_told_in_one_line(anchorlab, runs, workplace):
    (workplace / "runs" / runs[1] / "metrics.parquet").write_bytes(b"PAR1")
    for options in (["--where", "test.accuracy>=0"], ["--columns", "run,metrics.test.loss"]):
        said = anchorlab("runs", *options, "--json")
        assert said.code == 0 and len(json.loads(said.out)) == (1 if "--where" in options else 3)
        assert said.err.startswith("anchorlab: 1 damaged run cannot be read and may be missing: " + runs[1])
        assert said.err.count("\n") == 1
    assert anchorlab("runs", "--where", "layers=1", "--json").err == ""
