"""What differs between members, and what is held fixed: initial weights, data and order of each."""

from functools import partial

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.models import DecoderSpec, FNNSpec, LSTMSpec
from anchorlab.training import Experiment, FixedSample, Gamma, Members, fit, initialise
from anchorlab.training.feed import STREAM_DRAW, make_feed
from tests.small_experiments import IDENTITY, KINDS, SAMPLE, STREAM, experiment, initial_module, train_plainly, worst

CPU = torch.device("cpu")


def batches_of(recipe, members, steps, task=IDENTITY):
    feed = make_feed(task, recipe, members, CPU, torch.float32)
    return [feed.at(step) for step in steps]


def same(left, right):
    return torch.equal(left.inputs, right.inputs) and torch.equal(left.targets, right.targets)


@pytest.mark.parametrize("recipe", [SAMPLE, STREAM], ids=["sample", "stream"])
def test_held_data_are_the_same_for_all(recipe):
    free = Members(seeds=(1, 2, 3))
    held = Members(seeds=(1, 2, 3), hold={"data": 2, "order": 7})
    for own, batches in zip(batches_of(recipe, free, [0, 5]), batches_of(recipe, held, [0, 5]), strict=True):
        assert torch.equal(batches.inputs[0], batches.inputs[1])
        assert torch.equal(batches.inputs[0], batches.inputs[2])
        if recipe is STREAM:
            assert torch.equal(batches.inputs[0], own.inputs[1])
        else:
            assert not torch.equal(batches.inputs[0], own.inputs[1])  # the same sample in another order


def test_held_order_deals_different_samples_alike():
    held, free = Members(seeds=(1, 2), hold={"order": 0}), Members(seeds=(1, 2))
    sample = SAMPLE.replace(batch=40)
    sorted_rows = [
        [batches_of(sample, members, [0])[0].inputs[index].sort(dim=0).values for index in (0, 1)]
        for members in (held, free)
    ]
    assert torch.equal(sorted_rows[0][0], sorted_rows[1][0])
    assert torch.equal(sorted_rows[0][1], sorted_rows[1][1])
    assert not torch.equal(*sorted_rows[0])
    twice = Members(seeds=(1, 2), hold={"data": 0, "order": 0})
    (batches,) = batches_of(sample, twice, [0])
    assert torch.equal(batches.inputs[0], batches.inputs[1])


def test_held_initialisation_is_the_same_for_all():
    one = experiment(members=Members(seeds=(1, 2), hold={"initialisation": 5}), duration=1, optimiser={"kind": "sgd"})
    trained = fit(one)
    start = [row.value for row in trained.rows if row.step == 0 and row.metric == "loss" and row.split == "test"]
    assert start[0] != start[1]  # other data
    for index in (0, 1):
        expected = dict(initial_module(one, 0).named_parameters())
        assert worst(trained.ensemble.member_weights(index), expected) < 0.1


def test_a_step_has_the_same_batch_whichever_came_before_and_a_stream_fresh_sequences():
    members = Members(seeds=(3, 4))
    block = STREAM_DRAW // STREAM.batch
    for recipe, steps in ((SAMPLE, (0, 7, 2)), (STREAM, (block, 0, block - 1))):
        together = batches_of(recipe, members, steps)
        for step, batches in zip(steps, together, strict=True):
            assert same(batches, batches_of(recipe, members, [step])[0])
    block = STREAM_DRAW // STREAM.batch
    seen = [b.inputs for b in batches_of(STREAM, Members(), (0, 1, block - 1, block, 2 * block))]
    assert not any(torch.equal(seen[i], seen[j]) for i in range(5) for j in range(i))


def test_each_member_has_a_sample_of_its_own_size():
    members = Members(seeds=(1, 1, 2), data_size=(16, 32, 64))
    recipe = SAMPLE.replace(data=FixedSample(size=1000), batch=16, duration=9)
    one = experiment(recipe=recipe, members=members)
    found = {execution: fit(one, execution=execution).ensemble for execution in ("member", "mapped")}
    for index in range(3):
        plain = train_plainly(one, index)
        for ensemble in found.values():
            assert worst(ensemble.member_weights(index), plain) < 1e-10


@pytest.mark.parametrize("kind", KINDS)
def test_the_scale_multiplies_every_trained_matrix(kind):
    task, spec = KINDS[kind]
    plain = initialise(spec, task.shape, [3, 3])
    scaled = initialise(spec, task.shape, [3, 3], scales=[1.0, 0.25])
    fixed = set(plain.weights) - set(plain.trainable)
    for name, value in plain.weights.items():
        factor = 0.25 if value.ndim > 2 and name not in fixed else 1.0
        assert torch.equal(scaled.weights[name][0], value[0])
        assert torch.equal(scaled.weights[name][1], value[1] * factor)


BLOCKS = {  # the type of every matrix, written out by hand
    "decoder": {
        "embedding": ("embed.W_E", "pos_embed.W_pos"),
        "attention": tuple(f"blocks.{layer}.attn.W_{part}" for layer in (0, 1) for part in "QKVO"),
        "feed_forward": tuple(f"blocks.{layer}.mlp.W_{part}" for layer in (0, 1) for part in ("in", "out")),
        "projection": ("unembed.W_U",),
    },
    "lstm": {
        "embedding": ("embed.W_E",),
        "recurrent": tuple(f"layers.{layer}.W_{part}" for layer in (0, 1) for part in ("ih", "hh")),
        "projection": ("unembed.W_U",),
    },
    "fnn": {
        "embedding": ("embed.W_E", "pos_embed.W_pos"),
        "feed_forward": tuple(f"blocks.{layer}.W_{part}" for layer in (0, 1) for part in ("in", "out")),
        "projection": ("flat.W_flat", "unembed.W_U"),
    },
}
WIDE = {
    "decoder": DecoderSpec(layers=2, width=64, heads=2, head_width=40, hidden=150, initialisation="gamma"),
    "lstm": LSTMSpec(layers=2, width=64, initialisation="gamma"),
    "fnn": FNNSpec(layers=2, width=64, hidden=150, initialisation="gamma"),
}


@pytest.mark.parametrize("kind", WIDE)
def test_gamma_sets_the_standard_deviation_by_member_and_weight_group(kind):
    """d^-γ, where d is the number of a map's rows; for embeddings it is the width, 64."""
    rates = {"all": (0.3, 0.5, 0.8), "embedding": (0.9, 0.2, 0.5), "projection": (0.0, 1.0, 0.4)}
    ensemble = initialise(WIDE[kind], IDENTITY.shape, (0, 1, 2), gamma=Gamma(**rates))
    seen = set()
    for block, names in BLOCKS[kind].items():
        for name in names:
            for member in range(3):
                value = ensemble.weights[name][member]
                size = 64 if block == "embedding" else len(value)
                expected = size ** -rates.get(block, rates["all"])[member]
                assert float(value.std()) == pytest.approx(expected, rel=0.1 if value.numel() < 1000 else 0.04)
            seen.add(name)
    assert seen == {name for name, value in ensemble.weights.items() if value.ndim == 3}


def test_gamma_is_a_half_unless_it_is_given():
    spec, shape = WIDE["decoder"], IDENTITY.shape
    plain = initialise(spec, shape, (0, 1))
    half = initialise(spec, shape, (0, 1), gamma=Gamma(all=(0.5, 0.5)))
    assert worst(half.weights, plain.weights) == 0
    attention = initialise(spec, shape, (0, 1), gamma=Gamma(attention=(0.5, 0.9)))
    changed = {name for name, value in attention.weights.items() if not torch.equal(value, plain.weights[name])}
    assert changed == set(BLOCKS["decoder"]["attention"])


@pytest.mark.parametrize("execution", ["member", "mapped"])
def test_a_member_with_a_gamma_of_its_own_does_not_depend_on_its_neighbours(execution):
    task, spec = KINDS["decoder"]
    rates = {"all": (0.4, 0.6, 0.8), "attention": (0.5, 0.7, 0.9)}
    members = Members(seeds=(4, 4, 4), gamma=rates, initialisation_scale=(1.0, 0.5, 2.0))
    normal = spec.replace(initialisation="gamma")
    together = fit(Experiment(task, normal, SAMPLE, members), execution=execution)
    for index in range(3):
        alone = fit(Experiment(task, normal, SAMPLE, members.take(range(index, index + 1))), execution=execution)
        assert worst(together.ensemble.member_weights(index), alone.ensemble.member_weights(0)) < 1e-12
    assert worst(together.ensemble.member_weights(0), together.ensemble.member_weights(1)) > 1e-3


def tried(kind, gamma, **changes):
    task, spec = KINDS[kind]
    return Experiment(task, spec.replace(**changes), SAMPLE, Members(gamma=gamma))


GAMMAS = {
    r"^members\.gamma\.all: 1 values for 2 members": {"seeds": (0, 1), "gamma": {"all": (0.5,)}},
    r"^members\.gamma\.embedding: 3 values for 2 members": {"seeds": (0, 1), "gamma": {"embedding": (0.5, 0.6, 0.7)}},
    r"^members\.gamma\.atention: unknown field 'atention'": {"gamma": {"atention": (0.5,)}},
    r"^members\.gamma\.all\.0: .*greater than or equal to 0": {"gamma": {"all": (-0.5,)}},
    r"^members\.seeds: 4 is given twice": {"seeds": (4, 4), "gamma": {"all": (0.5, 0.5)}},
}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *((partial(Members.parse, data, "members"), message) for message, data in GAMMAS.items()),
        (lambda: tried("decoder", {"all": (0.8,)}), r"^members\.gamma: .* set model\.initialisation to gamma"),
        (lambda: tried("recall", {"all": (0.8,)}), r"^members\.gamma: a 'recall' model is not drawn at a rate"),
        (
            lambda: tried("lstm", {"attention": (0.8,)}, initialisation="gamma"),
            r"^members\.gamma\.attention: .* known: embedding, projection, recurrent",
        ),
        (lambda: Members(seeds=-1), r"seeds: -1 is no number of seeds; a single seed is a list of one"),
        (lambda: Members.of(-1), r"seeds: -1 is no number of seeds; a single seed is a list of one"),
        (lambda: Members(seeds=0), r"^seeds: there are none"),
        (lambda: Members.of([0, 2**63]), r"^members\.seeds\.1: .*less than 9223372036854775808"),
        *((partial(Members, seeds=wrong), r"^seeds: ") for wrong in (10**9, True, "10", 2.0)),
    ],
)
def test_wrong_members_are_named_with_their_field(make, message):
    with pytest.raises(SpecError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_gamma_is_taken_by_a_model_that_is_drawn_normally_and_has_such_blocks():
    assert tried("lstm", {"recurrent": (0.8,)}, initialisation="gamma").steps > 0


def test_members_keep_their_scalars_when_some_are_taken():
    members = Members(seeds=(1, 2, 3), learning_rate=(0.1, 0.2, 0.3), hold={"data": 4}, gamma={"all": (0.5, 0.6, 0.7)})
    cut = Members(seeds=(2, 3), learning_rate=(0.2, 0.3), hold={"data": 4}, gamma={"all": (0.6, 0.7)})
    assert members.take(range(1, 3)) == cut


def test_an_ensemble_selects_members():
    one = experiment()
    ensemble = initialise(one.model, one.task.shape, (0, 1, 2))
    chosen = ensemble.select([2, 0])
    assert chosen.size == 2
    assert worst(chosen.member_weights(0), ensemble.member_weights(2)) == 0
    # embeddings, two blocks of attention, feed-forward and norms, and the output map
    block = 4 * 16 * 16 + 2 * 16 * 24 + 4 * 16
    assert ensemble.parameter_count == 201 * 16 + 9 * 16 + 2 * block + 16 * 201 + 201


def test_epochs_change_the_rate_once_an_epoch():
    """Three batches of 16, 16 and 8 sequences an epoch, at the rate of the epoch."""
    schedule = {"kind": "warmup_cosine", "warmup": 2, "horizon": 4, "start": 0.5}
    one = experiment(unit="epochs", duration=3, schedule=schedule, optimiser={"kind": "sgd", "learning_rate": 0.1})
    assert one.steps == 9
    rates = [0.05, 0.075, 0.1]
    plain = train_plainly(one, 0, [rate for rate in rates for _ in range(3)])
    trained = fit(one)
    assert worst(trained.ensemble.member_weights(0), plain) < 1e-12
    assert sorted({row.step for row in trained.rows}) == [0, 9]
