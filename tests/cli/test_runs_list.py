"""`anchorlab runs` and `runs export`: conditions, order, columns, sizes, labels, and files that hold what runs hold."""

import json
import re
import sys

import polars as pl
import pytest

from anchorlab.runs import Store


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


def test_a_store_without_runs_is_no_error(anchorlab):
    for store in ([], ["--store", "."]):
        said = anchorlab("runs", *store)
        assert said.code == 0 and "has no runs" in said.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--where", "layers"], "where: 'layers' is not a condition"),
        (["--where", "lyers=2"], "where.lyers: no run has a field 'lyers'; the nearest is 'model.layers', and"),
        (["--where", "perplexity>1"], "where.perplexity: no run has a field 'perplexity'; the nearest is '"),
        (["--sort", "lyers"], "sort: no run has a field"),
        (["--columns", ","], "columns: names no field; write one such as model.layers"),
        (["--limit", "-1"], "limit: -1 is negative; give a number of runs, or 0 for all"),
    ],
)
def test_a_slip_is_named_and_changes_nothing(anchorlab, refused, runs, options, message):
    anchorlab("runs")  # makes the index
    assert refused("runs", *options).startswith(f"anchorlab: {message}")


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


@pytest.fixture
def run(trained, small):
    return trained("anchor/identity", *small)


@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_a_table_has_every_row_with_its_label(anchorlab, run, to, tmp_path):
    said = anchorlab("runs", "export", "--out", f"metrics.{to}", "--to", to)
    read = {"csv": pl.read_csv, "parquet": pl.read_parquet}[to](tmp_path / f"metrics.{to}")
    expected = Store(tmp_path / "runs").metrics()
    assert said.code == 0 and said.out == f"{len(expected)} rows of 1 run in metrics.{to}\n"
    assert read["label"].unique().to_list() == ["anchor/identity"]
    assert read.drop("label").rows() == expected.rows()
    assert said.new_files == {str(tmp_path / f"metrics.{to}")} | {one for one in said.new_files if "/runs/" in one}


def test_event_files_hold_every_value_of_every_member(anchorlab, run, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = json.loads(anchorlab("runs", "export", "--out", "events", "--to", "tensorboard", "--json").out)
    assert found["runs"] == 1
    metrics = Store(tmp_path / "runs").metrics()
    assert metrics["value"].n_unique() > 5
    folders = {path.name: path for path in (tmp_path / "events" / f"anchor-identity-{run[:8]}").iterdir()}
    assert set(folders) == {"seed-0", "seed-1"}
    for seed in (0, 1):
        read = accumulator.EventAccumulator(str(folders[f"seed-{seed}"])).Reload()
        rows = {(tag, one.step): one.value for tag in read.Tags()["scalars"] for one in read.Scalars(tag)}
        own = metrics.filter(pl.col("seed") == seed, pl.col("group") == "all")
        expected = {(f"{one['split']}/{one['metric']}", one["step"]): one["value"] for one in own.to_dicts()}
        assert {key: rows[key] for key in expected} == pytest.approx(expected)
        assert all("/" in tag for tag, _ in rows)


def test_only_chosen_runs_are_written(anchorlab, run, trained, small, tmp_path):
    other = trained("anchor/identity", *small, "--recipe.clip=0.5")
    assert anchorlab("runs", "export", "--out", "one.csv", "--to", "csv", "--where", "recipe.clip=0.5").code == 0
    assert pl.read_csv(tmp_path / "one.csv")["run"].unique().to_list() == [other]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "a.csv", "--to", "csv", "--where", "recipe.batch=7"], "where: the store has no runs that fulfil"),
        (["--out", "none/a.csv", "--to", "csv"], "out: none/a.csv is no file in a folder that exists"),
        (["--out", "runs", "--to", "csv"], "out: runs is no file in a folder that exists"),
        (["--out", "runs", "--to", "tensorboard"], "out: runs exists; give a new folder"),
        (["--out", "a", "--to", "excel"], "csv"),
    ],
)
def test_what_cannot_be_written_is_refused(refused, run, words, said):
    assert said in refused("runs", "export", *words)


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("events", "tensorboard: is not installed; run pip install 'anchorlab[tensorboard]'"),
        ("runs", "out: runs exists; give a new folder"),
    ],
)
def test_without_tensorboard_the_extra_is_named_once_the_rest_is_right(anchorlab, run, monkeypatch, out, said):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    spoken = anchorlab("runs", "export", "--out", out, "--to", "tensorboard")
    assert spoken.code == 2 and said in spoken.err and len(spoken.err.splitlines()) == 1
