"""The step as a captured graph, on a CUDA device in software: by its rules, and with the numbers of single members."""

import logging

import pytest
import torch

from anchorlab.training import SGD, fit
from anchorlab.training.executions import Graphs
from tests.small_experiments import SAMPLE, experiment, in_turns, worst
from tests.training import mapped_parts
from tests.training.fake_cuda import cuda  # noqa: F401 - a fixture
from tests.training.mapped_parts import MEMBERS, train

pytestmark = pytest.mark.untyped  # the device and its graphs are fakes


def parts(one, device="cuda:0", graphs=True):
    return mapped_parts.parts(one, graphs=Graphs(torch.device(device)) if graphs else None)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(("kind", "recipe"), in_turns())
def test_replayed_steps_are_those_of_single_members(cuda, kind, recipe):  # noqa: F811
    """A number that Python read at the capture would stay that of the first step."""
    one = experiment(kind, recipe, MEMBERS)
    ensemble, _, feed, execution = parts(one)
    train(one, feed, execution, one.steps)
    assert execution.fallback is None
    assert len(cuda.captures) == (2 if recipe is SAMPLE else 1)  # two batches of 16 sequences and one of 8 an epoch
    assert worst(ensemble.weights, fit(one, execution="member").ensemble.weights) < 1e-10


def test_every_batch_shape_is_captured_once_on_one_stream_with_one_pool(cuda):  # noqa: F811
    one = experiment("decoder")
    _, _, feed, execution = parts(one)
    train(one, feed, execution, 7)
    (stream, pool, mode), second = cuda.captures
    assert second == (stream, pool, mode)
    assert len(cuda.streams) == cuda.pools == 1
    assert mode == "thread_local"  # another thread may use the device


def test_a_device_that_is_not_the_current_one(cuda):  # noqa: F811
    one = experiment("decoder")
    _, _, feed, execution = parts(one, "cuda:1")
    train(one, feed, execution, 3)
    assert execution.fallback is None
    assert {stream.device for stream, *_ in cuda.captures} == {torch.device("cuda:1")}
    assert cuda.index == 0
    assert cuda.current == cuda.default


def failing(execution, cuda, error, while_capturing=True):  # noqa: F811
    """Let the update fail, at the capture or before."""
    update = execution.optimiser.update

    def fails(*arguments):
        update(*arguments)
        if (cuda.capturing is not None) == while_capturing:
            raise type(error)(*error.args)

    execution.optimiser.update = fails


def test_a_failed_capture_leaves_the_stream_and_says_why(cuda, caplog):  # noqa: F811
    one = experiment("decoder", SAMPLE, MEMBERS)
    expected, _, feed, plain = parts(one, graphs=False)
    train(one, feed, plain, 4)
    ensemble, _, feed, execution = parts(one, "cuda:1")
    failing(execution, cuda, RuntimeError("a sort cannot be captured\nand more"))
    with caplog.at_level(logging.WARNING):
        train(one, feed, execution, 4)
    assert execution.fallback == "a sort cannot be captured"
    assert execution.fallback in caplog.text
    assert cuda.current == cuda.default
    assert cuda.index == 0
    assert len(cuda.captures) == 1
    assert worst(ensemble.weights, expected.weights) == 0


def test_a_step_that_reads_from_the_device_cannot_be_captured(cuda):  # noqa: F811
    one = experiment("decoder", SAMPLE, MEMBERS)
    ensemble, optimiser, feed, execution = parts(one)
    update = optimiser.update

    def reads(*arguments):
        update(*arguments)
        float(ensemble.weights["unembed.b_U"].sum())

    optimiser.update = reads
    train(one, feed, execution, 3)
    assert "not permitted when stream is capturing" in execution.fallback


@pytest.mark.parametrize("while_capturing", [True, False])
def test_running_out_of_memory_is_not_a_failed_capture(cuda, while_capturing):  # noqa: F811
    one = experiment("decoder")
    _, _, feed, execution = parts(one)
    failing(execution, cuda, torch.OutOfMemoryError("CUDA out of memory"), while_capturing)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        train(one, feed, execution, 1)
    assert execution.fallback is None
    assert execution.gradients.at_once == 1  # it has tried
    assert cuda.current == cuda.default


@pytest.mark.parametrize("changes", [{}, {"optimiser": SGD(momentum=0.9)}], ids=["adamw", "momentum"])
def test_a_capture_changes_nothing(cuda, changes):  # noqa: F811
    """Not even where the gradient of the first batches is not finite."""
    one = experiment("decoder", **changes)
    ensemble, optimiser, feed, execution = parts(one)
    train(one, feed, execution, 2)
    ensemble.weights["unembed.b_U"][1] = torch.inf
    every = [*ensemble.weights.values(), *optimiser.state.values()]
    before = [value.clone() for value in every]
    assert execution._graph(feed.at(2)) is not None
    assert all(torch.equal(*pair) for pair in zip(every, before, strict=True))


def test_members_that_rest_keep_their_weights_while_the_others_learn(cuda):  # noqa: F811
    one = experiment("decoder", SAMPLE, MEMBERS)
    alone, _, feed, execution = parts(one)
    train(one, feed, execution, 9)
    ensemble, optimiser, feed, execution = parts(one)
    train(one, feed, execution, 5)
    kept = {name: value[1].clone() for name, value in ensemble.weights.items()}
    optimiser.state["second.embed.W_E"][1] = torch.inf
    train(one, feed, execution, 4, active=(True, False, True), first=5)
    assert len(cuda.captures) == 4
    assert all(torch.equal(ensemble.weights[name][1], value) for name, value in kept.items())
    for member in (0, 2):
        assert worst(ensemble.member_weights(member), alone.member_weights(member)) < 1e-12


def with_memory_for(monkeypatch, execution, count):
    """Let a pass over more than `count` members run out of memory, and note the tries."""
    tries, gradient = [], execution.gradients._gradient
    vmap = torch.func.vmap

    def limited(function, in_dims, chunk_size=None):
        tries.append(chunk_size or execution.gradients.members)
        if function is gradient and tries[-1] > count:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return vmap(function, in_dims, chunk_size=chunk_size)

    monkeypatch.setattr(torch.func, "vmap", limited)
    return tries


@pytest.mark.parametrize("graphs", [True, False], ids=["captured", "uncaptured"])
def test_fewer_members_at_once_where_memory_runs_out(cuda, monkeypatch, caplog, graphs):  # noqa: F811
    one = experiment("decoder", SAMPLE, MEMBERS)
    expected = fit(one, execution="member").ensemble.weights
    ensemble, _, feed, execution = parts(one, graphs=graphs)
    tries = with_memory_for(monkeypatch, execution, 1)
    with caplog.at_level(logging.WARNING):
        train(one, feed, execution, one.steps)
    assert worst(ensemble.weights, expected) < 1e-10
    assert tries[:2] == [3, 2]
    assert set(tries[2:]) == {1}
    assert execution.name == "mapped by 1"
    assert "members now learn 2 at once" in caplog.text
    assert execution.fallback is None or not graphs
    other = parts(one, graphs=graphs)[3]
    other.go_on_as(execution.name)
    assert other.gradients.at_once == 1
    other.go_on_as("mapped")
    assert other.name == "mapped"


def test_too_little_memory_for_one_member(cuda, monkeypatch):  # noqa: F811
    one = experiment("decoder")
    ensemble, optimiser, feed, execution = parts(one)
    every = [*ensemble.weights.values(), *optimiser.state.values()]
    before = [value.clone() for value in every]
    with_memory_for(monkeypatch, execution, 0)
    with pytest.raises(torch.OutOfMemoryError):
        train(one, feed, execution, 1)
    assert all(torch.equal(*pair) for pair in zip(every, before, strict=True))
    assert cuda.current == cuda.default
