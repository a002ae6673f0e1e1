"""`anchorlab sweep`."""

import json

import polars as pl
import pytest

from anchorlab.cli.studies.sweep import _best
from anchorlab.findings import Table
from anchorlab.runs import Store
from anchorlab.training import TrainedRun
from tests.studies.test_toml_file import SMALL

FILE = f"""
task = "anchor/identity"
seeds = 2
{SMALL}
[grid]
model.layers = [1, 2]
recipe.batch = [5, 10]
"""


@pytest.fixture
def file(workplace):
    path = workplace / "mine.toml"
    path.write_text(FILE)
    return path


def losses(workplace):
    """The mean test loss of every run in the store, by layers and batch."""
    found = {}
    for run in Store(workplace / "runs").runs():
        trained = TrainedRun(run)
        table = trained.metric("loss", "test").group_by("member", maintain_order=True).last()
        found[trained.experiment.model.layers, trained.experiment.recipe.batch] = table["value"].mean()
    return found


def test_json_and_csv_have_the_last_metrics_of_every_point(anchorlab, workplace, file):
    said = anchorlab("sweep", "mine.toml", "--workers", "1", "--json", "--csv", "last.csv")
    assert said.code == 0
    found, wanted = json.loads(said.out), losses(workplace)
    assert set(wanted) == {(1, 5), (1, 10), (2, 5), (2, 10)}
    ours = {}
    for cell in found["cells"]:
        (row,) = [row for row in cell["last"] if (row["split"], row["metric"]) == ("test", "loss")]
        ours[cell["values"]["model.layers"], cell["values"]["recipe.batch"]] = row["mean"]
    assert ours == pytest.approx(wanted)
    table = pl.read_csv(workplace / "last.csv").filter((pl.col("split") == "test") & (pl.col("metric") == "loss"))
    rows = {(row["model.layers"], row["recipe.batch"]): row["mean"] for row in table.to_dicts()}
    assert rows == pytest.approx(wanted)
    assert (found["sweep"], found["claims"]) == ("sweep/mine", [])
    assert (workplace / "runs" / "studies" / "sweep-mine" / "quick" / "report.html").exists()


def test_the_table_and_the_page_for_people(anchorlab, refused, workplace, file, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert refused("sweep", "mine.toml", "--device", "abacus").startswith("anchorlab: device: ")
    said = anchorlab("sweep", "mine.toml", "--workers", "1", "--report", "page.html", "--seeds", "5:7")
    assert said.code == 0
    assert "anchor/identity: accuracy against layers and batch" in said.out
    lines = [line.split() for line in said.out.splitlines() if line.strip()[:1] in ("1", "2")]
    assert [line[:2] for line in lines] == [["1", "5"], ["1", "10"], ["2", "5"], ["2", "10"]]
    assert "\nbest test accuracy: " in said.out
    assert "seeds 5..6" in said.out and f"report: {workplace / 'page.html'}" in said.out.replace("\n", "")
    assert (workplace / "page.html").stat().st_size > 1000


@pytest.mark.parametrize(
    ("metric", "line"),
    [
        ("accuracy", "best test accuracy: 0.9, at layers 2, rate 0.1"),
        ("loss", "best test loss: 0.2, at layers 1, rate 0.1"),
    ],
)
def test_the_best_point_has_the_highest_mean_or_the_lowest_loss(metric, line):
    ends = [f"{split}, {end}" for split in ("train", "test") for end in ("mean", "lowest", "highest")]
    columns = ("layers", "rate", *ends)
    rows = [(1, 0.1, 0.9, 0, 1, 0.2, 0, 1), (2, 0.1, 0.1, 0, 1, 0.9, 0, 1), (4, 0.1, 0.1, 0, 1, float("nan"), 0, 1)]
    assert _best(Table("points", f"{metric}: mean, lowest and highest over seeds.", columns, tuple(rows)), 2) == line


@pytest.mark.slow
def test_what_a_dry_run_says_is_what_runs_and_points_in_the_store_are_kept(anchorlab, workplace, file):
    said = anchorlab("sweep", "mine.toml", "--workers", "1", "--dry-run", "--json")
    assert (said.code, said.new_files) == (0, set())
    planned = json.loads(said.out)
    assert planned["left"] == {"cells": 4, "members": 8, "member_steps": 8 * 2}
    assert anchorlab("sweep", "mine.toml", "--workers", "1", "--json").code == 0
    runs = {run.address: run.modified for run in Store(workplace / "runs").runs()}
    assert set(runs) == {cell["run"] for cell in planned["cells"]}
    file.write_text(FILE.replace("model.layers = [1, 2]", "model.layers = [1, 2, 3]"))
    left = json.loads(anchorlab("sweep", "mine.toml", "--dry-run", "--json").out)["left"]
    assert left["cells"] == 2
    assert anchorlab("sweep", "mine.toml", "--workers", "1", "--json").code == 0
    after = {run.address: run.modified for run in Store(workplace / "runs").runs()}
    assert len(after) == 6 and all(after[address] == when for address, when in runs.items())
