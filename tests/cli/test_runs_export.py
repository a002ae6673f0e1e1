"""`anchorlab runs export`: tables and event files hold what the runs hold."""

import json
import sys

import polars as pl
import pytest

from anchorlab.runs import Store


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
def test_what_cannot_be_written_is_refused(anchorlab, run, words, said):
    spoken = anchorlab("runs", "export", *words)
    assert spoken.code == 2 and said in spoken.err and len(spoken.err.splitlines()) == 1
    assert not spoken.new_files


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
