"""Experiments that start where another ended."""

import pytest
import torch

from anchorlab.engine import run, train
from anchorlab.errors import IncompleteError, SpecError
from anchorlab.models import DecoderSpec
from anchorlab.runs import Store
from anchorlab.tasks import task
from anchorlab.training import SGD, Constant, Experiment, Members, Recipe, Stream, fit
from tests.engine.killed import contents
from tests.small_experiments import BREAKING, DECODER, IDENTITY, KINDS, SAMPLE, experiment, worst


def plain(duration, rate=0.1):
    """Without momentum or schedule, ten steps and ten more are twenty."""
    return Recipe(
        data=Stream(), optimiser=SGD(learning_rate=rate), schedule=Constant(), batch=8, duration=duration,
        precision="float64",
    )  # fmt: skip


def after(first, **changes):
    given = {"task": first.task, "model": first.model, "recipe": first.recipe, "members": first.members, "start": first}
    return Experiment(**{**given, **changes})


def test_no_step_leaves_the_weights_of_the_start(tmp_path):
    first = Experiment(IDENTITY, DECODER, plain(5), Members(seeds=(0, 1, 2)))
    still = after(first, recipe=plain(3, rate=1e-30), members=Members(seeds=(7, 8, 9)))
    runs = run([first, still], Store(tmp_path), workers=1)
    assert worst(runs[0].ensemble().weights, runs[1].ensemble().weights) < 1e-20


@pytest.mark.slow
def test_members_go_on_from_their_own_weights_in_any_division(tmp_path):
    """Shared over processes, in one, and without any store: as a plain loop that trains member by member."""
    first = Experiment(IDENTITY, DECODER, plain(6), Members(seeds=(0, 1, 2)))
    second = after(first, task=task("anchor/identity"), members=Members(seeds=(5, 6, 7)))
    run([first], Store(tmp_path / "two"), workers=1)
    shared = run([second], Store(tmp_path / "two"), workers=2)[0]
    together = fit(second, execution="mapped").ensemble
    assert worst(shared.ensemble().weights, together.weights) < 1e-12
    began = fit(first).ensemble
    for member, seed in enumerate((5, 6, 7)):
        alone = Experiment(second.task, second.model, second.recipe, Members(seeds=(seed,)))
        ended = fit(alone, start=began.select([member])).ensemble
        assert worst(ended.weights, together.select([member]).weights) < 1e-12
    assert worst(began.weights, together.weights) > 1e-4


def test_a_start_that_fails_takes_only_its_own_with_it(tmp_path):
    store, first, other = Store(tmp_path), experiment("own recurrent module"), experiment()
    lost, after_that = after(BREAKING, label="lost"), after(after(BREAKING), label="after that")
    going_on = after(first, label="going on")
    with pytest.raises(IncompleteError) as caught:
        run([lost, after_that, going_on, other], store, workers=1)
    assert caught.value.lines == [
        "breaking, seeds 0, 1, 2 failed: ZeroDivisionError: it broke",
        "anchor/identity; lost; after that failed: what it starts from has failed",
    ]
    assert [one.cell in store for one in (lost, after_that, first, going_on, other)] == [False, False, True, True, True]
    with pytest.raises(ZeroDivisionError, match="it broke"):
        run([lost], store, workers=1)


def test_what_it_starts_from_is_part_of_its_address():
    first = experiment()
    second, third = after(first), after(experiment(duration=31))
    assert len({first.cell.address, second.cell.address, third.cell.address}) == 3
    again = Experiment.from_json(second.to_json())
    assert again == second and again.cell.address == second.cell.address
    assert "start" not in first.to_json()


@pytest.mark.slow
def test_a_stopped_one_goes_on_with_the_same_bytes(tmp_path):
    second = after(experiment())

    def stop(status):
        if status.done > 0.7 * status.total and second.start.cell in Store(tmp_path / "stopped"):
            raise KeyboardInterrupt

    run([second], Store(tmp_path / "whole"), workers=1)
    assert second.start.cell in Store(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run([second], Store(tmp_path / "stopped"), workers=1, report=stop, keep_every=0.0)
    run([second], Store(tmp_path / "stopped"), workers=1, keep_every=0.0)
    kept = {
        name: content
        for name, content in contents(tmp_path / "whole").items()
        if name.endswith((".parquet", ".safetensors"))
    }
    found = contents(tmp_path / "stopped")
    assert kept and all(found[name] == content for name, content in kept.items())


def test_a_finished_one_does_not_ask_for_its_start_again(tmp_path):
    store, second = Store(tmp_path), after(experiment())
    run([second], store, workers=1)
    store.remove(second.start.cell.address)
    assert run([second], store, workers=1)[0].experiment == second
    assert second.start.cell not in store


def test_train_goes_on_from_a_run(tmp_path):
    store = Store(tmp_path)
    first = train(IDENTITY, DECODER, SAMPLE, seeds=(0, 1), store=store, workers=1)
    second = train(IDENTITY, recipe=SAMPLE, seeds=(2, 3), store=store, workers=1, start=first)
    assert second.experiment.start == first.experiment and second.experiment.model == DECODER
    assert torch.isfinite(next(iter(second.ensemble().weights.values()))).all()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"members": Members(seeds=(0,))}, "start.members: has 3 members, not 1; give both as many seeds"),
        ({"model": DECODER.replace(width=12)}, "start.model: ends with .* of shape"),
        ({"model": DecoderSpec(layers=3, heads=1, width=8, head_width=4)}, "start.model: ends with"),
        ({"members": Members(seeds=(0, 1, 2), initialisation_scale=(1, 1, 2))}, "members: changes initial weights"),
    ],
)
def test_what_does_not_fit_is_refused(changes, problem):
    first = Experiment(IDENTITY, DECODER, plain(5), Members(seeds=(0, 1, 2)))
    with pytest.raises(SpecError, match=problem):
        after(first, **changes)


def test_other_kinds_start_too():
    for kind in KINDS:
        first = experiment(kind)
        assert after(first).start == first
