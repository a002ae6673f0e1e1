"""Finished runs: metrics picked by name, and members as plain modules."""

import polars as pl
import pytest
import torch
from torch import nn

from anchorlab.engine import run
from anchorlab.errors import SpecError, StoreError
from anchorlab.models import Remove
from anchorlab.runs import Store
from anchorlab.training import Evaluation, Members, Times
from tests.small_experiments import experiment

EDITED = Evaluation(every=2, size=8, edits={"without": (Remove(weight="blocks.1.mlp"),)})


@pytest.fixture(scope="module")
def decoders(tmp_path_factory):
    one = experiment(duration=4, evaluation=EDITED, checkpoints=Times(every=2))
    return run([one], Store(tmp_path_factory.mktemp("store")), workers=1)[0]


@pytest.fixture(scope="module")
def tied(tmp_path_factory):
    one = experiment("own module with tied weights", duration=2)
    return run([one], Store(tmp_path_factory.mktemp("store")), workers=1)[0]


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
    ("arguments", "message"),
    [
        ({"metric": "acuracy"}, r"^metric: unknown metric 'acuracy'; did you mean 'accuracy'\?"),
        ({"metric": "loss", "split": "tests"}, r"^split: unknown split 'tests'; did you mean 'test'\?"),
        ({"metric": "loss", "group": "rare"}, r"^group: unknown group 'rare'; known: all"),
        ({"metric": "loss", "edit": "with"}, r"^edit: unknown edit 'with'; did you mean 'without'\?"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest_one(decoders, arguments, message):
    with pytest.raises(SpecError, match=message):
        decoders.metric(**arguments)


@pytest.mark.parametrize(
    ("losses", "best"),
    [([[3, 1], [2, 0.5], [0.1, 2]], 1), ([[1, 1], [1, 1], [1, 1]], 0), ([[0, float("nan")], [9, 8], [9, 9]], 1)],
)
def test_the_best_member_has_the_lowest_loss_at_its_end(decoders, monkeypatch, losses, best):
    rows = [(member, step, value) for member, each in enumerate(losses) for step, value in enumerate(each)]
    table = pl.DataFrame(rows, schema={"member": int, "step": int, "value": float}, orient="row")
    monkeypatch.setattr(type(decoders), "metric", lambda run, metric, split: {("loss", "test"): table}[metric, split])
    assert decoders.best_member == best


@pytest.mark.parametrize("name", ["decoders", "tied"])
def test_a_member_is_a_plain_module_with_its_own_weights(request, name):
    found = request.getfixturevalue(name)
    inputs = found.experiment.task.sample("test", 5, seed=0).inputs
    kept = found.run.read_checkpoint(found.checkpoints[-1])
    ensemble = found.ensemble()
    for member in range(3):
        module = found.model(member)
        assert isinstance(module, nn.Module)
        weights = dict([*module.named_parameters(), *module.named_buffers()])
        assert weights.keys() == kept.keys()
        assert all(torch.equal(value, kept[weight][member]) for weight, value in weights.items())
        of_ensemble = torch.func.functional_call(ensemble.template, ensemble.member_weights(member), (inputs,))
        torch.testing.assert_close(module(inputs), of_ensemble, rtol=0, atol=1e-12)
    assert not torch.equal(found.model(0)(inputs), found.model(1)(inputs))


def test_a_member_is_read_from_any_checkpoint_and_from_no_other(decoders):
    first, last = decoders.run.read_checkpoint(0), decoders.run.read_checkpoint(4)
    name = "blocks.0.attn.W_Q"
    assert torch.equal(decoders.model(2, step=0).state_dict()[name], first[name][2])
    assert torch.equal(decoders.model(2).state_dict()[name], last[name][2])
    with pytest.raises(StoreError, match="no checkpoint of step 3; there are 0, 2, 4"):
        decoders.model(0, step=3)
    for member in (-1, 3):
        with pytest.raises(SpecError, match=f"^member: there is no member {member}; choose one from 0 to 2"):
            decoders.model(member=member)


@pytest.mark.untyped
def test_inputs_in_place_of_a_step_are_refused(decoders):
    with pytest.raises(SpecError, match=r"^step: is a tensor; call run.ensemble\(\)\(inputs\) for predictions$"):
        decoders.ensemble(torch.tensor([0, 2]))


def test_a_member_can_be_saved_and_changed_alone(decoders, tmp_path):
    module = decoders.model(1)
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    again = decoders.model(0)
    again.load_state_dict(torch.load(tmp_path / "weights.pt"))
    with torch.no_grad():
        for weight in module.parameters():
            weight.zero_()
    fresh = decoders.model(1).state_dict()
    assert all(torch.equal(value, fresh[name]) for name, value in again.state_dict().items())
    size = sum(value.numel() * value.element_size() for value in fresh.values())
    assert (tmp_path / "weights.pt").stat().st_size < 2 * size  # one member is saved, not the stack


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
        ({"member": 3}, "^member: there is no member 3; choose one from 0 to 2"),
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
