"""What `train` and `compare` take and refuse, what no store keeps, and what they say of members that diverge."""

import gc
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import anchorlab as al
from anchorlab.engine import compare, run, train
from anchorlab.engine.train import _named
from anchorlab.errors import DivergedWarning, SpecError
from anchorlab.models import DecoderSpec, LSTMSpec
from anchorlab.runs import Store
from anchorlab.runs.metrics import last_metrics
from anchorlab.trained import zoo
from anchorlab.training import AdamW, Evaluation, Experiment, Members
from tests.papers.hand_made_runs import HandMadeRun
from tests.small_experiments import BREAKING, DECODER, IDENTITY, SAMPLE, TRIGGERS, experiment, smoothed


@pytest.mark.parametrize("kind", [str, Path, Store])
def test_a_store_is_its_directory(tmp_path, kind):
    run = train(IDENTITY, DECODER, SAMPLE, store=kind(tmp_path / "runs"), workers=1)
    assert [one.address for one in Store(tmp_path / "runs").runs()] == [run.run.address]


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


# A run with a call after each step, or with a loss that is not registered, is not kept.
RECIPE = SAMPLE.replace(precision="float32", duration=6, checkpoints={"every": 2})


def plain(outputs, targets):
    """The registered loss without its registration."""
    return smoothed()(outputs, targets)


def nothing(step, members):
    """What changes nothing."""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory, and the folder in which temporary ones are made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANCHORLAB_STORE", raising=False)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return tmp_path


@pytest.mark.parametrize("given", [{"loss": plain}, {"loss": smoothed(), "after_step": nothing}])
def test_it_is_the_kept_run_and_goes_with_the_object(here, given):
    kept = train(IDENTITY, DECODER, RECIPE, 3, store="kept", loss=smoothed)
    seen = []
    found = train(IDENTITY, DECODER, RECIPE, 3, report=lambda status: seen.append(status.done / status.total), **given)
    assert found.metrics.equals(kept.metrics)
    assert found.checkpoints == kept.checkpoints == [0, 2, 4, 6]
    for step in kept.checkpoints:
        expected = kept.ensemble(step).weights
        assert all(torch.equal(value, expected[name]) for name, value in found.ensemble(step).weights.items())
    assert found.run.address != kept.run.address and found.run.problems() == []
    assert seen[-1] == 1.0
    assert sorted(path.name for path in here.iterdir()) == ["kept", "temporary"]
    assert len(list((here / "temporary").iterdir())) == 1
    with pytest.raises(SpecError, match="is of a run that no store keeps; use what"):
        Experiment.from_json(found.run.spec)
    del found
    gc.collect()
    assert list((here / "temporary").iterdir()) == []


def test_two_runs_have_two_addresses(here):
    """Else what is kept by address could be of the other one."""
    first, second = (train(IDENTITY, DECODER, RECIPE, after_step=nothing) for _ in range(2))
    assert first.run.address != second.run.address


def test_nothing_stays_of_a_training_that_fails(here):
    def breaks(step, members):
        if step == 3:
            raise ZeroDivisionError("it broke")

    with pytest.raises(ZeroDivisionError, match="it broke"):
        train(IDENTITY, DECODER, RECIPE, after_step=breaks)
    gc.collect()
    assert list((here / "temporary").iterdir()) == []


def test_it_starts_from_a_run_and_another_starts_from_it(here):
    first = train(IDENTITY, DECODER, RECIPE, store="kept")
    begins = []

    def look(step, members):
        begins.append(members.weights["embed.W_E"].clone())

    slow = RECIPE.replace(optimiser=AdamW(learning_rate=1e-9, weight_decay=0.0))
    second = train(IDENTITY, recipe=slow, start=first, after_step=look)
    third = train(IDENTITY, recipe=slow, start=second)  # is not kept either, since nothing could train it again
    ends = [one.ensemble().weights["embed.W_E"] for one in (first, second, third)]
    assert float((begins[0] - ends[0]).abs().max()) < 1e-7
    assert float((ends[2] - ends[1]).abs().max()) < 1e-7
    assert sorted(path.name for path in Path("kept").iterdir() if path.is_dir()) == [first.run.address]
    with pytest.raises(SpecError, match=r"^store: cannot keep a run with after_step; train it by"):
        train(IDENTITY, recipe=slow, start=second, store="kept")


def test_members_that_diverge_are_named(here):
    recipe = RECIPE.replace(optimiser=AdamW(1e30), clip=None)
    with pytest.warns(DivergedWarning, match=r"anchor/identity \(.*\): seed 0 by step"):
        assert train(IDENTITY, DECODER, recipe, after_step=nothing).diverged
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(IDENTITY, DECODER, RECIPE, after_step=nothing)


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
    ({"start": "abc"}, r"start: str is not a run; give what al\.train, al\.run or al\.zoo\(NAME\) returned"),
    ({"start": zoo()}, r"start: DataFrame is not a run; give what al\.train, al\.run or al\.zoo\(NAME\) returned"),
    ({"start": [None]}, r"start: list is not a run; give what al\.train, al\.run or al\.zoo\(NAME\) returned"),
    ({"execution": "fast"}, "execution: unknown execution 'fast'; known: auto, mapped, member"),
    ({"loss": plain, "store": "kept"}, "store: cannot keep a run with a loss that is not registered; train it by"),
    ({"after_step": nothing, "store": "kept"}, "store: cannot keep a run with after_step; train it by al.train"),
    ({"after_step": nothing, "workers": 2}, "workers: no other process can train with after_step; leave it out"),
    ({"loss": plain, "on": "slurm"}, "workers: no other process can train with a loss that is not registered; "),
    ({"loss": plain, "recipe": RECIPE.replace(loss=smoothed())}, "loss: the recipe has one, too; give it once"),
    ({"loss": plain, "execution": "fast"}, "execution: unknown execution 'fast'; known: auto, mapped, member"),
    ({"loss": plain, "device": "gpu"}, "device: 'gpu' does not exist"),
    ({"loss": "plain"}, "loss.kind: unknown loss 'plain'; known: "),
]


@pytest.mark.untyped  # values of other types than the annotations name
@pytest.mark.parametrize(("given", "message"), REFUSED, ids=[message[:30] for _, message in REFUSED])
def test_what_it_cannot_take_is_named_and_changes_nothing(here, given, message):
    with pytest.raises(SpecError, match=f"^{message}") as caught:
        train(**{"task": IDENTITY, "model": DECODER, "recipe": RECIPE, **given})
    assert "\n" not in str(caught.value)
    assert [path.name for path in here.iterdir()] == ["temporary"] and not any((here / "temporary").iterdir())


def test_what_trains_several_experiments_keeps_them_and_refuses(here):
    refused = "^store: cannot keep a run with a loss that is not registered; .* a store, or register the loss$"
    with pytest.raises(SpecError, match=refused):
        compare(IDENTITY, {"one": DECODER, "two": DecoderSpec(layers=1)}, RECIPE.replace(loss=plain))
    with pytest.raises(SpecError, match=refused):
        run([BREAKING, Experiment(IDENTITY, DECODER, RECIPE.replace(loss=plain), BREAKING.members)])
    assert [path.name for path in here.iterdir()] == ["temporary"]


@pytest.mark.slow
def test_a_registered_loss_is_imported_by_other_processes(tmp_path):
    one = Experiment(IDENTITY, DECODER, RECIPE.replace(loss=smoothed(share=0.2)), BREAKING.members)
    (here,), (there,) = (
        run([one], tmp_path / str(count), workers=count, execution="member", keep_every=0.0) for count in (1, 2)
    )
    assert here.metrics.equals(there.metrics)


# A member whose learning rate is absurd diverges beside a healthy one, and that is said once.
def asked(rates, seeds):
    recipe = RECIPE.replace(evaluation=Evaluation(every=3, size=8))
    return experiment(recipe=recipe, members=Members(seeds=seeds, learning_rate=rates))


@pytest.mark.parametrize("execution", ["member", "mapped"])
def test_a_run_names_its_members_and_one_warning_says_so(tmp_path, execution):
    one = asked((1e30, 1e-3), (7, 4))
    with pytest.warns(DivergedWarning) as told:
        (found,) = run([one], tmp_path, workers=1, execution=execution)
    assert found.diverged == {0: 3}
    assert [str(each.message) for each in told] == [
        f"diverged (metrics are not finite): {found.run.label} ({found.run.address}): seed 7 by step 3;"
        " lower the learning rate or clip"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run([one], tmp_path)[0].diverged == {0: 3}  # it is read, and was told of before


def test_healthy_members_are_said_nothing_of(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = run([asked((1e-3, 1e-4), (7, 4))], tmp_path, workers=1)
    assert found.diverged == {} and not found.diverged


def test_one_warning_for_runs_that_are_trained_together(tmp_path):
    rates = [1e-3, 1e30, 2e-3, *(2e30 + 1e29 * number for number in range(5))]
    together = [asked((rate,), (number,)) for number, rate in enumerate(rates)]
    with pytest.warns(DivergedWarning) as told:
        found = run(together, tmp_path, workers=1)
    assert [bool(each.diverged) for each in found] == [False, True, False, True, True, True, True, True]
    (text,) = (str(each.message) for each in told)
    assert text.count(" by step 3") == 5 and " and 1 more; lower" in text


# Learners side by side: one line trains them all and tabulates what each one's own run says.
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
    table = compare(IDENTITY, small, SAMPLE.replace(duration=1), store=tmp_path, workers=1)
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


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"recipe": {"duration": 2}}, r"recipe: dict is not a recipe; write al\.Recipe\(\.\.\.\)$"),
        ({"models": DecoderSpec}, r"models\.DecoderSpec: .* is not a model spec"),
        ({"models": 5}, r"models\.int: .* is not a model spec"),
        ({"models": ["lstm", nn.Linear(2, 2)]}, r"models\.Linear: .* is not a model spec"),
    ],
)
def test_what_is_not_a_learner_or_a_recipe_is_named(given, message):
    with pytest.raises(SpecError, match=f"^{message}"):
        compare(**{"task": IDENTITY, "models": DECODER, **given})


def test_a_learner_that_predicts_once_is_refused_where_more_is_asked():
    with pytest.raises(SpecError, match=r"^model\.kind: 'fnn' makes one prediction, at the last position"):
        compare(TRIGGERS, (MODELS["fnn"],), SAMPLE)
