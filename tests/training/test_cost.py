"""What an experiment costs, against what can be counted by hand."""

from dataclasses import replace
from math import inf

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from anchorlab.models import DecoderSpec, FNNSpec, RecallSpec, register_module
from anchorlab.models.edits import Remove
from anchorlab.models.model import predict
from anchorlab.tasks import task
from anchorlab.training import SGD, AdamW, Evaluation, Experiment, FixedSample, Members, Recipe, cost, work_per_step
from anchorlab.training.cost import estimated_seconds, memory_per_member
from anchorlab.training.ensemble import build
from anchorlab.training.operations import forward_operations
from tests.small_experiments import KINDS, experiment

IDENTITY = task("anchor/identity")  # 9 tokens of 201


def work(model, batch=10):
    recipe = Recipe(data=FixedSample(size=100), optimiser=AdamW(learning_rate=1e-3), batch=batch, duration=30)
    return work_per_step(Experiment(IDENTITY, model, recipe, Members(seeds=(0, 1))))


def test_a_network_costs_two_operations_a_weight_once_forward_and_twice_back():
    flat, hidden = 9 * 8, 50
    weights = 3 * 2 * flat * hidden + flat * 8 + 8 * 201
    assert work(FNNSpec(layers=3, width=8, hidden=hidden)) == 3 * 10 * 2 * weights


def test_a_transformer_s_last_layer_counts_where_it_is_asked():
    width, heads, head, hidden, length = 16, 2, 5, 24, 9
    inner = heads * head

    def layer(asked):
        read = length * 2 * width * inner  # keys and values
        asks = asked * (2 * width * inner + 2 * width * hidden)  # queries, output map, feed-forward
        return read + asks + 2 * heads * asked * length * head  # scores and mixtures

    spec = DecoderSpec(layers=3, width=width, heads=heads, head_width=head, hidden=hidden)
    assert work(spec) == 3 * 10 * 2 * (2 * layer(length) + layer(1) + width * 201)


def test_the_loss_on_every_token_asks_at_every_position():
    recipe = Recipe(data=FixedSample(size=100), optimiser=AdamW(learning_rate=1e-3), batch=10, duration=30)
    model = DecoderSpec(layers=1, heads=1, width=16, head_width=16, hidden=24)
    alone, every = (
        Experiment(task("anchor/identity", every_token=every_token), model, recipe, Members())
        for every_token in (False, True)
    )
    one_more = 2 * (
        2 * 16 * 16 + 2 * 16 * 24 + 2 * 9 * 16 + 16 * 201
    )  # queries, output map, feed-forward, both products
    assert work_per_step(every) - work_per_step(alone) == 3 * 10 * 8 * one_more
    sequences = 100 + 2 * recipe.evaluation.size
    assert memory_per_member(every) - memory_per_member(alone) == sequences * 8 * 8  # eight more targets


@pytest.mark.parametrize("kind", KINDS)
def test_every_architecture_costs_what_torch_counts(kind):
    one = experiment(kind)
    batch = one.task.for_training(one.task.sample("train", 1, seed=0))
    with FlopCounterMode(display=False) as counter:
        predict(build(one.model, one.task.shape), batch.inputs, batch.positions)
    assert work_per_step(one) == 3 * one.recipe.batch * counter.get_total_flops()


class Doubled(nn.Module):
    """A table of logits, twice; its transpose there and back moves nothing."""

    def __init__(self, vocabulary):
        super().__init__()
        self.table = nn.Embedding(vocabulary, vocabulary)

    def forward(self, inputs):
        return (2.0 * self.table(inputs)).transpose(1, 2).transpose(1, 2)


@register_module("doubled-table")
def doubled_table(shape):
    return Doubled(shape.input_size)


@pytest.mark.parametrize("sequences", [1, 7, 500])
def test_calls_and_bytes_are_those_of_the_operations(sequences):
    """Look up, double, transpose twice, and take the position that is asked for."""
    found = forward_operations(doubled_table(), IDENTITY, sequences)
    ids, logits, table = sequences * 9 * 8, sequences * 9 * 201 * 4, 201 * 201 * 4
    looked_up, doubled = table + ids + logits, 2 * logits
    asked = logits + 8 + sequences * 201 * 4  # one position, whole numbers of 8 bytes
    assert found == (5, 0, looked_up + doubled + asked)


def speeds(monkeypatch, call=0.0, step=0.0, products=inf, moved=inf):
    monkeypatch.setattr(cost, "SECONDS_PER_CALL", call)
    monkeypatch.setattr(cost, "_SECONDS_PER_STEP", step)
    monkeypatch.setattr(cost, "PRODUCTS_PER_SECOND", products)
    monkeypatch.setattr(cost, "BYTES_PER_SECOND", moved)


MODEL = DecoderSpec(layers=2, heads=2, width=64)
RECIPE = Recipe(
    data=FixedSample(size=100), optimiser=AdamW(), batch=10, duration=30, evaluation=Evaluation(every=10, size=300)
)
TRAINED = Experiment(IDENTITY, MODEL, RECIPE, Members(seeds=(0, 1, 2)))


def test_time_is_that_of_all_steps_and_evaluations(monkeypatch):
    """Each of three members takes 30 steps, and four evaluations of 300 sequences of both splits, forward alone."""
    forward = work_per_step(TRAINED) / (3 * 10)
    speeds(monkeypatch, products=1e9)
    assert estimated_seconds(TRAINED) == pytest.approx(3 * (30 * 30 + 4 * 600) * forward / 1e9)
    assert estimated_seconds(replace(TRAINED, trained=False)) == 0.0
    speeds(monkeypatch, step=0.5)
    assert estimated_seconds(TRAINED) == pytest.approx(3 * 30 * 0.5)


def test_an_evaluation_calls_every_operation_again_for_every_128_sequences(monkeypatch):
    calls = forward_operations(MODEL, IDENTITY, 10).calls
    speeds(monkeypatch, call=3.0)
    assert estimated_seconds(TRAINED) == pytest.approx(3 * calls * (30 * 3 + 4 * 2 * 300 / 128))


@pytest.mark.parametrize(
    ("optimiser", "moved"), [(AdamW(), 7), (SGD(), 3), (SGD(momentum=0.9), 5)], ids=["adamw", "sgd", "momentum"]
)
def test_an_optimiser_moves_weights_gradients_and_its_own_numbers(monkeypatch, optimiser, moved):
    """`moved` numbers a weight; all else of a model of tables alone is one batch long."""
    recipe = RECIPE.replace(optimiser=optimiser, batch=1, evaluation=Evaluation(every=None, size=1, splits=("test",)))
    one = Experiment(IDENTITY, doubled_table(), recipe, Members())
    speeds(monkeypatch, moved=1.0)
    forward = forward_operations(doubled_table(), IDENTITY, 1).bytes
    assert estimated_seconds(one) == pytest.approx(30 * (3 * forward + 4 * moved * 201 * 201) + forward)


def test_members_that_are_mapped_share_the_calls(monkeypatch):
    tiny = replace(TRAINED, model=DecoderSpec(layers=1, heads=1, width=4, hidden=8))
    alone, together = (replace(tiny, members=Members(seeds=count)) for count in (1, 64))
    speeds(monkeypatch, call=1.0)
    monkeypatch.setattr(cost, "_MAPPED_STEP", 0.0)
    assert estimated_seconds(together) == pytest.approx(cost._MAPPED_CALL * estimated_seconds(alone))


def test_an_edit_of_a_later_block_computes_what_comes_from_that_block_on(monkeypatch):
    """The first layer's perceptron is most of the work; the second computes at the scored position alone."""
    noisy = task("recall/noisy", length=32)
    model = RecallSpec(width=16, hidden=64)

    def evaluation(*parts):
        edits = {str(index): (Remove(weight=part),) for index, part in enumerate(parts)}
        recipe = RECIPE.replace(evaluation=Evaluation(size=128, splits=("clean",), edits=edits))
        speeds(monkeypatch, products=1.0)
        return cost._seconds_of_evaluation(Experiment(noisy, model, recipe, Members()))

    none, first, second = evaluation(), evaluation("blocks.0.attn"), evaluation("blocks.1.attn")
    assert first == pytest.approx(2 * none)
    assert none < second < 1.5 * none


def test_what_is_counted_leaves_the_number_of_threads_as_it_was():
    before = torch.get_num_threads()
    forward_operations(DecoderSpec(layers=1, heads=1, width=12), IDENTITY, 3)
    assert torch.get_num_threads() == before
