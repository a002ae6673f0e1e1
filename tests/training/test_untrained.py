"""Experiments without training: initial weights, measured once, at all times of the recipe."""

import polars as pl
import pytest
import torch

from anchorlab.engine import run
from anchorlab.runs import Store
from anchorlab.training import Experiment, Members, Times, fit
from tests.small_experiments import SAMPLE, experiment, initial_module

SHORT = SAMPLE.replace(duration=25, checkpoints=Times(every=10, at=(3,)))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same experiment, trained and untrained."""
    one = experiment(recipe=SHORT)
    return run([one, one.untrained()], Store(tmp_path_factory.mktemp("store")), workers=1)


def test_the_weights_are_the_initial_ones_at_every_time(both):
    trained, untrained = both
    assert untrained.checkpoints == trained.checkpoints == [0, 3, 10, 20, 25]
    for step in (*untrained.checkpoints, None):
        ensemble = untrained.ensemble(step)
        for member in range(3):
            expected = dict(initial_module(trained.experiment, member).named_parameters())
            for name, value in ensemble.member_weights(member).items():
                assert torch.equal(value, expected[name]), (step, member, name)
    assert torch.equal(untrained.model(2, 25).state_dict()["embed.W_E"], untrained.ensemble().weights["embed.W_E"][2])


def test_the_metrics_are_those_before_the_first_step_at_every_time(both):
    trained, untrained = both
    assert untrained.metrics.columns == trained.metrics.columns
    keys = ["member", "split", "group", "edit", "metric"]
    first = trained.metrics.filter(pl.col("step") == 0).drop("step").sort(keys)
    for step in (0, 10, 20, 25):
        assert untrained.metrics.filter(pl.col("step") == step).drop("step").sort(keys).equals(first)
    assert untrained.metrics.height == 4 * first.height == trained.metrics.height


def test_times_in_epochs_become_steps():
    recipe = SHORT.replace(unit="epochs", duration=4, checkpoints=Times(every=3))  # three batches an epoch
    one = experiment(recipe=recipe)
    assert one.steps_at(one.recipe.checkpoints) == [0, 9, 12]
    assert one.steps_at(Times()) == [12]


def test_an_untrained_run_takes_no_step_and_keeps_no_weights(both):
    trained, untrained = both
    assert not list((untrained.run.path / "checkpoints").glob("*"))
    assert untrained.run.problems() == []
    assert untrained.experiment.steps == trained.experiment.steps == 25
    rows = fit(untrained.experiment).rows
    assert {row.step for row in rows} == {0}


def test_an_untrained_experiment_has_an_address_of_its_own(both):
    trained, untrained = (one.experiment for one in both)
    assert "trained" not in trained.to_json()  # so that runs of before are found
    assert untrained.cell.address != trained.cell.address
    assert Experiment.from_json(untrained.to_json()) == untrained == trained.untrained()
    assert not untrained.take(range(1, 3)).trained


def test_what_goes_on_from_another_run_begins_as_that_one_began(tmp_path):
    first = experiment(recipe=SHORT)
    later = Experiment(first.task, first.model, SHORT.replace(duration=5), Members(seeds=(7, 8, 9)), start=first)
    (found,) = run([later.untrained()], Store(tmp_path), workers=1)
    assert found.experiment.start is not None and not found.experiment.start.trained
    for member in range(3):
        expected = dict(initial_module(first, member).named_parameters())
        assert all(
            torch.equal(value, expected[name]) for name, value in found.ensemble().member_weights(member).items()
        )
    measured = {row.value for row in fit(later.untrained()).rows}
    assert set(found.metrics["value"]) == measured
