"""What an experiment costs, against what can be counted by hand."""

from anchorlab.models import DecoderSpec, FNNSpec
from anchorlab.tasks import task
from anchorlab.training import AdamW, Experiment, FixedSample, Members, Recipe, work_per_step

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


def test_work_grows_with_the_batch():
    assert work(DecoderSpec(layers=1, width=16), batch=20) == 2 * work(DecoderSpec(layers=1, width=16))
