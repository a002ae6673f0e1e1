"""Small experiments with every kind of model, and a training loop as a user would write it with plain PyTorch."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from anchorlab.models import (
    AssociativeSpec,
    DecoderSpec,
    FNNSpec,
    GatedLinearAttentionSpec,
    LSTMSpec,
    MambaSpec,
    OneLayerSpec,
    RecallSpec,
    SuperpositionSpec,
    VectorSpec,
    register_module,
)
from anchorlab.rng import child_seed, torch_generator
from anchorlab.tasks import AnchorFunction, MinimalRetrieval, NoisyAssociative, NoisyRecall, Superposition
from anchorlab.tasks import task as make_task
from anchorlab.training import (
    AdamW,
    Evaluation,
    Experiment,
    FixedSample,
    Members,
    Recipe,
    Stream,
    WarmupCosine,
    register_loss,
)


class TiedModule(nn.Module):
    """A user's own: the output map is the embedding, and a buffer scales the mean over the past."""

    def __init__(self, tokens, width, outputs):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, outputs, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, inputs):
        x = self.embed(inputs)
        places = torch.arange(1, x.shape[1] + 1, dtype=x.dtype).view(1, -1, 1)
        return self.out(torch.tanh(self.mix(self.scale * x.cumsum(dim=1) / places)) + x)


@register_module("test-tied")
def tied(shape, width: int = 12):
    return TiedModule(shape.input_size, width, shape.output_size)


class RecurrentModule(nn.Module):
    """A user's own: torch's LSTM, which keeps a list of its weights beside their names."""

    def __init__(self, tokens, width, outputs):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.recur = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, outputs)

    def forward(self, inputs):
        return self.out(self.recur(self.embed(inputs))[0])


@register_module("test-lstm")
def recurrent(shape, width: int = 8):
    return RecurrentModule(shape.input_size, width, shape.output_size)


class BreakingModule(RecurrentModule):
    """A user's own that breaks when it is trained."""

    def forward(self, inputs):
        if torch.is_grad_enabled():
            raise ZeroDivisionError("it broke")
        return super().forward(inputs)


@register_module("test-breaking")
def breaking(shape, width: int = 8):
    return BreakingModule(shape.input_size, width, shape.output_size)


@register_loss("test-smoothed")
def smoothed(outputs, targets, share: float = 0.1):
    """Cross entropy with a share of each label spread evenly over all tokens."""
    logs = outputs.log_softmax(dim=-1)
    right = logs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return -(1 - share) * right - share * logs.mean(dim=-1)


IDENTITY = make_task("anchor/identity")
assert isinstance(IDENTITY, AnchorFunction)
DECODER = DecoderSpec(layers=2, heads=2, width=16, head_width=8, hidden=24)
# with few rows of its state a head's norm divides by numbers near 0, and training amplifies rounding
GATED = GatedLinearAttentionSpec(layers=1, width=8, key_width=8, gate_rank=4, feed_forward=False)
TRIGGERS = NoisyRecall(length=48, source="uniform", triggers=(0, 1, 2, 3), scored="after_trigger", max_scored=3)

KINDS = {
    "decoder": (IDENTITY, DECODER),
    "decoder, modern": (IDENTITY, DECODER.replace(norm="rms", positions="rotary", activation="swiglu", tied=True)),
    "decoder, every token": (make_task("anchor/identity", every_token=True), DECODER),
    "recall": (NoisyRecall(length=16), RecallSpec(width=12, hidden=16)),
    "recall after triggers": (TRIGGERS, RecallSpec(width=12, hidden=16, factored_values=True)),
    "recall as printed": (
        NoisyRecall(length=16),
        RecallSpec(width=12, hidden=16, scale_scores=False, learned_positions=True),
    ),
    "recall with one layer": (
        NoisyRecall(length=16, source="uniform", tokens=10),
        OneLayerSpec(width=12, start="normal"),
    ),
    "vectors": (MinimalRetrieval(chains=2, steps=2), VectorSpec(layers=2, heads=2, width=8)),
    "lstm": (IDENTITY, LSTMSpec(layers=2, width=8)),
    "mamba": (IDENTITY, MambaSpec(width=8, state=3)),
    "gated linear attention": (IDENTITY, GATED),
    "fnn": (IDENTITY, FNNSpec(layers=2, width=3, hidden=10)),
    "associative": (NoisyAssociative(), AssociativeSpec(width=6)),
    "superposition": (Superposition(features=6, importance=0.7), SuperpositionSpec(hidden=2)),
    "own module with tied weights": (IDENTITY, tied()),
    "own recurrent module": (IDENTITY, recurrent()),
    "decoder, other attention": (IDENTITY, DECODER.replace(attention=("uniform", "linear"))),
}
"""A task and a small model of every registered kind, and of a user's own."""

SAMPLE = Recipe(
    data=FixedSample(size=40),
    optimiser=AdamW(learning_rate=5e-3, weight_decay=0.1),
    schedule=WarmupCosine(warmup=5, horizon=25, start=0.1, end=0.1),
    batch=16,  # the third batch of an epoch is smaller
    duration=30,
    clip=0.5,
    precision="float64",
    evaluation=Evaluation(every=10, size=24),
)
STREAM = SAMPLE.replace(data=Stream())


def in_turns(*both):
    """Every kind of model with either recipe, as parameters `kind` and `recipe`.

    The gates take the recipes in turns, and both for the kinds that are named.
    """
    return [
        pytest.param(kind, recipe, id=f"{kind}-{name}", marks=() if in_gates else pytest.mark.nightly)
        for turn, kind in enumerate(KINDS)
        for place, (name, recipe) in enumerate((("sample", SAMPLE), ("stream", STREAM)))
        for in_gates in (kind in both or turn % 2 == place,)
    ]


BREAKING = Experiment(IDENTITY, breaking(), SAMPLE, Members(seeds=(0, 1, 2)), label="breaking")


def experiment(kind="decoder", recipe=SAMPLE, members=None, **changes):
    task, model = KINDS[kind]
    return Experiment(task, model, recipe.replace(**changes), members or Members(seeds=(0, 1, 2)))


def initial_module(one, member):
    """The member's module as it starts, in float64; drawn by the documented child streams."""
    seed = one.members.hold.get("initialisation", one.members.seeds[member])
    if hasattr(module := one.model.build(one.task.shape), "initialise"):
        module.initialise(torch_generator(seed, "initialisation"))
    else:
        torch.manual_seed(child_seed(seed, "initialisation"))
        module = one.model.build(one.task.shape)
    module = module.to(torch.float64 if one.recipe.precision == "float64" else torch.float32)
    if one.members.initialisation_scale is not None:
        with torch.no_grad():
            for weight in module.parameters():
                if weight.ndim > 1 and weight.requires_grad:
                    weight.mul_(one.members.initialisation_scale[member])
    return module


def of_member(one, name, default, member):
    values = getattr(one.members, name)
    return default if values is None else values[member]


def train_plainly(one, member, rates=None, smoothing=0.0, after_step=None, undecayed=()):
    """One member, trained by torch.optim on the full output. Returns its weights by name.

    `rates` gives the learning rate of every step; without it, the schedule's, counted in steps. `after_step` is called
    with the module after each step. `undecayed` names the weights of a second parameter group, without weight decay.
    """
    recipe, seeds = one.recipe, one.members
    seed = seeds.seeds[member]
    data, order = seeds.hold.get("data", seed), seeds.hold.get("order", seed)
    module = initial_module(one, member)
    spec = recipe.optimiser
    rate = of_member(one, "learning_rate", spec.learning_rate, member)
    decay = of_member(one, "weight_decay", spec.weight_decay, member)
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    named = [(name, weight) for name, weight in module.named_parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for name, weight in named if name not in undecayed], "weight_decay": decay},
        {"params": [weight for name, weight in named if name in undecayed], "weight_decay": 0.0},
    ]
    if spec.kind == "sgd":
        optimiser = torch.optim.SGD(groups, lr=rate, momentum=spec.momentum)
    else:
        kind = torch.optim.AdamW if spec.kind == "adamw" else torch.optim.Adam
        optimiser = kind(groups, lr=rate, betas=spec.betas, eps=spec.epsilon)
    clip = of_member(one, "clip", recipe.clip, member)
    rates = rates or [rate * recipe.schedule.factor(step) for step in range(recipe.duration)]
    for now, batch in zip(rates, plain_batches(one, member, data, order), strict=False):
        for group in optimiser.param_groups:
            group["lr"] = now
        optimiser.zero_grad()
        plain_loss(one, module, *batch, smoothing).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(weights, clip)
        optimiser.step()
        if after_step is not None:
            after_step(module)
    return {name: value.detach() for name, value in module.named_parameters()}


def plain_batches(one, member, data, order):
    recipe, task = one.recipe, one.task
    if recipe.data.kind == "stream":
        for block in range(10**6):
            size = 8192 // recipe.batch * recipe.batch
            batch = on_every_token(task, task.sample("train", size, child_seed(data, "stream", block)))
            for start in range(0, size, recipe.batch):
                yield rows_of(batch, slice(start, start + recipe.batch))
    size = of_member(one, "data_size", recipe.data.size, member)
    batch = on_every_token(task, task.sample("train", size, child_seed(data, "train")))
    for epoch in range(10**6):
        places = torch.randperm(size, generator=torch_generator(order, "order", epoch))
        for some in places.split(recipe.batch):
            yield rows_of(batch, some)


def on_every_token(task, batch):
    """The sequences moved by one, and the answer: the targets of a task that is trained on every token."""
    if not (isinstance(task, AnchorFunction) and task.scoring.every_token):
        return batch
    targets = torch.cat([batch.inputs, batch.targets], dim=1)[:, 1:]
    return replace(batch, targets=targets, positions=torch.arange(batch.inputs.shape[1]))


def rows_of(batch, rows):
    positions = batch.positions.expand(len(batch.inputs), -1)[rows]
    return batch.inputs[rows], batch.targets[rows], positions, None if batch.weights is None else batch.weights[rows]


def plain_loss(one, module, inputs, targets, positions, weights, smoothing=0.0):
    """The loss at the scored positions, from predictions at all of them."""
    dtype = next(module.parameters()).dtype
    outputs = module(inputs.to(dtype) if inputs.is_floating_point() else inputs)
    scored = outputs[torch.arange(len(inputs)).unsqueeze(1), positions]
    if one.task.loss == "mean_squared_error":
        importances = getattr(one.task, "importance", 1.0) ** torch.arange(scored.shape[-1], dtype=dtype)
        return ((scored - targets.to(dtype)).square() * importances).mean()
    labels = targets.flatten(0, 1)  # tokens, or distributions over them
    labels = labels.to(dtype) if labels.is_floating_point() else labels
    losses = functional.cross_entropy(scored.flatten(0, 1), labels, reduction="none", label_smoothing=smoothing)
    return losses.mean() if weights is None else (losses * weights.flatten()).sum() / weights.sum()


def worst(left, right):
    """The largest difference between the weights of two ensembles or members; not a number where one has none."""
    return torch.stack([(left[name].double() - right[name].double()).abs().max() for name in right]).max().item()
