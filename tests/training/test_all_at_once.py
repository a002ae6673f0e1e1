"""Trainings of all members at once, as on a GPU: the same members as one by one; a step never asks the host."""

from functools import partial

import pytest
import torch
from torch.overrides import TorchFunctionMode

from anchorlab.models.edits import Remove, Truncate
from anchorlab.tasks import AnchorFunction, Vocabulary
from anchorlab.training import Evaluation, Experiment, Members, fit
from anchorlab.training.ensemble import initialise
from anchorlab.training.evaluation import Evaluator, MappedEvaluator
from anchorlab.training.joined import Places, fit_joined
from anchorlab.training.trainer import Session
from tests.small_experiments import KINDS, SAMPLE, STREAM, experiment
from tests.training.kernels import Kernels, OnDevice
from tests.training.mapped_parts import MEMBERS, parts
from tests.training.test_joined import Kept

CPU = torch.device("cpu")


def at_once(one, **named):
    return fit(one, execution="mapped", **named)


def agree(left, right):
    assert [row[:-1] for row in left] == [row[:-1] for row in right]
    expected = [row.value for row in right]
    assert [row.value for row in left] == pytest.approx(expected, abs=1e-10, nan_ok=True)


EDITS = {
    "late": (Remove(weight="blocks.1.mlp"),),
    "early": (Truncate(weight="blocks.0.mlp.W_in", fraction=0.5), Truncate(weight="blocks.1.attn.W_O", rank=1)),
    "everything": (Remove(weight="embed.W_E"),),
}


def evaluators(task, members, size=20, edits=EDITS):
    evaluation = Evaluation(size=size, edits=edits)
    return [kind(task, evaluation, members, CPU, torch.float64) for kind in (MappedEvaluator, Evaluator)]


def test_edits_and_groups_and_diverged_members():
    task = AnchorFunction(vocabulary=Vocabulary(anchors=(3, 4)), operations={3: "x", 4: "x"})
    members = Members(seeds=(3, 8, 9))
    ensemble = initialise(KINDS["decoder"][1], task.shape, members.seeds, torch.float64)
    ensemble.weights["unembed.b_U"][1] = torch.nan
    for size in (1, 20, 300):  # one sequence is of one group; 300 take several passes
        together, single = evaluators(task, members, size)
        for resting in (frozenset(), frozenset({1}), frozenset({0, 1, 2})):
            agree(together.measure(ensemble, 7, resting), single.measure(ensemble, 7, resting))
    assert together.fallback is None


def test_the_same_data_for_all_members():
    task, model = KINDS["recall after triggers"]
    members = Members(seeds=(3, 8), hold={"data": 5})
    ensemble = initialise(model, task.shape, members.seeds, torch.float64)
    together, single = evaluators(task, members, edits={})
    agree(together.measure(ensemble, 0), single.measure(ensemble, 0))


def test_kernels_do_not_grow_with_the_members():
    """Apart from collecting the numbers, 128 at a time."""
    task, model = KINDS["decoder"]
    counts = []
    for seeds in (2, 6):
        members = Members(seeds=tuple(range(seeds)))
        ensemble = initialise(model, task.shape, members.seeds, torch.float64)
        together, single = evaluators(task, members)
        together.measure(ensemble, 0)
        with Kernels() as kernels:
            together.measure(ensemble, 0)
        counts.append(kernels.count)
        with Kernels() as kernels:
            single.measure(ensemble, 0)
        assert kernels.count > 1.5 * counts[-1]
    assert counts[0] == counts[1]


def test_metrics_that_cannot_be_mapped_are_measured_one_by_one(caplog):
    class Reads(AnchorFunction):
        def metrics(self, outputs, batch):
            return {"largest": torch.full_like(batch.targets, float(outputs.max()), dtype=outputs.dtype)}

    task, members = Reads(), Members(seeds=(3, 8))
    ensemble = initialise(KINDS["decoder"][1], task.shape, members.seeds, torch.float64)
    together, single = evaluators(task, members, edits={})
    agree(together.measure(ensemble, 7), single.measure(ensemble, 7))
    assert together.fallback is not None
    assert together.fallback in caplog.text


def test_an_evaluation_without_memory_for_all_members_takes_one_by_one(monkeypatch):
    def lacks(*arguments, **named):
        raise torch.OutOfMemoryError("CUDA out of memory")

    task, members = KINDS["decoder"][0], Members(seeds=(3, 8))
    ensemble = initialise(KINDS["decoder"][1], task.shape, members.seeds, torch.float64)
    together, single = evaluators(task, members)
    monkeypatch.setattr(torch.func, "vmap", lacks)
    agree(together.measure(ensemble, 7), single.measure(ensemble, 7))
    assert together.fallback == "CUDA out of memory"


def test_members_are_mapped_on_a_gpu_unless_they_are_to_be_trained_one_by_one():
    session = Session(experiment("decoder", members=MEMBERS), CPU, "auto")
    assert [session._maps("auto", torch.device(device)) for device in ("cpu", "cuda")] == [False, True]
    assert not session._maps("member", torch.device("cuda"))


def test_a_mean_does_not_depend_on_how_many_more_sequences_others_have():
    """In float32, where zeros behind the numbers would change the order of their sum; at one place of a pass of 12."""
    sizes = tuple(range(8, 104, 8))
    members = Members(seeds=tuple(range(12)), data_size=sizes)
    recipe = SAMPLE.replace(precision="float32", duration=2, batch=8, evaluation=Evaluation(size=90))
    one = Experiment(*KINDS["decoder"], recipe, members)
    together = at_once(one).rows
    for index in range(12):
        part = one.take(range(index, index + 1))
        (alone,) = fit_joined([part], [Places(index, 12)], [Kept()], [None], partial(fit, execution="mapped"))
        assert [row.value for row in together if row.member == index] == [row.value for row in alone]


META = torch.device("meta")
OWN = [kind for kind in KINDS if not kind.startswith("own")]  # a user's module may read from the host


class NothingFromTheHost(TorchFunctionMode):
    """Fail where a tensor is made of Python's numbers: on a GPU that is a copy for which the host waits."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        assert function not in (torch.tensor, torch.as_tensor, torch.from_numpy), f"{function.__name__} of {args}"
        return function(*args, **(kwargs or {}))


def on_device(one, device=META):
    ensemble, _, feed, execution = parts(one, device, torch.float32)
    ensemble.template._forward_pre_hooks.clear()  # a template refuses weights without values: here all are so
    return feed, execution


@pytest.mark.parametrize("recipe", [SAMPLE, STREAM], ids=["sample", "stream"])
@pytest.mark.parametrize("kind", OWN)
def test_a_whole_step_neither_reads_nor_writes_on_the_host(kind, recipe):
    """Batches, forward, backward, clipping and update."""
    one = experiment(kind, recipe)
    feed, execution = on_device(one)
    execution.step(feed.at(0), 0.1, [True, True, True], 0)  # draws an epoch, and says which members learn
    with NothingFromTheHost(), OnDevice(META):
        execution.step(feed.at(1), 0.2, [True, True, True], 1)


def test_members_with_samples_of_different_sizes_read_their_orders_on_the_device():
    one = experiment("decoder", members=Members(seeds=(0, 1, 2), data_size=(32, 64, 48)))
    feed, execution = on_device(one)
    execution.step(feed.at(2), 1.0, [True] * 3, 2)
    epochs = list(feed._epochs)
    with NothingFromTheHost(), OnDevice(META):
        feed.at(2)
    assert feed._epochs == epochs


def test_a_model_that_can_be_mapped_is_not_refused_for_lack_of_memory(monkeypatch):
    feed, execution = on_device(experiment("own module with tied weights"), torch.device("cpu"))
    batches = feed.at(0)

    def fails(error):
        def vmap(*arguments, **named):
            raise error

        monkeypatch.setattr(torch.func, "vmap", vmap)

    fails(torch.OutOfMemoryError("CUDA out of memory"))
    assert execution.gradients.refusal(batches) is None
    fails(RuntimeError("no batching rule\nfor this"))
    assert execution.gradients.refusal(batches) == "no batching rule"
