"""Finished runs, trained or not: opened from a store, metrics picked by name, members as plain modules."""

from dataclasses import replace

import polars as pl
import pytest
import torch

import anchorlab as al
from anchorlab.engine import run
from anchorlab.errors import SpecError, StoreError
from anchorlab.models import Remove
from anchorlab.runs import Store
from anchorlab.training import Evaluation, Experiment, Members, Times, TrainedRun, fit
from tests.small_experiments import SAMPLE, experiment, initial_module

EDITED = Evaluation(every=2, size=8, edits={"without": (Remove(weight="blocks.1.mlp"),)})


@pytest.fixture(scope="module")
def decoders(tmp_path_factory):
    one = experiment(duration=4, evaluation=EDITED, checkpoints=Times(every=2))
    return run([one], Store(tmp_path_factory.mktemp("store")), workers=1)[0]


def test_a_run_just_trained_rebuilds_nothing_and_one_of_a_store_reads_its_specification(tmp_path, monkeypatch):
    first = experiment(duration=2)
    asked = [first, replace(first, start=first), replace(first, trained=False)]
    for _ in range(2):  # trained, and found in the store
        found = run(asked, Store(tmp_path), workers=1)
        with monkeypatch.context() as patch:
            patch.setattr(Experiment, "from_json", lambda *_: pytest.fail("rebuilt from JSON"))
            assert [one.experiment is given for one, given in zip(found, asked, strict=True)] == [True] * 3
            assert [one.ensemble().size for one in found] == [3] * 3
            with pytest.raises(pytest.fail.Exception, match="rebuilt from JSON"):
                TrainedRun(Store(tmp_path).open(first.cell)).ensemble()
    opened = TrainedRun(Store(tmp_path).open(first.cell))
    assert opened.experiment == first and opened.experiment is not first


def test_a_metric_is_picked_by_name(decoders):
    table = decoders.metric("accuracy", split="train")
    assert table.columns == ["member", "step", "value"]
    assert table.select("member", "step").rows() == [(member, step) for member in range(3) for step in (0, 2, 4)]
    rows = decoders.metrics.to_dicts()
    for edit in ("none", "without"):
        for member, step, value in decoders.metric("loss", edit=edit).iter_rows():
            key = {"member": member, "step": step, "split": "test", "group": "all", "edit": edit, "metric": "loss"}
            assert [row["value"] for row in rows if key.items() <= row.items()] == [value]
    assert not decoders.metric("loss").equals(decoders.metric("loss", edit="without"))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda run: run.metric("acuracy"), r"metric: unknown metric 'acuracy'; did you mean 'accuracy'\?"),
        (lambda run: run.metric("loss", split="tests"), r"split: unknown split 'tests'; did you mean 'test'\?"),
        (lambda run: run.metric("loss", group="rare"), r"group: unknown group 'rare'; known: all"),
        (lambda run: run.metric("loss", edit="with"), r"edit: unknown edit 'with'; did you mean 'without'\?"),
        (lambda run: run.model(member=-1), "member: there is no member -1; choose one from 0 to 2"),
        (lambda run: run.model(member=3), "member: there is no member 3; choose one from 0 to 2"),
        pytest.param(
            lambda run: run.ensemble(torch.tensor([0, 2])),
            r"step: is a tensor; call run.ensemble\(\)\(inputs\) for predictions$",
            marks=pytest.mark.untyped,
        ),
    ],
)
def test_what_a_run_does_not_have_is_named(decoders, ask, message):
    with pytest.raises(SpecError, match=f"^{message}"):
        ask(decoders)


@pytest.mark.parametrize(
    ("losses", "best"),
    [([[3, 1], [2, 0.5], [0.1, 2]], 1), ([[1, 1], [1, 1], [1, 1]], 0), ([[0, float("nan")], [9, 8], [9, 9]], 1)],
)
def test_the_best_member_has_the_lowest_loss_at_its_end(decoders, monkeypatch, losses, best):
    rows = [(member, step, value) for member, each in enumerate(losses) for step, value in enumerate(each)]
    table = pl.DataFrame(rows, schema={"member": int, "step": int, "value": float}, orient="row")
    monkeypatch.setattr(type(decoders), "metric", lambda run, metric, split: {("loss", "test"): table}[metric, split])
    assert decoders.best_member == best


def test_a_member_is_named_by_its_seed_or_its_index(tmp_path):
    one = experiment(duration=1, members=Members(seeds=(4, 7, 7), learning_rate=(1e-3, 1e-3, 2e-3)))
    found = run([one], Store(tmp_path), workers=1)[0]
    name = "blocks.0.attn.W_Q"
    kept = found.run.read_checkpoint(found.checkpoints[-1])[name]
    assert torch.equal(found.model(4).state_dict()[name], kept[0])
    assert torch.equal(found.model().state_dict()[name], kept[0])
    assert torch.equal(found.model(member=2).state_dict()[name], kept[2])
    for arguments, message in (
        ({"seed": 7}, "^seed: members 1, 2 have the seed 7; choose one by its index, as in member=0"),
        ({"seed": 5}, "^seed: no member has the seed 5; the seeds are 4, 7, 7"),
        ({"seed": 4, "member": 0}, "^member: is given together with a seed; give one of the two"),
    ):
        with pytest.raises(SpecError, match=message):
            found.model(**arguments)


def test_weights_that_are_kept_in_bfloat16_are_computed_with_in_float32(decoders, monkeypatch):
    kept = decoders.run.read_checkpoint(4)
    monkeypatch.setattr(
        decoders.run, "read_checkpoint", lambda step: {key: one.bfloat16() for key, one in kept.items()}, raising=True
    )
    for name, value in decoders.ensemble().weights.items():
        assert value.dtype == torch.float32 and torch.equal(value, kept[name].bfloat16().float())


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
    with pytest.raises(StoreError, match="no checkpoint of step 4; there are 0, 3, 10, 20, 25"):
        untrained.ensemble(4)
    assert torch.equal(untrained.model(2, 25).state_dict()["embed.W_E"], untrained.ensemble().weights["embed.W_E"][2])


def test_the_metrics_are_those_before_the_first_step_at_every_time(both):
    trained, untrained = both
    assert untrained.metrics.columns == trained.metrics.columns
    keys = ["member", "split", "group", "edit", "metric"]
    first = trained.metrics.filter(pl.col("step") == 0).drop("step").sort(keys)
    for step in (0, 10, 20, 25):
        assert untrained.metrics.filter(pl.col("step") == step).drop("step").sort(keys).equals(first)
    assert untrained.metrics.height == 4 * first.height == trained.metrics.height


def test_an_untrained_run_takes_no_step_and_its_experiment_has_an_address_of_its_own(both):
    trained, untrained = both
    assert not list((untrained.run.path / "checkpoints").glob("*"))
    assert untrained.run.problems() == []
    assert untrained.experiment.steps == trained.experiment.steps == 25
    rows = fit(untrained.experiment).rows
    assert {row.step for row in rows} == {0}
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


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of two and of four steps, and one that has not begun."""
    store = Store(tmp_path_factory.mktemp("store"))
    found = run([experiment(duration=steps) for steps in (2, 4)], store, workers=1)
    with store.open(experiment(duration=6).cell):
        pass
    return {one.experiment.steps: one.run.address for one in found}, store


def test_by_the_address_that_commands_print_and_by_conditions(runs):
    addresses, store = runs
    for steps, address in addresses.items():
        assert al.run(address[:8], store).experiment.steps == steps
        assert al.run(address, str(store.root)).metric("loss")["step"].max() == steps
    addresses, store = runs
    assert {one.run.address for one in al.find_runs(store=store)} == {*addresses.values()}
    assert [one.experiment.steps for one in al.find_runs("recipe.duration>3", store=store)] == [4]


@pytest.mark.untyped  # values of other types than the annotations name
def test_what_cannot_be_opened(runs):
    _, store = runs
    with pytest.raises(StoreError, match="no run begins with 'zz'"):
        al.run("zz", store)
    with pytest.raises(StoreError, match="not finished"):
        al.run(experiment(duration=6).cell.address, store)
    with pytest.raises(SpecError, match=r"^address: should be text, got 3; write al\.run"):
        al.run(3, store)


def test_a_raw_run_and_a_store_say_what_opens_a_run(runs):
    addresses, store = runs
    with pytest.raises(SpecError, match=r"^cell: .*; open runs by `al\.run\(ADDRESS\)`"):
        store.open(addresses[2])
    raw = store.find(addresses[2])
    with pytest.raises(AttributeError, match=rf"al\.run\('{addresses[2]}', STORE\) has \.metric"):
        _ = raw.metric
    assert not hasattr(raw, "anything")
