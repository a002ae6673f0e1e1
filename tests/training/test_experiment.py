"""What an experiment refuses, with the path of the field, and what it says of itself."""

import re
from functools import partial

import pytest
import torch
from torch import nn

from anchorlab.errors import SpecError
from anchorlab.models import ModelSpec, VectorSpec, register_module
from anchorlab.tasks import MinimalRetrieval
from anchorlab.training import Evaluation, Experiment, FixedSample, Members, Recipe, Stop, Times, fit, memory_per_member
from anchorlab.training.recipe import SGD, Adam, AdamW, default_recipe
from tests.small_experiments import DECODER, IDENTITY, KINDS, SAMPLE, STREAM, TRIGGERS, experiment

RECIPES = {
    "recipe.optimiser.learning_rate": {"optimiser": {"kind": "adamw", "learning_rate": 0}},
    "recipe.optimiser.betas.1": {"optimiser": {"kind": "adamw", "betas": (0.9, 1.0)}},
    "recipe.optimiser.momentum": {"optimiser": {"kind": "sgd", "momentum": 1}},
    "recipe.optimiser.kind": {"optimiser": {"kind": "adamm"}}, "recipe.schedule.kind": {"schedule": {"kind": "cosine"}},
    "recipe.clip": {"clip": 0}, "recipe.durations": {"durations": 5}, "recipe.duration": {"duration": 0},
    "recipe.precision": {"precision": "float16"},
    "recipe.unit": {"unit": "epochs", "data": {"kind": "stream"}},
    "recipe.batch": {"batch": 50, "data": {"kind": "sample", "size": 49}},
    "recipe.evaluation.edits.none": {"evaluation": {"edits": {"none": []}}},
    "recipe.evaluation.every": {"evaluation": {"every": 0}}, "recipe.evaluation.splits": {"evaluation": {"splits": []}},
    "recipe.checkpoints.at.0": {"checkpoints": {"at": [-1]}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (AdamW, {"lr": 0.1}, "lr: unknown field 'lr'; write learning_rate"),
        (Adam, {"eps": 0.1}, "eps: unknown field 'eps'; write epsilon"),
        (SGD, {"wd": 0.1}, "wd: unknown field 'wd'; write weight_decay"),
        (Recipe, {"learning_rate": 0.1}, "learning_rate: unknown field .*; write optimiser=al.AdamW.learning_rate="),
        (Recipe, {"optimiser": {"kind": "adam", "lr": 0.1}}, "optimiser.lr: unknown field 'lr'; write learning_rate"),
        (Recipe, {"optimizer": AdamW()}, "optimizer: unknown field 'optimizer'; write optimiser="),
        (Recipe, {"steps": 10}, "steps: unknown field 'steps'; write duration$"),
        (Recipe, {"epochs": 10}, "epochs: unknown field 'epochs'; write duration, with unit='epochs'"),
        (Recipe, {"batch_size": 10}, "batch_size: unknown field 'batch_size'; write batch$"),
    ],
)
def test_the_names_of_other_libraries_lead_to_ours(make, given, message):
    with pytest.raises(SpecError, match=f"^{message}"):
        make(**given)


@pytest.mark.parametrize("spec", [AdamW, Adam, SGD])
def test_a_number_alone_is_the_learning_rate(spec):
    assert spec(2e-3) == spec(learning_rate=2e-3) != spec()


def test_a_sample_and_members_know_their_numbers_without_a_name():
    assert FixedSample(70) == FixedSample(size=70)
    assert Members(3) == Members([0, 1, 2]) == Members(seeds=(0, 1, 2))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: AdamW(1e-3, 0.1), "got 0.001; write AdamW(learning_rate=..., weight_decay=...)"),
        (lambda: AdamW(1e-3, learning_rate=0.1), "got 0.001; write AdamW(weight_decay=...)"),
        (lambda: AdamW(range), "got <class 'range'>; write AdamW(learning_rate=...)"),
        (lambda: Recipe(5), "got 5; write Recipe(data=...)"),
    ],
)
def test_other_values_without_names_are_told_how_to_be_given(make, problem):
    with pytest.raises(SpecError) as caught:
        make()
    assert str(caught.value).partition(": takes its fields by name, ")[2] == problem


def test_what_stands_for_another_name_is_a_field():
    for spec in (AdamW, Adam, SGD, Recipe):
        for other, wanted in spec.other_names.items():
            field = re.match(r"\w+", wanted).group()
            assert other not in spec.model_fields
            assert field in spec.model_fields or wanted == "al.train(..., seeds=...)"


MEMBERS = {
    "members.seeds": {"seeds": ()}, "members.seeds.0": {"seeds": (-1,)},
    "members.learning_rate": {"seeds": (0, 1), "learning_rate": (0.1,)},
    "members.hold.dat": {"hold": {"dat": 0}}, "members.clip.1": {"seeds": (0, 1), "clip": (1.0, 0.0)},
    "members.seedz": {"seedz": (1,)},
}  # fmt: skip


def test_a_repeated_seed_is_allowed_where_something_else_differs():
    assert len(Members(seeds=(4, 4), learning_rate=(0.1, 0.2))) == 2


TOGETHER = {
    "recipe.evaluation.splits": (SAMPLE.replace(evaluation=Evaluation(splits=("tests",))), Members()),
    "recipe.stop.split": (SAMPLE.replace(stop=Stop(metric="loss", value=1, split="clean")), Members()),
    "recipe.stop.metric": (SAMPLE.replace(stop=Stop(metric="acuracy", value=1)), Members()),
    "members.data_size": (SAMPLE, Members(data_size=(40,))),
    "recipe.evaluation.edits.x.0.weight": (
        SAMPLE.replace(evaluation={"edits": {"x": [{"kind": "remove", "weight": "blocks.7.mlp"}]}}),
        Members(),
    ),
    "recipe.evaluation.edits.x.0.rank": (
        SAMPLE.replace(evaluation={"edits": {"x": [{"kind": "truncate", "weight": "unembed.W_U", "rank": 17}]}}),
        Members(),
    ),
}


@pytest.mark.parametrize(
    ("field", "make"),
    [
        *((field, partial(Recipe.parse, data, "recipe")) for field, data in RECIPES.items()),
        *((field, partial(Members.parse, data, "members")) for field, data in MEMBERS.items()),
        *((field, partial(Experiment, IDENTITY, DECODER, *parts)) for field, parts in TOGETHER.items()),
    ],
)
def test_wrong_parts_and_parts_that_do_not_fit_together_name_the_field(field, make):
    with pytest.raises(SpecError) as caught:
        make()
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


@register_module("test-batch-norm")
def normed(shape, width: int = 4):
    return nn.Sequential(nn.Linear(shape.input_size, width), nn.BatchNorm1d(width))


@register_module("test-drops-out")
def drops(shape, rate: float = 0.1):
    return nn.Sequential(nn.Embedding(shape.input_size, shape.output_size), nn.Dropout(rate))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Members.parse({"seeds": (4, 5, 4)}, "members"), r"members\.seeds: 4 is given twice"),
        (
            lambda: experiment(recipe=STREAM, members=Members(data_size=(16,))),
            r"members\.data_size: a stream has no size",
        ),
        (
            lambda: experiment(unit="epochs", members=Members(seeds=(0, 1), data_size=(16, 32))),
            r"members\.data_size: .* epochs of different lengths",
        ),
        (
            lambda: experiment(unit="epochs", members=Members(data_size=(48,))),
            r"members\.data_size: differs from recipe\.data\.size",
        ),
        (
            lambda: Experiment(IDENTITY, VectorSpec(), SAMPLE, Members()),
            r"model\.kind: a 'vectors' model reads vectors, but the task has tokens",
        ),
        (
            lambda: Experiment(MinimalRetrieval(), normed(), SAMPLE, Members()),
            r"model: 1 \(BatchNorm1d\) keeps running statistics",
        ),
        (lambda: Experiment(IDENTITY, drops(), SAMPLE, Members()), r"model: 1 \(Dropout\) drops out at random"),
        (lambda: Experiment.from_json({**experiment().to_json(), "format": 0}), "format: is 0"),
        *(
            (partial(fit, experiment(), device=device), f"device: '{device}'")
            for device in ("cudaa", "tpu", "meta", "cuda:99")
        ),
    ],
)
def test_what_is_refused_is_named_with_its_reason(make, message):
    with pytest.raises(SpecError, match=f"^{message}"):
        make()


def test_a_module_that_could_drop_out_but_does_not_is_accepted():
    assert Experiment(IDENTITY, drops(rate=0.0), SAMPLE, Members()).steps > 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_experiment_reads_back(kind):
    one = experiment(kind, members=Members(seeds=(1, 2), learning_rate=(0.1, 0.2)))
    again = Experiment.from_json(one.to_json())
    assert again == one
    assert again.cell.address == one.cell.address


@pytest.mark.parametrize("name", ["task", "model", "recipe", "members"])
def test_a_part_that_is_missing_is_named(name):
    data = experiment().to_json()
    for others in ({key: value for key, value in data.items() if key != name}, {**data, name: 3}):
        with pytest.raises(SpecError, match=f"^{name}: is missing"):
            Experiment.from_json(others)


def test_its_address_tells_every_part_and_is_what_it_was_before_later_fields():
    one = experiment()
    assert one.cell.address == "c949436e730542f05247"  # computed before the decoder had `attention`
    others = [
        experiment("recall"), experiment(duration=31), experiment(members=Members(seeds=(0, 1))),
        experiment(members=Members(seeds=(0, 1, 2), hold={"data": 0})),
        Experiment(IDENTITY, DECODER.replace(mask=False), SAMPLE, one.members),
    ]  # fmt: skip
    assert len({each.cell.address for each in (one, *others)}) == 6
    assert Experiment(one.task, one.model, one.recipe, one.members, label="x").cell.address == one.cell.address


@pytest.mark.parametrize(
    ("optimiser", "address"),
    [
        (SAMPLE.optimiser, "9d1a352f3b5dcd1aeddb"),
        (Adam(weight_decay=0.1), "500ef8e0e44a74d04917"),
        (SGD(momentum=0.9), "b5f8b0e9418c40604c0f"),
    ],
)
def test_addresses_from_before_groups_without_decay_are_the_same(optimiser, address):
    one = experiment("associative", optimiser=optimiser)
    assert one.cell.address == address and "undecayed" not in one.to_json()["recipe"]["optimiser"]
    other = experiment("associative", optimiser=optimiser.replace(undecayed=("bias", "norm", "bias")))
    assert other.cell.address != address and other.recipe.optimiser.undecayed == ("norm", "bias")
    assert Experiment.from_json(other.to_json()) == other
    assert "undecayed=['norm', 'bias']" in repr(other.recipe.optimiser)
    with pytest.raises(SpecError, match=r"undecayed\.0: .*'norm', 'bias' or 'embedding', got 'head'"):
        optimiser.replace(undecayed=("head",))


def test_every_task_has_a_recipe_that_fits_it():
    for task, spec in KINDS.values():
        Experiment(task, spec, default_recipe(task), Members())
    assert default_recipe(TRIGGERS).data.kind == "stream"


def test_memory_of_a_member_counts_what_it_holds():
    """Weights, gradients, two slots of Adam, and sequences of 7 float32 positions x features and targets."""
    task = MinimalRetrieval(chains=1, steps=1, features=2)
    spec = VectorSpec(layers=1, heads=1, width=4)
    weights = sum(value.numel() for value in spec.build(task.shape).parameters())
    recipe = Recipe(batch=1, evaluation=Evaluation(size=1))
    small, large = (
        memory_per_member(Experiment(task, spec, recipe.replace(data=FixedSample(size=size)), Members()))
        for size in (1, 2**20)
    )
    sequence = 4 * (3 * 4 + 2) + 8  # positions x features, targets, and the place in the order
    assert large - small == (2**20 - 1) * sequence
    activations = 4 * 3 * 16 * len(list(spec.build(task.shape).parameters()))  # 3 positions, at most 16 wide
    assert small == 4 * 4 * weights + 3 * sequence + activations
    doubled = Experiment(task, spec, recipe.replace(data=FixedSample(size=1), precision="float64"), Members())
    assert memory_per_member(doubled) > 1.8 * small


def test_a_fixed_sample_is_held_once():
    """Its sequences lie in one stack; beside it, only the copy of the first ones that evaluation measures."""
    from anchorlab.training.feed import FixedSampleFeed

    recipe = SAMPLE.replace(data=FixedSample(size=4000), evaluation=Evaluation(size=10))
    feed = FixedSampleFeed(IDENTITY, recipe, Members(seeds=(0, 1)), torch.device("cpu"), torch.float32)
    assert [len(batch) for batch in feed.first] == [10, 10]
    assert all(batch.inputs.untyped_storage().nbytes() == 10 * 9 * 8 for batch in feed.first)
    assert feed._data.inputs.untyped_storage().nbytes() == 2 * 4000 * 9 * 8
    shared = FixedSampleFeed(
        IDENTITY, recipe, Members(seeds=(0, 1), hold={"data": 0}), torch.device("cpu"), torch.float32
    )
    assert shared._data.inputs.untyped_storage().nbytes() == 4000 * 9 * 8


class Answering(nn.Module):
    """A user's own module: what it returns is made from one number per position."""

    def __init__(self, answer):
        super().__init__()
        self.weight, self.answer = nn.Parameter(torch.ones(1)), answer

    def forward(self, inputs):
        return self.answer(self.weight * inputs.float())


class AnsweringAt(Answering):
    """The same for the positions that it is given."""

    def forward(self, inputs, positions):
        return self.answer(self.weight * inputs[:, positions].float())


OUTPUTS, LENGTH = IDENTITY.shape.output_size, IDENTITY.shape.length
WRONG = [
    (Answering, lambda x: x[..., None].expand(-1, -1, OUTPUTS - 1), f"returns shape (2, {LENGTH}, {OUTPUTS - 1})"),
    (Answering, lambda x: x[..., None].expand(-1, -1, OUTPUTS + 1), f"returns shape (2, {LENGTH}, {OUTPUTS + 1})"),
    (Answering, lambda x: x[:, :1].expand(-1, OUTPUTS), f"returns shape (2, {OUTPUTS})"),
    (Answering, lambda x: x[:, :1, None].expand(-1, -1, OUTPUTS), f"returns shape (2, 1, {OUTPUTS})"),
    (Answering, lambda x: (x[..., None].expand(-1, -1, OUTPUTS), x), "returns a tuple, not a tensor"),
    (AnsweringAt, lambda x: x, "returns shape (2, 1)"),
]


@pytest.mark.parametrize(("module", "answer", "problem"), WRONG)
def test_what_a_module_returns_is_checked_before_training(module, answer, problem):
    @register_module(f"test-answers-{len(ModelSpec.registry)}")
    def answering(shape):
        return module(answer)

    with pytest.raises(SpecError, match=rf"^model: {re.escape(problem)}.*; return .*, {OUTPUTS}\)$"):
        Experiment(IDENTITY, answering(), SAMPLE, Members())


@pytest.mark.parametrize("module", [Answering, AnsweringAt])
def test_a_module_with_the_axes_of_its_task_is_accepted(module):
    @register_module(f"test-answers-{len(ModelSpec.registry)}")
    def answering(shape):
        return module(lambda x: x[..., None].expand(-1, -1, OUTPUTS))

    assert Experiment(IDENTITY, answering(), SAMPLE, Members()).steps > 0


@pytest.mark.parametrize(
    ("evaluation", "duration", "times"),
    [
        (Evaluation(), 1000, [*range(0, 1000, 50), 1000]),
        (Evaluation(size=8), 7, [*range(8)]),
        (Evaluation(every=None), 1000, [1000]),
        (Evaluation(every=300), 1000, [0, 300, 600, 900, 1000]),
        (Evaluation(at=(3,)), 1000, [3, 1000]),
    ],
)
def test_members_are_measured_along_the_training_unless_said_otherwise(evaluation, duration, times):
    one = Experiment(IDENTITY, DECODER, Recipe(duration=duration, evaluation=evaluation), Members())
    assert one.steps_at(one.recipe.evaluation) == times


def test_an_experiment_holds_numbers_and_spreads_evaluations_and_checkpoints():
    along, said = (
        Experiment(IDENTITY, DECODER, Recipe(duration=40, evaluation=Evaluation(every=every)), Members())
        for every in ("auto", 2)
    )
    assert along == said and along.cell.address == said.cell.address
    assert along.cell.spec["recipe"]["evaluation"]["every"] == 2
    one = Experiment(IDENTITY, DECODER, Recipe(duration=60, checkpoints=Times(every="auto")), Members())
    assert one.steps_at(one.recipe.checkpoints) == [*range(0, 61, 3)]
