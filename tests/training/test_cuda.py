"""The step as a captured CUDA graph, against members trained one by one."""

import logging

import pytest
import torch

from anchorlab.training import SGD, Adam, Stop, fit
from anchorlab.training.executions import Graphs
from tests.small_experiments import KINDS, SAMPLE, STREAM, experiment, worst
from tests.training import mapped_parts
from tests.training.mapped_parts import MEMBERS

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]

OWN_KINDS = [kind for kind in KINDS if not kind.startswith("own")]


@pytest.mark.parametrize("recipe", [SAMPLE, STREAM], ids=["sample", "stream"])
@pytest.mark.parametrize("kind", OWN_KINDS)
def test_replayed_steps_are_those_of_single_members_on_a_cpu(kind, recipe):
    one = experiment(kind, recipe, MEMBERS)
    assert worst(fit(one, "cuda").ensemble.to("cpu").weights, fit(one, execution="member").ensemble.weights) < 1e-10


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_members_one_by_one_on_the_device(kind):
    one = experiment(kind, members=MEMBERS)
    found = fit(one, "cuda", execution="member").ensemble.to("cpu")
    assert worst(found.weights, fit(one, execution="member").ensemble.weights) < 1e-10


@pytest.mark.parametrize("optimiser", [Adam(weight_decay=0.1), SGD(momentum=0.9, weight_decay=0.1), SGD()])
def test_other_optimisers(optimiser):
    one = experiment("decoder", optimiser=optimiser)
    assert worst(fit(one, "cuda").ensemble.to("cpu").weights, fit(one).ensemble.weights) < 1e-10


def test_members_that_rest():
    stop = Stop(metric="loss", split="train", value=5.4, direction="below")
    one = experiment("decoder", stop=stop, duration=60, schedule={"kind": "constant"})
    left, right = fit(one, "cuda"), fit(one)
    assert [row[:-1] for row in left.rows] == [row[:-1] for row in right.rows]
    assert worst(left.ensemble.to("cpu").weights, right.ensemble.weights) < 1e-9


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_lower_precision_follows(precision):
    one = experiment("decoder", precision=precision)
    device, host = ([row.value for row in fit(one, name).rows if row.metric == "loss"] for name in ("cuda", "cpu"))
    assert device == pytest.approx(host, rel=1e-4 if precision == "float32" else 0.02)


def parts(one):
    return mapped_parts.parts(one, "cuda", graphs=Graphs(torch.ones((), device="cuda").device))


def test_every_batch_shape_is_captured_once():
    one = experiment("decoder")
    _, _, feed, execution = parts(one)
    for step in range(7):  # two batches of 16 sequences and one of 8 an epoch
        execution.step(feed.at(step), 1.0, [True] * 3, step)
    assert execution.fallback is None
    assert len(execution._captured) == 2


def test_a_step_that_cannot_be_captured_runs_anyway_and_says_why(monkeypatch, caplog):
    one = experiment("decoder")
    expected, _, feed, plain = parts(one)
    plain.fallback = "not asked"
    for step in range(3):
        plain.step(feed.at(step), 1.0, [True] * 3, step)
    ensemble, optimiser, feed, execution = parts(one)
    update = optimiser.update

    def asks_the_host(*arguments):
        update(*arguments)
        if torch.cuda.is_current_stream_capturing():
            float(ensemble.weights["unembed.b_U"].sum())

    monkeypatch.setattr(optimiser, "update", asks_the_host)
    before = torch.cuda.current_stream()
    with caplog.at_level(logging.WARNING):
        for step in range(3):
            execution.step(feed.at(step), 1.0, [True] * 3, step)
    assert execution.fallback is not None
    assert "could not be captured" in caplog.text
    assert torch.cuda.current_stream() == before
    assert worst(ensemble.weights, expected.weights) < 1e-12


def test_replayed_steps_do_not_wait_for_the_host():
    one = experiment("decoder")
    _, _, feed, execution = parts(one)
    for step in range(3):
        execution.step(feed.at(step), 1.0, [True] * 3, step)
    feed.at(3)  # draws the next epoch
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(3, 6):
            execution.step(feed.at(step), 0.5, [True] * 3, step)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is no second CUDA device")
def test_a_device_that_is_not_the_current_one():
    one = experiment("decoder", members=MEMBERS)
    assert worst(fit(one, "cuda:1").ensemble.to("cpu").weights, fit(one).ensemble.weights) < 1e-10
    assert torch.cuda.current_device() == 0


def test_two_runs_give_the_same_bytes():
    one = experiment("decoder", precision="float32")
    left, right = fit(one, "cuda").ensemble.weights, fit(one, "cuda").ensemble.weights
    assert all(torch.equal(value, right[name]) for name, value in left.items())
