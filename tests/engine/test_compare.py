"""Learners side by side: one line trains them all and tabulates what each one's own run says."""

import pytest

import anchorlab as al
from anchorlab.engine import compare, train
from anchorlab.engine.train import _named
from anchorlab.errors import SpecError
from anchorlab.runs import Store
from anchorlab.runs.metrics import last_metrics
from tests.small_experiments import DECODER, IDENTITY, SAMPLE, TRIGGERS

MODELS = {
    "decoder": DECODER,
    "lstm": al.LSTMSpec(layers=2, width=8),
    "fnn": al.FNNSpec(layers=2, width=3, hidden=10),
}


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
    ],
)
def test_wrong_learners_are_refused(models, message):
    with pytest.raises(SpecError, match=message):
        compare(IDENTITY, models)


def test_a_learner_that_predicts_once_is_refused_where_more_is_asked():
    with pytest.raises(SpecError, match=r"^model\.kind: 'fnn' makes one prediction, at the last position"):
        compare(TRIGGERS, (MODELS["fnn"],), SAMPLE)
