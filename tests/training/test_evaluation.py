"""Metrics against direct computation, and evaluation that never touches training."""

import pytest
import torch
from torch.nn import functional

from anchorlab.models import DecoderSpec, VectorSpec
from anchorlab.models.edits import Remove, Truncate
from anchorlab.rng import child_seed
from anchorlab.tasks import AnchorFunction, MinimalRetrieval, Vocabulary
from anchorlab.training import Evaluation, Members, fit
from anchorlab.training.ensemble import initialise
from anchorlab.training.evaluation import Evaluator
from anchorlab.training.executions import member_module
from anchorlab.training.feed import make_feed
from tests.small_experiments import IDENTITY, KINDS, SAMPLE, STREAM, experiment

CPU = torch.device("cpu")


def values(rows):
    return {(row.member, row.split, row.group, row.edit, row.metric): row.value for row in rows}


def measured(task, spec, evaluation, members, **arguments):
    ensemble = initialise(spec, task.shape, members.seeds, torch.float64)
    evaluator = Evaluator(task, evaluation, members, CPU, torch.float64, **arguments)
    return ensemble, values(evaluator.measure(ensemble, 7))


def test_metrics_of_an_anchor_function_by_hand():
    task, spec = KINDS["decoder"]
    members = Members(seeds=(3, 8))
    ensemble, found = measured(task, spec, Evaluation(size=20), members)
    for index, seed in enumerate(members.seeds):
        for split in ("train", "test"):
            batch = task.sample(split, 20, child_seed(seed, "eval", split))
            logits = member_module(ensemble, index)(batch.inputs).detach()[:, -1]
            right = sum(int(row.argmax()) == int(y) for row, y in zip(logits, batch.targets[:, 0], strict=True))
            assert found[index, split, "all", "none", "accuracy"] == pytest.approx(right / 20, abs=1e-12)
            loss = functional.cross_entropy(logits, batch.targets[:, 0]).item()
            assert found[index, split, "all", "none", "loss"] == pytest.approx(loss, abs=1e-12)


def test_only_scored_positions_count():
    """The weights of `recall after triggers` leave out the columns that fill a row."""
    task, spec = KINDS["recall after triggers"]
    ensemble, found = measured(task, spec, Evaluation(size=30), Members(seeds=(3,)))
    batch = task.sample("train", 30, child_seed(3, "eval", "train"))
    logits = member_module(ensemble, 0)(batch.inputs).detach().log_softmax(-1)
    losses, noise = [], []
    for row in range(30):
        for column in range(batch.positions.shape[1]):
            if batch.weights[row, column] == 1:
                at = logits[row, batch.positions[row, column]]
                losses.append(-at[batch.targets[row, column]].item())
                noise.append(at[task.noise_token].exp().item())
    assert 0 < len(losses) < batch.positions.numel()
    assert found[0, "train", "all", "none", "loss"] == pytest.approx(sum(losses) / len(losses), abs=1e-12)
    assert found[0, "train", "all", "none", "noise"] == pytest.approx(sum(noise) / len(noise), abs=1e-12)


def test_mean_squared_errors_of_vectors():
    task, spec = MinimalRetrieval(chains=2, steps=2), VectorSpec(layers=1, heads=2, width=8)
    ensemble, found = measured(task, spec, Evaluation(size=10, splits=("test",)), Members())
    batch = task.sample("test", 10, child_seed(0, "eval", "test"))
    outputs = member_module(ensemble, 0)(batch.inputs.double()).detach()[:, -2:]
    errors = (outputs - batch.targets) ** 2
    assert found[0, "test", "all", "none", "loss"] == pytest.approx(errors.mean().item(), abs=1e-12)
    assert found[0, "test", "all", "none", "partial_1"] == pytest.approx(errors[..., :4].mean().item(), abs=1e-12)
    assert found[0, "test", "all", "none", "partial_2"] == pytest.approx(errors[..., 4:].mean().item(), abs=1e-12)
    assert {split for _, split, *_ in found} == {"test"}


def test_groups_are_measured_apart():
    task = AnchorFunction(vocabulary=Vocabulary(anchors=(3, 4)), operations={3: "x", 4: "x"})
    ensemble, found = measured(task, DecoderSpec(layers=1, heads=1, width=8), Evaluation(size=25), Members())
    batch = task.sample("test", 25, child_seed(0, "eval", "test"))
    logits = member_module(ensemble, 0)(batch.inputs).detach()[:, -1]
    losses = functional.cross_entropy(logits, batch.targets[:, 0], reduction="none")
    for anchor in (3, 4):
        own = (batch.inputs == anchor).any(dim=1)
        assert 0 < own.sum() < 25
        loss = losses[own].mean().item()
        assert found[0, "test", str(anchor), "none", "loss"] == pytest.approx(loss, abs=1e-12)
    assert found[0, "test", "all", "none", "loss"] == pytest.approx(losses.mean().item(), abs=1e-12)


def test_a_group_without_sequences_has_no_numbers():
    task = AnchorFunction(vocabulary=Vocabulary(anchors=(3, 4)), operations={3: "x", 4: "x"})
    _, found = measured(task, DecoderSpec(layers=1, heads=1, width=8), Evaluation(size=1, splits=("test",)), Members())
    assert len({group for _, _, group, *_ in found} - {"all"}) == 1
    assert all(value == value for value in found.values())


def test_sequences_in_several_pieces_give_the_same_means(monkeypatch):
    task, spec = KINDS["recall after triggers"]
    _, whole = measured(task, spec, Evaluation(size=30), Members())
    monkeypatch.setattr("anchorlab.training.evaluation.ROWS", 7)
    _, pieces = measured(task, spec, Evaluation(size=30), Members())
    assert pieces == pytest.approx(whole, abs=1e-12)


def test_a_fixed_sample_is_measured_on_its_own_sequences_and_a_stream_on_fresh_ones():
    task, spec = KINDS["decoder"]
    members = Members(seeds=(5,))
    evaluation = SAMPLE.evaluation.replace(size=8, splits=("train",))
    feed = make_feed(task, SAMPLE.replace(evaluation=evaluation), members, CPU, torch.float64)
    ensemble, found = measured(task, spec, evaluation, members, fixed=feed)
    batch = task.sample("train", 40, child_seed(5, "train"))
    logits = member_module(ensemble, 0)(batch.inputs[:8]).detach()[:, -1]
    loss = functional.cross_entropy(logits, batch.targets[:8, 0]).item()
    assert found[0, "train", "all", "none", "loss"] == pytest.approx(loss, abs=1e-12)
    _, fresh = measured(task, spec, evaluation, members)
    assert fresh[0, "train", "all", "none", "loss"] != pytest.approx(loss, abs=1e-6)


def test_what_training_scores_beside_the_answer_is_not_measured():
    """The weights of two members on the same sequences; only training scores every token."""
    members, (task, spec) = Members(seeds=(3, 8)), KINDS["decoder"]
    every_token, _ = KINDS["decoder, every token"]
    measured_alone, measured_with = (
        measured(one, spec, Evaluation(size=20), members)[1] for one in (task, every_token)
    )
    assert measured_with == measured_alone
    recipe = SAMPLE.replace(evaluation=Evaluation(size=20))
    feeds = [make_feed(one, recipe, members, CPU, torch.float64) for one in (task, every_token)]
    assert torch.equal(feeds[0].at(0).inputs, feeds[1].at(0).inputs)  # data and order are the same
    alone, with_all = (measured(task, spec, Evaluation(size=20), members, fixed=feed)[1] for feed in feeds)
    assert alone == with_all


def test_diverged_members_are_measured_as_such_and_alone():
    task, spec = KINDS["decoder"]
    ensemble = initialise(spec, task.shape, (0, 1))
    evaluator = Evaluator(task, Evaluation(size=4), Members(seeds=(0, 1)), CPU, torch.float32)
    healthy = values(evaluator.measure(ensemble, 0))
    ensemble.weights["unembed.b_U"][0] = torch.nan
    found = values(evaluator.measure(ensemble, 0))
    assert found.keys() == healthy.keys()
    lost = {(0, split, "all", "none", "loss") for split in ("train", "test")}
    assert {key for key, value in found.items() if value != value} == lost
    assert {key for key in found if key[0] == 1 and found[key] != healthy[key]} == set()
    assert not any(found[key] > 0 for key in found.keys() - lost if key[0] == 0)  # no answer is right


EDITS = {
    "no second feed-forward": (Remove(weight="blocks.1.mlp"),),
    "half the rank, no norm": (
        Truncate(weight="blocks.0.mlp.W_in", fraction=0.5),
        Truncate(weight="blocks.1.attn.W_O", rank=1),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("execution", ["member", "mapped"])
@pytest.mark.parametrize("recipe", [SAMPLE, STREAM], ids=["sample", "stream"])
def test_evaluation_never_touches_training(recipe, execution):
    often = recipe.evaluation.replace(every=3, edits=EDITS)
    never = recipe.evaluation.replace(every=None)
    measured = fit(experiment(evaluation=often, recipe=recipe), execution=execution)
    unmeasured = fit(experiment(evaluation=never, recipe=recipe), execution=execution)
    assert all(torch.equal(v, unmeasured.ensemble.weights[n]) for n, v in measured.ensemble.weights.items())
    assert {row.edit for row in measured.rows} == {"none", *EDITS}
    assert {row.step for row in unmeasured.rows} == {30}
    last = [row for row in measured.rows if row.step == 30 and row.edit == "none"]
    assert last == list(unmeasured.rows)


def test_metrics_under_edits_are_those_of_edited_weights():
    one = experiment(evaluation=Evaluation(size=16, edits=EDITS))
    trained = fit(one)
    found = values(row for row in trained.rows if row.step == 30)
    for index, seed in enumerate(one.members.seeds):
        module = member_module(trained.ensemble, index)
        edited = {name: {k: v.clone() for k, v in module.state_dict().items()} for name in EDITS}
        for matrix in ("W_in", "W_out"):
            edited["no second feed-forward"][f"blocks.1.mlp.{matrix}"].zero_()
        for name, rank in (("blocks.0.mlp.W_in", 8), ("blocks.1.attn.W_O", 1)):
            left, singular, right = torch.linalg.svd(module.state_dict()[name], full_matrices=False)
            kept = left[:, :rank] @ singular[:rank].diag() @ right[:rank]
            edited["half the rank, no norm"][name] = kept
        batch = one.task.sample("test", 16, child_seed(seed, "eval", "test"))
        for edit, weights in edited.items():
            logits = torch.func.functional_call(module, weights, (batch.inputs,)).detach()[:, -1]
            loss = functional.cross_entropy(logits, batch.targets[:, 0]).item()
            assert found[index, "test", "all", edit, "loss"] == pytest.approx(loss, abs=1e-9)


def test_members_that_share_data_are_measured_on_the_same_sequences():
    task, spec = KINDS["decoder"]
    members = Members(seeds=(1, 2), hold={"data": 9})
    ensemble = initialise(spec, task.shape, (1, 1), torch.float64)
    rows = Evaluator(task, Evaluation(size=8), members, CPU, torch.float64).measure(ensemble, 0)
    by_member = [[row.value for row in rows if row.member == index] for index in (0, 1)]
    assert by_member[0] == by_member[1]
    assert [row.seed for row in rows] == [1] * (len(rows) // 2) + [2] * (len(rows) // 2)


@pytest.mark.parametrize("kind", ["recall after triggers", "decoder", "vectors", "decoder of four blocks"])
def test_edits_of_late_blocks_share_what_comes_before_them(kind):
    """Each edit's numbers are those of the edited model computed whole, wherever the edit begins."""
    task, spec = KINDS[kind] if kind in KINDS else (IDENTITY, DecoderSpec(layers=4, heads=1, width=8, head_width=8))
    ensemble = initialise(spec, task.shape, [3, 8], torch.float64)
    last = max(name.split(".")[1] for name in ensemble.weights if name.startswith("blocks."))
    matrices = [name for name, value in ensemble.weights.items() if value.ndim == 3]
    late = [name for name in matrices if name.startswith(f"blocks.{last}.")]
    edits = {name: (Remove(weight=name),) for name in matrices}
    edits |= {"late and early": (Remove(weight=late[0]), Remove(weight="blocks.0")), "late": (Remove(weight=late[-1]),)}
    evaluator = Evaluator(task, Evaluation(size=30, edits=edits), Members(seeds=(3, 8)), CPU, torch.float64)
    found = values(evaluator.measure(ensemble, 7))
    for name, (first, *others) in {"none": (None,), **edits}.items():
        weights = dict(ensemble.weights)
        for edit in (one for one in (first, *others) if one is not None):
            weights |= {each: torch.zeros_like(weights[each]) for each in edit.names(weights)}
        whole = values(
            Evaluator(task, Evaluation(size=30), Members(seeds=(3, 8)), CPU, torch.float64).measure(
                ensemble.with_weights(weights), 7
            )
        )
        for (member, split, group, _, metric), value in whole.items():
            assert found[member, split, group, name, metric] == pytest.approx(value, abs=1e-10)
