"""What `train` and `compare` take in other forms, what they say of other values, and the table of learners."""

import sys
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import anchorlab as al
from anchorlab.engine import compare, train
from anchorlab.engine.compare import _named
from anchorlab.errors import SpecError
from anchorlab.models import DecoderSpec, LSTMSpec
from anchorlab.runs import Store
from anchorlab.runs.metrics import last_metrics
from anchorlab.trained import zoo
from anchorlab.training import Members
from tests.papers.hand_made_runs import HandMadeRun
from tests.small_experiments import DECODER, IDENTITY, SAMPLE, TRIGGERS


@pytest.mark.parametrize("kind", [str, Path, Store])
def test_a_store_is_its_directory(tmp_path, kind):
    run = train(IDENTITY, DECODER, SAMPLE, store=kind(tmp_path / "runs"), workers=1)
    assert [one.address for one in Store(tmp_path / "runs").runs()] == [run.run.address]


def test_comparisons_take_a_directory(tmp_path):
    compare(IDENTITY, {"one": DECODER}, SAMPLE, store=tmp_path / "runs", workers=1)
    assert len(Store(tmp_path / "runs").runs()) == 1


@pytest.mark.parametrize("seeds", [3, "0:3", np.int64(3), range(3), [0, 1, 2], np.arange(3), Members(seeds=3)])
def test_seeds(seeds):
    assert Members.of(seeds).seeds == (0, 1, 2)


def test_a_task_is_its_file_and_a_model_its_kind(tmp_path, monkeypatch):
    (tmp_path / "own.toml").write_text("[operations]\n3 = '+1'\n", encoding="utf-8")
    module = sys.modules["anchorlab.engine.train"]  # the name of the package is the function's
    monkeypatch.setattr(
        module, "run", lambda experiments, *others, **more: [HandMadeRun(one, (), {}) for one in experiments]
    )
    made = train(tmp_path / "own.toml", "lstm", store=tmp_path).experiment
    assert made == train(str(tmp_path / "own.toml"), LSTMSpec(), store=tmp_path).experiment
    assert made.task.name == "own"
    assert made.model == LSTMSpec()


def test_where_it_is_trained_is_handed_on(monkeypatch):
    module, handed = sys.modules["anchorlab.engine.train"], {}
    monkeypatch.setattr(module, "run", lambda experiments, *others, **more: handed.update(more) or [None])
    train("anchor/identity", on="slurm")
    assert handed == {"on": "slurm"}


REFUSED = [
    ({"store": 3}, r"store: int is not a store; give a directory or al\.Store\(\.\.\.\)"),
    ({"seeds": 1.5}, r"members\.seeds: 1\.5 does not say which seeds; give their number, or a list of them"),
    ({"seeds": "0:x"}, r"seeds: '0:x' is not a list of seeds; write 0:10 for ten seeds, or 0,3,5"),
    ({"seeds": 0}, r"members\.seeds: there are none; give at least one"),
    ({"task": 3}, "task: int is not a task; give a task, its name or its TOML file"),
    ({"model": nn.Linear(2, 2)}, r"model: Linear is not a model spec; use al\.register_module"),
    ({"model": DecoderSpec}, r"model: DecoderSpec is not a model spec; write al\.DecoderSpec\(\.\.\.\)"),
    ({"model": "lsm"}, r"model\.kind: unknown model 'lsm'; did you mean 'lstm'\?"),
    ({"recipe": {"duration": 2}}, r"recipe: dict is not a recipe; write al\.Recipe\(\.\.\.\)"),
    ({"start": "abc"}, r"start: str is not a run; give what al\.train or al\.zoo\(NAME\) returned"),
    ({"start": zoo()}, r"start: DataFrame is not a run; give what al\.train or al\.zoo\(NAME\) returned"),
    ({"start": [None]}, r"start: list is not a run; give what al\.train or al\.zoo\(NAME\) returned"),
    ({"execution": "fast"}, "execution: unknown execution 'fast'; known: auto, mapped, member"),
    ({"seeds": [3, 3]}, r"members\.seeds"),
    ({"workers": 0}, "workers: "),
    ({"device": "cudaa"}, "device: "),
    ({"device": "meta"}, "device: "),
]


@pytest.mark.untyped  # values of other types than the annotations name
@pytest.mark.parametrize(("given", "message"), REFUSED, ids=[message[:30] for _, message in REFUSED])
def test_what_it_cannot_take_is_named_and_changes_nothing(tmp_path, given, message):
    with pytest.raises(SpecError, match=f"^{message}"):
        train(**{"task": IDENTITY, "model": DECODER, "recipe": SAMPLE, "store": tmp_path / "runs", **given})
    assert not (tmp_path / "runs").exists()


MODELS = {"decoder": DECODER, "lstm": al.LSTMSpec(layers=2, width=8), "fnn": al.FNNSpec(layers=2, width=3, hidden=10)}


def test_the_table_says_what_each_run_says(tmp_path):
    recipe, store = SAMPLE.replace(duration=4), Store(tmp_path)
    table = compare(IDENTITY, MODELS.values(), recipe, seeds=range(2), store=store, workers=1)
    assert table.columns == ["model", "parameters", "split", "group", "metric", "mean", "lowest", "highest"]
    assert len(table) == 3 * 2 * 2  # models, splits, metrics
    block = 4 * 16 * 16 + 2 * 16 * 24 + 4 * 16
    sizes = {
        "decoder": 201 * 16 + 9 * 16 + 2 * block + 16 * 201 + 201,
        "lstm": 201 * 8 + 2 * (2 * 8 * 32 + 2 * 32) + 8 * 201 + 201,
        "fnn": 201 * 3 + 9 * 3 + 2 * (27 * 10 + 10 + 10 * 27 + 27) + 27 * 3 + 3 + 3 * 201 + 201,
    }
    assert dict(table.select("model", "parameters").unique().iter_rows()) == sizes
    for name, model in MODELS.items():
        run = train(IDENTITY, model, recipe, seeds=range(2), store=store, workers=1)
        own = last_metrics(run.metrics).drop("edit").rows()
        assert table.filter(model=name).drop("model", "parameters").rows() == own
        ends = run.metrics.filter(split="test", metric="loss", step=4)["value"]
        (found,) = table.filter(model=name, split="test", metric="loss").to_dicts()
        assert (found["lowest"], found["highest"]) == (ends.min(), ends.max())
        assert found["lowest"] < found["mean"] < found["highest"]
    assert len(list(store.runs())) == 3


def test_learners_are_named_by_kind_or_by_the_user(tmp_path):
    small = {"one": MODELS["lstm"], "two": MODELS["lstm"].replace(width=4)}
    table = compare(IDENTITY, small, SAMPLE.replace(duration=1), store=Store(tmp_path), workers=1)
    assert table["model"].unique(maintain_order=True).to_list() == ["one", "two"]


@pytest.mark.parametrize("model", ["lstm", MODELS["lstm"]])
def test_one_learner_needs_no_list(model):
    assert [*_named(model)] == ["lstm"]


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ((MODELS["lstm"], MODELS["lstm"]), r"^models: two are called 'lstm'; name them"),
        (("lstmm",), r"^models\.lstmm\.kind: unknown model 'lstmm'; did you mean 'lstm'\?"),
        ((), r"^models: there are none"),
        ((MODELS["fnn"],), r"^model\.kind: 'fnn' makes one prediction, at the last position"),
    ],
)
def test_wrong_learners_and_ones_that_predict_once_where_more_is_asked_are_refused(models, message):
    with pytest.raises(SpecError, match=message):
        compare(TRIGGERS, models)
