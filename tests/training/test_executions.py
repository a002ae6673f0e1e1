"""A member's result is what a plain loop gives, whichever execution ran it and whoever its neighbours were."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from anchorlab.errors import SpecError
from anchorlab.models import ModelSpec, register_module
from anchorlab.training import SGD, Adam, AdamW, Experiment, Members, fit, undecayed_weights
from anchorlab.training.cost import work_per_step
from anchorlab.training.flat_optimiser import FlatOptimiser, RowOptimiser
from anchorlab.training.trainer import Session
from tests.small_experiments import (
    DECODER,
    IDENTITY,
    KINDS,
    SAMPLE,
    STREAM,
    TRIGGERS,
    experiment,
    in_turns,
    initial_module,
    train_plainly,
    worst,
)

PER_MEMBER = Members(
    seeds=(4, 5, 6),
    learning_rate=(1e-2, 3e-3, 1e-3),
    weight_decay=(0.0, 0.3, 0.1),
    clip=(0.1, 0.5, 100.0),
    initialisation_scale=(1.0, 0.5, 2.0),
)


def test_every_registered_kind_of_model_is_tried():
    tried = {model.kind for _, model in KINDS.values()}
    ours = {kind for kind, spec in ModelSpec.registry.items() if spec.__module__.startswith("anchorlab.")}
    assert ours <= tried


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(("kind", "recipe"), in_turns("decoder", "recall"))
def test_both_executions_give_what_a_plain_loop_gives(kind, recipe):
    """And their rows are equal."""
    one = experiment(kind, recipe, PER_MEMBER)
    single, together = fit(one, execution="member"), fit(one, execution="mapped")
    for index in range(3):
        plain = train_plainly(one, index)
        assert worst(single.ensemble.member_weights(index), plain) < 1e-10
        assert worst(together.ensemble.member_weights(index), plain) < 1e-10
        assert worst(plain, dict(initial_module(one, index).named_parameters())) > 1e-3
    assert [row[:-1] for row in together.rows] == [row[:-1] for row in single.rows]
    expected = [row.value for row in single.rows]
    assert [row.value for row in together.rows] == pytest.approx(expected, abs=1e-10, nan_ok=True)


GPT_2 = DECODER.replace(norm="pre", biases=True)
NORMS = ("blocks.0.ln1", "blocks.0.ln2", "blocks.1.ln1", "blocks.1.ln2", "ln_final")
WITHOUT_DECAY = {
    "decoder": {
        *(f"{norm}.{name}" for norm in NORMS for name in "wb"),
        *(f"blocks.{block}.attn.b_{name}" for block in (0, 1) for name in "QKVO"),
        *(f"blocks.{block}.mlp.b_{name}" for block in (0, 1) for name in ("in", "out")),
        "embed.W_E", "pos_embed.W_pos",
    },
    "own module with tied weights": {"embed.weight", "mix.bias"},
    "own recurrent module": {"embed.weight", "recur.bias_ih_l0", "recur.bias_hh_l0", "out.bias"},
}  # fmt: skip


@pytest.mark.parametrize("optimiser", [AdamW(5e-3), Adam(5e-3), SGD(0.1, momentum=0.9)])
@pytest.mark.parametrize("kind", WITHOUT_DECAY)
def test_norms_biases_and_embeddings_decay_only_where_asked(kind, optimiser):
    """As with a second group of parameters in torch, for members of different decays; a tied map is an embedding."""
    decays = Members(seeds=(4, 5, 6), weight_decay=(0.5, 3.0, 0.0), clip=(0.1, 0.5, 100.0))
    groups = optimiser.replace(undecayed=("embedding", "norm", "bias"))
    one = experiment(kind, members=decays, duration=7, optimiser=groups)
    if kind == "decoder":
        one = replace(one, model=GPT_2)
    names = WITHOUT_DECAY[kind]
    assert names < {name for name, _ in one.template.named_parameters()}
    for execution in ("member", "mapped"):
        found = fit(one, execution=execution).ensemble
        for member in range(3):
            assert worst(found.member_weights(member), train_plainly(one, member, undecayed=names)) < 1e-10
    other, decayed = found.member_weights(1), train_plainly(one, 1)
    assert all((other[name] - decayed[name]).abs().max() > 1e-4 for name in names if "embed" in name)


def test_one_group_alone_and_one_that_the_model_lacks():
    lacking = experiment("associative").template
    assert undecayed_weights(lacking, ("norm", "bias")) == frozenset()
    decoder = replace(experiment(), model=GPT_2).template
    assert undecayed_weights(decoder, ("norm",)) == {f"{norm}.{name}" for norm in NORMS for name in "wb"}
    assert undecayed_weights(decoder, ("embedding",)) == {"embed.W_E", "pos_embed.W_pos"}
    assert undecayed_weights(nn.Sequential(nn.RMSNorm(3), nn.GroupNorm(1, 3), nn.Linear(3, 3)), ("norm",)) == {
        "0.weight", "1.weight", "1.bias",
    }  # fmt: skip


@pytest.mark.parametrize("execution", ["member", "mapped"])
def test_a_member_does_not_depend_on_its_neighbours(execution):
    together = fit(experiment(members=PER_MEMBER), execution=execution)
    alone = fit(experiment(members=PER_MEMBER.take(range(1, 2))), execution=execution)
    assert worst(together.ensemble.member_weights(1), alone.ensemble.member_weights(0)) < 1e-12
    of_one = [row for row in together.rows if row.member == 1]
    assert [row[1:-1] for row in of_one] == [row[1:-1] for row in alone.rows]
    assert [row.value for row in of_one] == pytest.approx([row.value for row in alone.rows], abs=1e-10)


def test_a_batch_in_which_nothing_is_scored_teaches_nothing():
    task = TRIGGERS.replace(length=4, max_scored=1, triggers=(0,))
    one = Experiment(task, KINDS["recall"][1], STREAM.replace(batch=1, clip=None), Members())
    ensemble = fit(one).ensemble
    assert all(value.isfinite().all() for value in ensemble.weights.values())


@pytest.mark.slow
def test_mixed_precision_learns_and_keeps_weights_in_float32():
    for execution in ("member", "mapped"):
        trained = fit(
            experiment(precision="bfloat16", duration=60, clip=None, schedule={"kind": "constant"}), execution=execution
        )
        losses = [
            sum(row.value for row in trained.rows if row[2:4] == (step, "train") and row.metric == "loss")
            for step in (0, 60)
        ]
        assert losses[1] < 0.8 * losses[0]
        assert all(value.dtype == torch.float32 for value in trained.ensemble.weights.values())
        rounded = [value.bfloat16().float() for value in trained.ensemble.weights.values()]
        assert not all(torch.equal(*pair) for pair in zip(rounded, trained.ensemble.weights.values(), strict=True))


def test_mixed_precision_follows_full_precision():
    """bfloat16 keeps 8 bits, so products are off by half a percent."""
    full, mixed = (
        [row.value for row in fit(experiment(precision=precision)).rows if row.metric == "loss"]
        for precision in ("float64", "bfloat16")
    )
    assert mixed == pytest.approx(full, rel=0.02)
    assert mixed != pytest.approx(full, rel=1e-5)


def test_what_torch_cannot_map_is_trained_one_by_one():
    @register_module("test-asks-for-values")
    def asks(shape):
        class Asks(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(shape.input_size, shape.output_size)

            def forward(self, inputs):
                x = self.embed(inputs)
                return x if x.sum() > 0 else 2 * x

        return Asks()

    one = Experiment(IDENTITY, asks(), SAMPLE, Members(seeds=(0, 1)))
    found = fit(one).ensemble
    assert worst(found.member_weights(1), train_plainly(one, 1)) < 1e-10
    with pytest.raises(SpecError, match=r"^execution: the model cannot be mapped over members") as caught:
        fit(one, execution="mapped")
    assert "\n" not in str(caught.value)


def test_experiments_leave_torchs_generator_alone():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    fit(experiment("own module with tied weights"))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert DECODER.build(IDENTITY.shape) is not None


def execution_of(one, execution="auto", keeper=None):
    return Session(one, torch.device("cpu"), execution, keeper).execution.name


def test_eight_members_of_a_tiny_model_are_mapped():
    tiny, many = experiment(), Members(seeds=range(8))
    assert work_per_step(tiny) < 4e6
    assert execution_of(experiment(members=many)) == "mapped"
    assert execution_of(experiment(members=many), "member") == "member"
    assert execution_of(experiment(members=Members(seeds=range(7)))) == "member"
    larger = Experiment(IDENTITY, DECODER.replace(width=512, head_width=64), SAMPLE, many)
    assert work_per_step(larger) > 1e8
    assert execution_of(larger) == "member"


def test_the_smallest_mapped_models_are_updated_all_at_once():
    for kind, optimiser in {"recall": FlatOptimiser, "decoder": RowOptimiser}.items():
        assert type(Session(experiment(kind), torch.device("cpu"), "mapped").optimiser) is optimiser


@pytest.mark.untyped  # what stands in for a keeper is none
def test_a_training_goes_on_as_it_began():
    """Also one that began member by member, before tiny models were mapped."""
    one = experiment(members=Members(seeds=range(8)))

    class Kept:
        def load(self):
            session = Session(one, torch.device("cpu"), "member")
            return session._state()

    assert execution_of(one, keeper=Kept()) == "member"


@pytest.mark.parametrize("kind", ["decoder", "recall", "own module with tied weights"])
def test_members_that_are_trained_one_by_one_begin_at_cache_lines(kind):
    """Libraries add up what begins elsewhere in another order, and the index of a member depends on its chunk."""
    one = experiment(kind, precision="float32")
    session = Session(one, torch.device("cpu"), "member")
    before = one.initial_ensemble()
    for index, module in enumerate(session.execution.modules):
        weights = dict([*module.named_parameters(), *module.named_buffers()])
        assert {value.data_ptr() % 64 for value in weights.values()} == {0}
        assert all(torch.equal(weights[name], value) for name, value in before.member_weights(index).items())
    assert any(value.data_ptr() % 64 for value in before.member_weights(1).values())
