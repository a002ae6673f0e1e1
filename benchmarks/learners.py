"""Training steps of the learners: three at a quick size, and the paper's LSTM beside a plain loop with torch.nn.LSTM.

    python benchmarks/learners.py [--rounds 5] [--steps 10] [--json]

Rounds of all variants alternate, so that a drift of the machine's speed meets them alike; medians are compared.
"""

import argparse
import json
import statistics
import time

import torch
from plain_loop import train_plainly
from torch import Tensor, nn

from anchorlab.findings.provenance import hardware
from anchorlab.models import DecoderSpec, FNNSpec, LSTMSpec, ModelSpec, fast_float32
from anchorlab.tasks import task
from anchorlab.training import AdamW, Experiment, FixedSample, Members, Recipe, initialise
from anchorlab.training.executions import MemberExecution
from anchorlab.training.feed import make_feed
from anchorlab.training.optimisers import StackedOptimiser

WARM_UP = 3
TASK = task("anchor/identity")
RECIPE = Recipe(data=FixedSample(size=1000), optimiser=AdamW(learning_rate=2e-4), batch=50, clip=1.0)
PLAIN, PAPER = "plain loop with torch.nn.LSTM, paper size", "lstm, paper size"
LEARNERS: dict[str, ModelSpec] = {
    "decoder, quick size": DecoderSpec(layers=2, heads=1, width=64),
    "lstm, quick size": LSTMSpec(layers=2, width=64),
    "fnn, quick size": FNNSpec(layers=2, width=64, hidden=576),
    PAPER: LSTMSpec(),
}


class PlainLSTM(nn.Module):
    """The paper's LSTM of PyTorch's own parts."""

    def __init__(self, vocabulary: int = 201, width: int = 400, layers: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.recurrent = nn.LSTM(width, width, layers, batch_first=True)
        self.projection = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.projection(self.recurrent(self.tokens(tokens))[0])


class Learner:
    """The parts of a training, so that steps alone are timed: no evaluation, no keeping of states."""

    def __init__(self, model: ModelSpec) -> None:
        one = Experiment(TASK, model, RECIPE, Members())
        ensemble = initialise(one.model, TASK.shape, [0])
        trainable = {name: ensemble.weights[name] for name in ensemble.trainable}
        optimiser = StackedOptimiser(RECIPE, one.members, trainable)
        self.parameters = ensemble.parameter_count
        self.feed = make_feed(TASK, RECIPE, one.members, torch.device("cpu"), torch.float32)
        self.execution = MemberExecution(ensemble, optimiser, TASK.losses, mixed=False)
        self.done = 0
        self.take(WARM_UP)

    def take(self, steps: int) -> float:
        """Seconds per step."""
        began = time.perf_counter()
        with fast_float32():
            for step in range(self.done, self.done + steps):
                self.execution.step(self.feed.at(step), 1.0, [True], step)
        self.done += steps
        return (time.perf_counter() - began) / steps


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    data = TASK.sample("train", 1000, seed=0)
    learners = {name: Learner(model) for name, model in LEARNERS.items()}
    sizes = {name: learner.parameters for name, learner in learners.items()}
    sizes[PLAIN] = sum(weight.numel() for weight in PlainLSTM().parameters())
    times: dict[str, list[float]] = {name: [] for name in (*LEARNERS, PLAIN)}
    for _ in range(chosen.rounds):
        for name, learner in learners.items():
            times[name].append(learner.take(chosen.steps))
        times[PLAIN].append(train_plainly(data.inputs, data.targets[:, 0], chosen.steps, make=PlainLSTM))
    rows = [
        {
            "what": name,
            "parameters": sizes[name],
            "steps per second": 1 / statistics.median(values),
            "lowest": 1 / max(values),
            "highest": 1 / min(values),
        }
        for name, values in times.items()
    ]
    ratio = statistics.median(times[PLAIN]) / statistics.median(times[PAPER])
    threads = torch.get_num_threads()
    if chosen.json:
        about = {"hardware": hardware(), "torch": torch.__version__, "threads": threads}
        print(json.dumps({**about, "rows": rows, "lstm, times the plain loop": ratio}, indent=2))
        return
    print(f"{hardware()}, torch {torch.__version__}, {threads} threads; steps a second, median (range)")
    for row in rows:
        span = f"({row['lowest']:.1f} to {row['highest']:.1f})"
        print(f"{row['what']:44s} {row['parameters']:>9,d} parameters {row['steps per second']:8.1f}  {span}")
    print(f"the paper's LSTM: {ratio:.2f} x the plain loop")


if __name__ == "__main__":
    main()
