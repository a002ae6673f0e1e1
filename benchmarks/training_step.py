"""One training step of the anchor paper's model, beside a plain PyTorch loop on the same machine in the same run.

    python benchmarks/training_step.py [--rounds 5] [--steps 10] [--json]

Rounds of all variants alternate, so that a drift of the machine's speed meets them alike; medians are compared.
"""

import argparse
import json
import multiprocessing
import statistics
import time

import torch
from plain_loop import train_plainly

from anchorlab.findings.provenance import hardware
from anchorlab.models import DecoderSpec, fast_float32
from anchorlab.tasks import task
from anchorlab.training import AdamW, Experiment, FixedSample, Members, Recipe
from anchorlab.training.ensemble import initialise
from anchorlab.training.executions import MemberExecution
from anchorlab.training.feed import make_feed
from anchorlab.training.optimisers import StackedOptimiser

WARM_UP = 3
ACTIVE_WEIGHTS = 5.65e6
# forward and backward of every matrix product, counted after leaving out what the last layer need not compute
OPERATIONS = 12.1e9
# AdamW reads weight, gradient and both moments and writes weight and both moments, 4 bytes each
OPTIMISER_BYTES = 7 * 4 * ACTIVE_WEIGHTS


def experiment(precision: str, members: int) -> Experiment:
    recipe = Recipe.parse(
        {
            "data": FixedSample(size=1000),
            "optimiser": AdamW(learning_rate=2e-4),
            "batch": 50,
            "clip": 1.0,
            "precision": precision,
        }
    )
    return Experiment(task("anchor/identity"), DecoderSpec(), recipe, Members(seeds=tuple(range(members))))


class Member:
    """The parts of a training, so that steps alone are timed: no evaluation, no keeping of states."""

    def __init__(self, precision: str, members: int = 1) -> None:
        one = experiment(precision, members)
        device, dtype = torch.device("cpu"), torch.float32
        seeds = [one.members.stream("initialisation", index) for index in range(members)]
        ensemble = initialise(one.model, one.task.shape, seeds)
        optimiser = StackedOptimiser(one.recipe, one.members, {n: ensemble.weights[n] for n in ensemble.trainable})
        self.feed = make_feed(one.task, one.recipe, one.members, device, dtype)
        self.execution = MemberExecution(ensemble, optimiser, one.task.losses, precision == "bfloat16")
        self.members, self.done = members, 0
        self.take(WARM_UP)

    def take(self, steps: int) -> float:
        """Seconds per member-step."""
        began = time.perf_counter()
        with fast_float32():
            for _ in range(steps):
                self._one()
        return (time.perf_counter() - began) / steps / self.members

    def _one(self) -> None:
        self.execution.step(self.feed.at(self.done), 1.0, [True] * self.members, self.done)
        self.done += 1


def work(precision: str, members: int, steps: int, start: object, seconds: object) -> None:
    """One of two processes that share ten seeds."""
    torch.set_num_threads(1)
    member = Member(precision, members)
    start.wait()  # type: ignore[attr-defined]
    seconds.put(member.take(steps) * members)  # type: ignore[attr-defined]


def two_processes(precision: str, steps: int) -> float:
    """Seconds per member-step of ten seeds, five in each of two processes of one thread."""
    context = multiprocessing.get_context("spawn")
    start, seconds = context.Barrier(2), context.Queue()
    workers = [context.Process(target=work, args=(precision, 5, steps, start, seconds)) for _ in range(2)]
    for worker in workers:
        worker.start()
    slowest = max(seconds.get() for _ in workers)
    for worker in workers:
        worker.join()
    return slowest / 10


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    data = task("anchor/identity").sample("train", 1000, seed=0)
    targets = data.targets[:, 0]
    single = {precision: Member(precision) for precision in ("float32", "bfloat16")}
    times: dict[str, list[float]] = {}
    for _ in range(chosen.rounds):
        times.setdefault("plain loop, float32", []).append(train_plainly(data.inputs, targets, chosen.steps))
        for precision, member in single.items():
            times.setdefault(f"one member, {precision}", []).append(member.take(chosen.steps))
    del single
    for precision in ("float32", "bfloat16"):
        times[f"ten seeds in two processes, {precision}"] = [
            two_processes(precision, max(2, chosen.steps // 2)) for _ in range(max(1, chosen.rounds // 2))
        ]
    middle = {name: statistics.median(values) for name, values in times.items()}
    plain = middle["plain loop, float32"]
    rows = [
        {
            "what": name,
            "milliseconds": 1e3 * middle[name],
            "lowest": 1e3 * min(values),
            "highest": 1e3 * max(values),
            "times faster": plain / middle[name],
        }
        for name, values in times.items()
    ]
    if chosen.json:
        print(
            json.dumps(
                {
                    "hardware": hardware(),
                    "torch": torch.__version__,
                    "threads": torch.get_num_threads(),
                    "operations": OPERATIONS,
                    "optimiser_bytes": OPTIMISER_BYTES,
                    "rows": rows,
                },
                indent=2,
            )
        )
        return
    print(
        f"{hardware()}, torch {torch.__version__}, {torch.get_num_threads()} threads; per member-step, median (range)"
    )
    for row in rows:
        print(
            f"{row['what']:40s} {row['milliseconds']:7.1f} ms  ({row['lowest']:.1f} to {row['highest']:.1f})"
            f"  {row['times faster']:5.2f} x the plain loop"
        )
    print(
        f"bound: {OPERATIONS / 1e9:.1f} GFLOP of matrix products and {OPTIMISER_BYTES / 1e6:.0f} MB through the "
        "optimiser per step"
    )


if __name__ == "__main__":
    main()
