"""A loss of one's own, and a call after each step, give what a plain PyTorch loop gives."""

import sys

import pytest
import torch
from torch.nn import functional

from anchorlab.engine import run
from anchorlab.errors import SpecError
from anchorlab.runs import Store
from anchorlab.tasks.metrics import loss_per_position
from anchorlab.training import SGD, Evaluation, Experiment, Loss, Recipe, Stop, TrainedRun, fit, register_loss
from anchorlab.training.trained_run import experiment_of
from tests.small_experiments import IDENTITY, experiment, smoothed, train_plainly, worst

BOTH = pytest.mark.parametrize("execution", ["member", "mapped"])


@register_loss("test-same")
def same(outputs, targets):
    return loss_per_position("cross_entropy", outputs, targets)


@BOTH
@pytest.mark.parametrize("kind", ["decoder", "recall after triggers"])
def test_the_same_loss_gives_the_same_bytes(kind, execution):
    """Also where some scored positions do not count."""
    plain = fit(experiment(kind, precision="float32"), execution=execution)
    own = fit(experiment(kind, precision="float32", loss=same), execution=execution)
    assert all(torch.equal(value, own.ensemble.weights[name]) for name, value in plain.ensemble.weights.items())
    objective = [row for row in own.rows if row.metric == "objective"]
    assert [row for row in own.rows if row.metric != "objective"] == list(plain.rows)
    assert [row._replace(metric="loss") for row in objective] == [row for row in plain.rows if row.metric == "loss"]


@BOTH
def test_label_smoothing_is_that_of_torch(execution):
    one = experiment(loss=smoothed(share=0.3))
    found = fit(one, execution=execution).ensemble
    for index in range(3):
        assert worst(found.member_weights(index), train_plainly(one, index, smoothing=0.3)) < 1e-10
        assert worst(found.member_weights(index), train_plainly(one, index)) > 1e-3


@BOTH
def test_a_projection_after_each_step_is_that_of_a_plain_loop(execution):
    """The rows of the embedding have length 1 after each step."""
    steps = []

    def project(step, members):
        steps.append(step)
        embedding = members.weights["embed.W_E"]
        embedding /= embedding.norm(dim=-1, keepdim=True)

    @torch.no_grad()
    def plainly(module):
        module.embed.W_E /= module.embed.W_E.norm(dim=-1, keepdim=True)

    one = experiment()
    found = fit(Experiment(one.task, one.model, one.recipe, one.members, after_step=project), execution=execution)
    for index in range(3):
        assert worst(found.ensemble.member_weights(index), train_plainly(one, index, after_step=plainly)) < 1e-10
        assert worst(found.ensemble.member_weights(index), train_plainly(one, index)) > 1e-3
    assert steps == list(range(1, 31))


@BOTH
def test_after_a_step_weights_are_those_of_that_step(execution):
    """Also their predictions; a weight that is put in place of another would train nothing, and is refused."""
    one, kept, refused = experiment(duration=2), [], []

    def look(step, members):
        kept.append(members(IDENTITY.sample("test", 4, seed=0).inputs)[:, :, -1])
        with pytest.raises(TypeError, match="does not support item assignment") as error:
            members.weights["embed.W_E"] = torch.zeros(1)
        refused.append(error)

    fit(Experiment(one.task, one.model, one.recipe, one.members, after_step=look), execution=execution)
    (_, after), length = kept, IDENTITY.shape.length
    assert len(refused) == 2
    for index in range(3):
        plain = one.model.build(IDENTITY.shape).double()
        plain.load_state_dict(train_plainly(one, index))
        expected = plain(IDENTITY.sample("test", 4, seed=0).inputs)[:, length - 1].detach()
        assert float((after[index] - expected).abs().max()) < 1e-10


def test_addresses_are_those_from_before_there_were_other_losses():
    """The first was computed before a recipe had a loss."""
    one, other, third = experiment(), experiment(loss="test-smoothed"), experiment(loss=smoothed(share=0.2))
    assert one.cell.address == "c949436e730542f05247"
    assert len({each.cell.address for each in (one, other, third)}) == 3
    assert other == experiment(loss=smoothed(share=0.1)) == Experiment.from_json(other.to_json(), other.cell.label)
    assert other.recipe.model_dump(mode="json")["loss"] == {"kind": "test-smoothed", "share": 0.1}
    assert "loss" not in one.recipe.model_dump(mode="json")


def test_a_stop_rule_may_read_it():
    stop = Stop(metric="objective", split="train", value=100.0, direction="below")
    assert {row.step for row in fit(experiment(loss=smoothed(), stop=stop)).rows} == {0}
    with pytest.raises(SpecError, match=r"^recipe\.stop\.metric: unknown metric 'objective'"):
        experiment(stop=stop)


def test_what_torch_cannot_map_is_trained_one_by_one():
    def asks(outputs, targets):
        each = functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
        return each if each.sum() > 0 else 2 * each

    one = experiment(loss=asks)
    assert worst(fit(one).ensemble.member_weights(1), train_plainly(one, 1)) < 1e-10
    with pytest.raises(SpecError, match=r"^execution: the model cannot be mapped over members") as caught:
        fit(one, execution="mapped")
    assert "\n" not in str(caught.value)


def mean(outputs, targets):
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def right(outputs, targets):
    return (outputs.argmax(dim=-1) != targets).double()


def noisy(outputs, targets):
    return (outputs * torch.rand(outputs.shape[-1])).mean(dim=-1)


def root(outputs, targets):
    return (outputs - outputs).sum(dim=-1).sqrt()


def logarithm(outputs, targets):
    return outputs[..., :9].log().sum(dim=-1)


GIVEN = r"for outputs \[batch scored output\] of shape \(2, 1, 201\)"
SHAPES = r"outputs of shape \(2, 1, 201\) and targets of shape \(2, 1\)"
ONE_EACH = r"return one value at each scored position"
REFUSED = [
    (mean, rf"'mean' returns shape \(\) {GIVEN}; {ONE_EACH}, \(2, 1\)"),
    (lambda *_: 3.0, rf"'<lambda>' returns a float {GIVEN}; {ONE_EACH}, \(2, 1\)"),
    (functional.cross_entropy, rf"'cross_entropy' fails for {SHAPES} \(RuntimeError: Expected target .*\); {ONE_EACH}"),
    (lambda outputs: 0, rf"'<lambda>' fails for {SHAPES} \(TypeError: .*2 were given\); {ONE_EACH}"),
    (right, "'right' has no gradient with respect to the outputs; compute it by differentiable operations"),
    (noisy, "'noisy' gives other values when it is called again; compute it from outputs and targets alone"),
    (root, "'root' has a gradient that is not finite for standard normal outputs; keep it finite, as log_softmax does"),
    (logarithm, "'logarithm' is not finite for standard normal outputs; keep it finite, as log_softmax does"),
]


@pytest.mark.untyped  # what such losses return
@pytest.mark.parametrize(("loss", "message"), REFUSED, ids=[message[:20] for _, message in REFUSED])
def test_a_loss_that_cannot_be_minimised_is_one_line(loss, message):
    with pytest.raises(SpecError, match=rf"^loss: {message}$"):
        experiment(loss=loss)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "loss: int is not a loss; give a function, or the kind of a registered one"),
        ("test-smoothd", "loss.kind: unknown loss 'test-smoothd'; did you mean 'test-smoothed'?"),
        ({"share": 1.0}, "loss.kind: is missing; known: "),
        ({"kind": "test-smoothed", "part": 1.0}, "loss.part: unknown field 'part'"),
        ({"kind": "test-smoothed", "share": "much"}, "loss.share: "),
    ],
)
def test_what_is_no_loss_names_its_field(given, message):
    with pytest.raises(SpecError) as caught:
        Recipe(loss=given)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
    with pytest.raises(SpecError, match=r"^loss_fn: unknown field 'loss_fn'; write loss$"):
        Recipe(loss_fn=given)


@pytest.mark.parametrize(("every", "since"), [(10, "after step 10 and by step 20"), (None, "at step 30")])
def test_a_loss_that_becomes_nan_says_between_which_steps(every, since):
    """From step 15 on it is not a number, and neither are the weights after another step."""
    scale = torch.ones(())

    def breaks(outputs, targets):
        return loss_per_position("cross_entropy", outputs, targets) + 0 * outputs.mean(dim=-1) * scale

    def later(step, members):
        scale.fill_(1.0 if step < 15 else float("inf"))

    one = experiment(loss=breaks, evaluation=Evaluation(every=every, size=8))
    one = Experiment(one.task, one.model, one.recipe, one.members, after_step=later)
    with pytest.raises(SpecError, match=rf"^loss: 'breaks' became nan for seed 0 {since}; keep it and its gradient"):
        fit(one, execution="member")


def test_a_kind_is_registered_once():
    with pytest.raises(ValueError, match=r"'test-smoothed' is already registered by tests\.small_experiments"):
        register_loss("test-smoothed")(mean)
    with pytest.raises(TypeError, match="argument 'share' needs a default"):
        register_loss("test-new")(lambda outputs, targets, share: outputs)
    assert Loss.registry["test-smoothed"] is smoothed and "test-new" not in Loss.registry
    assert repr(smoothed(share=0.2)) == "smoothed(share=0.2)"


def test_a_kind_that_no_module_has_registered_asks_for_one(monkeypatch):
    monkeypatch.setattr(Loss, "registry", {})
    with pytest.raises(SpecError, match=r"^loss\.kind: unknown loss 'focal'; import the module that registers it$"):
        Recipe(loss="focal")


def test_after_step_and_a_stop_rule_exclude_each_other():
    one = experiment(stop=Stop(metric="loss", value=1.0, direction="below"))
    with pytest.raises(SpecError, match=r"^recipe\.stop: after_step would change members that have stopped"):
        Experiment(one.task, one.model, one.recipe, one.members, after_step=print)


def test_a_run_whose_loss_is_not_imported_names_its_module(tmp_path, monkeypatch):
    store, one = Store(tmp_path), experiment(loss=smoothed(), duration=2)
    (found,) = run([one], store, workers=1)
    assert TrainedRun(store.open(one.cell)).experiment == found.experiment
    monkeypatch.delitem(Loss.registry, "test-smoothed")
    with pytest.raises(SpecError, match=r"^recipe\.loss\.kind: unknown loss 'test-smoothed'"):
        experiment_of(found.run)
    monkeypatch.delitem(sys.modules, "tests.small_experiments")
    with pytest.raises(SpecError, match=r"this store's runs need the module tests\.small_experiments: add"):
        experiment_of(found.run)


def test_vectors_are_targets_too():
    """Half of the squared error moves the weights half as far in a step of plain descent."""

    def half(outputs, targets):
        return 0.5 * (outputs - targets).square().mean(dim=-1)

    plain, own = (
        experiment("vectors", optimiser=SGD(learning_rate=0.1), clip=None, duration=1, loss=loss)
        for loss in (None, half)
    )
    whole, halved = fit(plain).ensemble.weights, fit(own).ensemble.weights
    for name, value in plain.initial_ensemble().weights.items():
        assert torch.allclose(2 * (halved[name] - value), whole[name] - value, atol=1e-12)
    assert any(not torch.equal(whole[name], value) for name, value in halved.items())
