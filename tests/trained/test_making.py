"""`docs/gallery/zoo.py`: which runs it keeps, and when weights may be rounded."""

import json
from dataclasses import replace

import pytest
import torch

import anchorlab as al
from anchorlab.models.superposition import SuperpositionSpec
from anchorlab.runs import Store
from tests.documents import DOCS
from tests.test_docs import load

MAKING = load(DOCS / "gallery" / "zoo.py")


def test_the_zoo_is_what_the_script_declares():
    declared = {name: (one.experiment.take(range(one.members)), one) for name, one in MAKING.cells().items()}
    listed = {row["name"]: row for row in al.zoo().iter_rows(named=True)}
    assert list(declared) == list(listed)
    for name, (experiment, cell) in declared.items():
        row = listed[name]
        assert al.zoo(name).run.address == experiment.cell.address
        assert (row["study"], row["members"], row["checkpoints"]) == (cell.study, cell.members, cell.checkpoints)


def test_models_in_the_papers_own_settings_lie_next_to_the_docs():
    """A store that `--store` takes; the profile of each cell is the paper's own setting."""
    declared = MAKING.paper_cells()
    listed = {one["name"]: one for one in json.loads(MAKING.PAPER.with_suffix(".json").read_text())}
    assert {name: one.experiment.cell.address for name, one in declared.items()} == {
        name: one["run"] for name, one in listed.items()
    }
    store = Store(MAKING.PAPER)
    models = {one.address for one in store.runs() if al.training.TrainedRun(one).has_weights}  # the others are parts
    assert models == {one["run"] for one in listed.values()}
    for name, one in declared.items():
        run = al.training.TrainedRun(store.find(listed[name]["run"]))
        assert run.run.problems() == [] and len(run.experiment.members) == one.members
        assert run.experiment in al.study(one.study).experiments_of("paper")


@pytest.mark.parametrize(("second", "kept"), [(1.001, torch.float32), (2.0, torch.bfloat16)])
def test_weights_are_rounded_only_where_no_answer_changes(second, kept):
    """Every output is a bias: 1 of token 30 and `second` of token 31; in bfloat16, 1.001 is 1, a tie."""
    run = al.zoo("anchor/identity")
    ensemble = run.ensemble()
    weights = {name: torch.zeros_like(value) for name, value in ensemble.weights.items()}
    weights["unembed.b_U"][:, 30], weights["unembed.b_U"][:, 31] = 1.0, second
    assert MAKING.weight_type(ensemble.with_weights(weights), run.experiment.task) == kept


@pytest.mark.parametrize(
    ("steps", "count", "kept"),
    [([0, 5, 10], 1, [10]), (list(range(0, 90, 10)), 8, [0, 10, 20, 30, 50, 60, 70, 80]), ([0, 5, 10], 2, [0, 10])],
)
def test_checkpoints_are_evenly_spaced_with_the_last(steps, count, kept):
    assert MAKING.spread(steps, count) == kept


def small(features):
    """A cell that trains in a second."""
    whole = MAKING.classic("classics/superposition", SuperpositionSpec(hidden=2), members=2, checkpoints=2)
    task = al.task("classics/superposition", features=features)
    recipe = whole.experiment.recipe.replace(
        duration=20, evaluation=al.training.Evaluation(every=10, size=50), checkpoints=al.training.Times(every=10)
    )
    return replace(whole, experiment=replace(whole.experiment, task=task, recipe=recipe))


def test_one_run_is_made_again_and_the_others_are_kept(tmp_path, monkeypatch):
    root, listed = tmp_path / "zoo", tmp_path / "zoo.json"
    monkeypatch.setattr(MAKING, "ROOT", root)
    monkeypatch.setattr(MAKING, "LARGEST", {root: 1_000_000})
    monkeypatch.setattr(MAKING, "cells", lambda: {"four": small(4), "five": small(5)})
    MAKING.main(["--store", str(tmp_path / "store")])
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in root.rglob("*") if path.is_file()}
    names = [one["name"] for one in json.loads(listed.read_text())]
    monkeypatch.setattr(MAKING, "cells", lambda: {"five": small(5), "six": small(6)})
    MAKING.main(["--store", str(tmp_path / "store"), "six"])
    rows = {one["name"]: one for one in json.loads(listed.read_text())}
    assert names == ["four", "five"] and list(rows) == ["five", "six"]
    assert len(Store(root).runs()) == 2  # the run that is no longer declared is gone
    kept = [path for path in before if rows["five"]["run"] in path.parts]
    assert kept and all((path.stat().st_mtime_ns, path.read_bytes()) == before[path] for path in kept)
