"""What an experiment costs, against what can be counted by hand."""

import pytest
from torch.utils.flop_counter import FlopCounterMode

from anchorlab.models import DecoderSpec, FNNSpec
from anchorlab.models.model import predict
from anchorlab.tasks import task
from anchorlab.training import AdamW, Experiment, FixedSample, Members, Recipe, work_per_step
from anchorlab.training.cost import memory_per_member
from anchorlab.training.ensemble import build
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


def test_work_grows_with_the_batch():
    assert work(DecoderSpec(layers=1, width=16), batch=20) == 2 * work(DecoderSpec(layers=1, width=16))
