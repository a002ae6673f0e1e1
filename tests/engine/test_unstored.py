"""A run with a call after each step, or with a loss that is not registered, is not kept."""

import gc
import warnings
from pathlib import Path

import pytest
import torch

from anchorlab.engine import compare, run, train
from anchorlab.errors import DivergedWarning, SpecError
from anchorlab.models import DecoderSpec
from anchorlab.training import AdamW, Experiment
from tests.small_experiments import BREAKING, DECODER, IDENTITY, SAMPLE, smoothed

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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loss": plain, "store": "kept"}, "store: cannot keep a run with a loss that is not registered; train it by"),
        ({"after_step": nothing, "store": "kept"}, "store: cannot keep a run with after_step; train it by al.train"),
        ({"after_step": nothing, "workers": 2}, "workers: no other process can train with after_step; leave it out"),
        ({"loss": plain, "on": "slurm"}, "workers: no other process can train with a loss that is not registered; "),
        ({"loss": plain, "recipe": RECIPE.replace(loss=smoothed())}, "loss: the recipe has one, too; give it once"),
        ({"loss": plain, "execution": "fast"}, "execution: unknown execution 'fast'; known: auto, mapped, member"),
        ({"loss": plain, "device": "gpu"}, "device: 'gpu' does not exist"),
        ({"loss": "plain"}, "loss.kind: unknown loss 'plain'; known: "),
    ],
)
def test_what_it_cannot_take_is_named_and_changes_nothing(here, given, message):
    with pytest.raises(SpecError) as caught:
        train(**{"task": IDENTITY, "model": DECODER, "recipe": RECIPE, **given})
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
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
