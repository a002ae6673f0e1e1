"""The step on a device, traced on tensors without values: it asks the host for nothing, and its kernels are few."""

import pytest
import torch
from torch.overrides import TorchFunctionMode

from anchorlab.training import Members
from tests.small_experiments import KINDS, SAMPLE, STREAM, experiment
from tests.training.kernels import Kernels, OnDevice
from tests.training.mapped_parts import parts

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


def test_the_trace_notices_the_host():
    step = torch.zeros((), device=META)
    with pytest.raises(AssertionError, match=r"tensor of"), NothingFromTheHost():
        torch.tensor(1.0, device=META)
    with pytest.raises(AssertionError, match="touches the cpu"), OnDevice(META):
        step.copy_(torch.zeros(()))
    with pytest.raises(AssertionError, match="touches the cpu"), OnDevice(META):
        torch.where(step > 0, step, torch.zeros(()))


def test_the_update_of_the_decoder_takes_fewer_kernels_than_its_gradient():
    one = experiment("decoder")
    feed, execution = on_device(one)
    batches = feed.at(0)
    with Kernels() as gradient:
        gradients = execution.gradients(batches)
    with Kernels() as whole:
        execution.step(batches, 1.0, [False] * 3, 0)
    assert gradient.count <= 170
    assert whole.count - gradient.count <= 33  # the update, and two numbers
    assert set(gradients) == set(execution.optimiser.flat.views)


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
