"""The recall model of noisy in-context recall beside plain PyTorch: its sequences, its step, its truncations.

    python benchmarks/recall.py [--size quick|paper|smoke] [--rounds 5] [--json]

One member of the profile's experiment on two threads. Both sides learn from the same weights and the same batch, after
their loss and gradients have been compared; their rounds alternate, so that a drift of the machine's speed meets them
alike, and medians are compared. Drawing the batch is no part of a step: sequences are timed by themselves.
"""

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch
from sampling import best_rate, recall_loop
from torch import Tensor, nn
from torch.nn import functional

from anchorlab.findings.provenance import hardware
from anchorlab.models import RecallSpec, fast_float32
from anchorlab.papers.truncation.noisy_recall import PAPER, QUICK, SMOKE
from anchorlab.tasks import task
from anchorlab.tasks.recall.markov import table_counts
from anchorlab.training import SGD, Experiment, Recipe, initialise
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.evaluation import Evaluator
from anchorlab.training.executions import MemberExecution
from anchorlab.training.executions.loss import forward_loss
from anchorlab.training.feed import MemberBatches, make_feed
from anchorlab.training.optimisers import StackedOptimiser

SETTINGS = {"quick": QUICK, "paper": PAPER, "smoke": SMOKE}
THREADS = 2
ROUNDS = {"quick": 5, "paper": 3, "smoke": 1}
STEPS = {"quick": 10, "paper": 1, "smoke": 1}  # in a round
SEQUENCES = {"quick": 100_000, "paper": 100_000, "smoke": 1000}  # drawn at once
LOOP_SEQUENCES = {"quick": 200, "paper": 200, "smoke": 5}  # drawn one by one
CLOSE = 1e-4  # loss and gradients of both sides, relative to the largest entry
CPU = torch.device("cpu")
PLAIN, ONEDNN, OURS = "plain loop", "plain loop by oneDNN", "anchorlab"
EDITED, UNEDITED = "with all truncations", "without truncations"


class PlainRecall(nn.Module):
    """The recall model of PyTorch's own parts: every layer and the logits at all positions."""

    def __init__(self, spec: RecallSpec, tokens: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tokens, spec.width).requires_grad_(False)
        self.positions = nn.Embedding(length, spec.width).requires_grad_(False)
        self.blocks = nn.ModuleList(PlainBlock(spec) for _ in range(2))
        self.projection = nn.Linear(spec.width, tokens, bias=False).requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.positions(torch.arange(length))
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
        for block in self.blocks:
            x = block(x, mask)
        return self.projection(x)

    @property
    def parts(self) -> dict[str, nn.Module]:
        """Whose weight is which of the ensemble's."""
        parts: dict[str, nn.Module] = {"embed.W_E": self.tokens, "pos_embed.W_pos": self.positions}
        for layer, block in enumerate(self.blocks):
            parts |= {f"blocks.{layer}.attn.W_KQ": block.key_query, f"blocks.{layer}.attn.W_V": block.value}
            parts |= {f"blocks.{layer}.mlp.W_in": block.first, f"blocks.{layer}.mlp.W_out": block.second}
            if isinstance(block.output, nn.Linear):
                parts[f"blocks.{layer}.attn.W_O"] = block.output
        return parts | {"unembed.W_U": self.projection}


class PlainBlock(nn.Module):
    """Attention by one head with a merged key-query matrix, and a perceptron, each added to the stream."""

    def __init__(self, spec: RecallSpec) -> None:
        super().__init__()
        width, hidden = spec.width, spec.hidden or 4 * spec.width
        self.scale = 1 / math.sqrt(width)
        self.key_query = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width, bias=False) if spec.factored_values else nn.Identity()
        self.first = nn.Linear(width, hidden, bias=False)
        self.second = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = self.key_query(x) @ x.transpose(1, 2) * self.scale
        pattern = scores.masked_fill(mask, float("-inf")).softmax(dim=-1)
        x = x + self.output(pattern @ self.value(x))
        return x + self.second(torch.relu(self.first(x)))


class Plain:
    """A member in a plain loop, from the weights of an ensemble's first."""

    def __init__(self, one: Experiment, ensemble: Ensemble, batches: MemberBatches) -> None:
        assert isinstance(one.model, RecallSpec)
        assert isinstance(one.recipe.optimiser, SGD)
        shape, rule = one.task.shape, one.recipe.optimiser
        self.model = PlainRecall(one.model, shape.input_size, shape.length)
        with torch.no_grad():
            for name, value in ensemble.member_weights(0).items():
                part = self.model.parts[name]
                part.weight.copy_(turned(value, part))
        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.optimiser = torch.optim.SGD(
            trained, lr=rule.learning_rate, momentum=rule.momentum, weight_decay=rule.weight_decay
        )
        self.inputs = batches.inputs[0]
        self.scored, self.labels = labels_everywhere(batches)

    def loss(self) -> Tensor:
        return functional.cross_entropy(self.model(self.inputs)[self.scored], self.labels[self.scored])

    def gradients(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and its gradients, under the ensemble's names and in its orientation."""
        self.optimiser.zero_grad()
        loss = self.loss()
        loss.backward()
        parts = {name: part for name, part in self.model.parts.items() if part.weight.requires_grad}
        return loss.detach(), {name: turned(part.weight.grad, part).clone() for name, part in parts.items()}

    def step(self) -> None:
        self.optimiser.zero_grad()
        self.loss().backward()
        self.optimiser.step()


def turned(value: Tensor, part: nn.Module) -> Tensor:
    """A weight or gradient in the other side's orientation: a linear layer of torch's keeps `[output input]`."""
    return value.T if isinstance(part, nn.Linear) else value


def labels_everywhere(batches: MemberBatches) -> tuple[Tensor, Tensor]:
    """Which positions `[batch position]` of the first member's sequences count in the loss, and what follows them."""
    inputs, targets = batches.inputs[0], batches.targets[0]
    positions = batches.positions.expand_as(targets) if batches.shared_positions else batches.positions[0]
    counts = torch.ones_like(targets) if batches.weights is None else batches.weights[0]
    rows, columns = counts.nonzero(as_tuple=True)
    scored, labels = torch.zeros_like(inputs, dtype=torch.bool), torch.zeros_like(inputs)
    scored[rows, positions[rows, columns]] = True
    labels[rows, positions[rows, columns]] = targets[rows, columns]
    return scored, labels


class Ours:
    """The same member as `fit` trains it."""

    def __init__(self, one: Experiment, ensemble: Ensemble, batches: MemberBatches) -> None:
        self.names, self.batches, self.done = ensemble.trainable, batches, 0
        trainable = {name: ensemble.weights[name] for name in ensemble.trainable}
        optimiser = StackedOptimiser(one.recipe, one.members, trainable)
        self.execution = MemberExecution(ensemble, optimiser, one.task.losses, mixed=False)

    def gradients(self) -> tuple[Tensor, dict[str, Tensor]]:
        batches, execution = self.batches, self.execution
        positions = batches.positions if batches.shared_positions else batches.positions[0]
        scored = None if batches.weights is None else batches.weights[0]
        loss = forward_loss(
            execution.modules[0], batches.inputs[0], batches.targets[0], positions, scored, execution.losses, False
        )
        found = torch.autograd.grad(loss, execution.parameters[0])
        return loss.detach(), dict(zip(self.names, found, strict=True))

    def step(self) -> None:
        self.execution.step(self.batches, 1.0, [True], self.done)
        self.done += 1


def differences(plain: Plain, ours: Ours) -> dict[str, float]:
    """How far the two are apart in the loss and, at most, in any weight's gradient; refuses to go on if far."""
    loss, gradients = plain.gradients()
    with fast_float32():
        our_loss, our_gradients = ours.gradients()
    assert gradients.keys() == our_gradients.keys()
    apart = {
        "loss": float((our_loss - loss).abs() / loss.abs()),
        "gradients": max(
            float((our_gradients[name] - value).abs().max() / value.abs().max()) for name, value in gradients.items()
        ),
    }
    if not all(value < CLOSE for value in apart.values()):
        raise SystemExit(f"the two sides do not compute the same: {apart}")
    return apart


def seconds(act: Callable[[], object], times: int = 1) -> float:
    """Seconds for each time."""
    began = time.perf_counter()
    for _ in range(times):
        act()
    return (time.perf_counter() - began) / times


def evaluations(recipe: Recipe) -> int:
    """How often a run is measured: where it is due, and at the end."""
    return sum(recipe.evaluation.due(moment) for moment in range(recipe.duration)) + 1


def choices_loop(n: int) -> tuple[Tensor, Tensor]:
    """Noisy recall token by token, with `random.choices` over cumulative rows: the fastest plain loop we know."""
    counts = table_counts("shakespeare")
    totals = [*counts.cumsum(axis=1).tolist(), counts.sum(axis=1).cumsum().tolist()]  # the last: after noise, and first
    tokens = range(65)

    def following(token: int, output: int) -> int:
        if token == 1:
            return 65 if random.random() < 0.5 else output
        return random.choices(tokens, cum_weights=totals[token])[0]

    sequences, targets = [], []
    for _ in range(n):
        output = random.randrange(65)
        sequence = [following(65, output)]
        while len(sequence) < 255:
            sequence.append(following(sequence[-1], output))
        sequence.append(1)
        sequences.append(sequence)
        targets.append(following(1, output))
    return torch.tensor(sequences), torch.tensor(targets)


def sampling(size: str, rounds: int) -> dict[str, float]:
    """Sequences a second of the core, drawn in bulk and token by token."""
    bulk = task("recall/noisy", length=256)
    draws: dict[str, tuple[Callable[[int], object], int]] = {
        OURS: (lambda count: bulk.sample("train", count, seed=0), SEQUENCES[size]),
        "token by token, numpy's choice": (recall_loop, LOOP_SEQUENCES[size]),
        "token by token, random.choices": (choices_loop, LOOP_SEQUENCES[size]),
    }
    return {name: best_rate(draw, count, max(2, rounds)) for name, (draw, count) in draws.items()}


@dataclass(frozen=True)
class Measured:
    """What the comparison measured; `times` are the seconds of each round, of a step or of an evaluation."""

    apart: dict[str, float]
    times: dict[str, list[float]]
    evaluations: int
    steps: int

    @property
    def speed(self) -> float:
        """How many of our steps a plain step takes."""
        return statistics.median(self.times[PLAIN]) / statistics.median(self.times[OURS])

    def in_steps(self, kind: str) -> float:
        """How many steps one evaluation takes."""
        return statistics.median(self.times[kind]) / statistics.median(self.times[OURS])

    def share(self, kind: str) -> float:
        """The part of a run's time that its evaluations take."""
        evaluating = self.evaluations * self.in_steps(kind)
        return evaluating / (evaluating + self.steps)


def measure(size: str, rounds: int) -> Measured:
    one = SETTINGS[size].experiment("benchmark")
    one = replace(one, members=one.members.take(range(1)))
    ensemble = initialise(one.model, one.task.shape, [one.members.stream("initialisation", 0)])
    batches = make_feed(one.task, one.recipe, one.members, CPU, torch.float32).at(0)
    plain, ours = Plain(one, ensemble, batches), Ours(one, ensemble, batches)
    apart = differences(plain, ours)  # which also warms both up
    kinds = {EDITED: one.recipe.evaluation, UNEDITED: one.recipe.evaluation.replace(edits={})}
    evaluators = {kind: Evaluator(one.task, each, one.members, CPU, torch.float32) for kind, each in kinds.items()}
    times: dict[str, list[float]] = {name: [] for name in (PLAIN, ONEDNN, OURS, *kinds)}
    for _ in range(rounds):
        times[PLAIN].append(seconds(plain.step, STEPS[size]))
        with fast_float32():
            times[ONEDNN].append(seconds(plain.step, STEPS[size]))  # how much of the gain are the products alone?
            times[OURS].append(seconds(ours.step, STEPS[size]))
            for kind, evaluator in evaluators.items():
                times[kind].append(seconds(partial(evaluator.measure, ensemble, step=0)))
    return Measured(apart, times, evaluations(one.recipe), one.recipe.duration)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--size", choices=list(SETTINGS), default="quick", help="the profile whose setting is taken")
    options.add_argument("--rounds", type=int, help="5, or 3 at the paper's size, when unset")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    rounds = ROUNDS[chosen.size] if chosen.rounds is None else chosen.rounds
    rates = sampling(chosen.size, rounds)
    torch.set_num_threads(THREADS)
    found = measure(chosen.size, rounds)
    if chosen.json:
        about = {"hardware": hardware(), "torch": torch.__version__, "threads": THREADS, "size": chosen.size}
        shares = {kind: {"in steps": found.in_steps(kind), "share": found.share(kind)} for kind in (EDITED, UNEDITED)}
        results = {**asdict(found), "times the plain loop": found.speed, "one evaluation": shares}
        print(json.dumps({**about, "sequences per second": rates, **results}, indent=2))
        return
    setting = SETTINGS[chosen.size]
    print(f"{hardware()}, torch {torch.__version__}, {THREADS} threads; medians (range) of {rounds} rounds")
    print(
        f"size {chosen.size}: width {setting.model.width}, hidden {setting.model.hidden}, T {setting.task.length}, "
        f"batch {setting.recipe.batch}, scored {setting.task.scored}; "
        f"evaluations of {setting.recipe.evaluation.size} sequences of each split"
    )
    print("sequences a second of one core, T = 256, and how many times as many anchorlab draws")
    for name, rate in rates.items():
        print(f"{name:36s} {rate:9,.0f}     {rates[OURS] / rate:.0f} x")
    print("relative differences: " + ", ".join(f"{name} {value:.1e}" for name, value in found.apart.items()))
    for name, values in found.times.items():
        label = f"evaluation {name}" if name in (EDITED, UNEDITED) else f"step, {name}"
        span = f"({1e3 * min(values):.1f} to {1e3 * max(values):.1f})"
        print(f"{label:36s} {1e3 * statistics.median(values):9.1f} ms  {span}")
    print(f"steps: {found.speed:.2f} x as fast as the plain loop")
    for kind in (EDITED, UNEDITED):
        print(
            f"{kind}: one evaluation lasts {found.in_steps(kind):.1f} steps, the {found.evaluations} of a run of "
            f"{found.steps} steps {found.share(kind):.1%} of its time"
        )


if __name__ == "__main__":
    main()
