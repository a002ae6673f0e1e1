"""One training step of the anchor paper's model, beside plain PyTorch loops on the same machine in the same run.

    python benchmarks/training_step.py [--rounds 5] [--steps 10] [--json]

Each precision has a plain loop of its own, and a bound: the step's matrix products at the speed of a large product, and
the optimiser's bytes at the speed of a large copy. Rounds of all variants and of both speeds alternate, so that a drift
of the machine's speed meets them alike; medians are compared.
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

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
WARM_UP = 3
LARGE = 2048  # rows and columns of the product whose speed is taken
COPIED = 2**26  # numbers of four bytes
ACTIVE_WEIGHTS = 5.65e6
# forward and backward of every matrix product, counted after leaving out what the last layer need not compute
OPERATIONS = 12.1e9
# AdamW reads weight, gradient and both moments and writes weight and both moments, 4 bytes each
OPTIMISER_BYTES = 7 * 4 * ACTIVE_WEIGHTS
PLAIN = "plain loop"


def product_speed(dtype: torch.dtype) -> float:
    """Operations per second of the best of three large products, on all threads, by the library that the steps use."""
    left, right = torch.randn(2, LARGE, LARGE).to(dtype)
    seconds = []
    with fast_float32():
        for _ in range(4):  # the first one prepares
            began = time.perf_counter()
            left @ right
            seconds.append(time.perf_counter() - began)
    return 2 * LARGE**3 / min(seconds[1:])


def copy_speed() -> float:
    """Bytes per second, read and written, of the best of three large copies."""
    source, copy = torch.ones(COPIED), torch.zeros(COPIED)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        copy.copy_(source)
        seconds.append(time.perf_counter() - began)
    return 2 * 4 * COPIED / min(seconds)


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
    single = {precision: Member(precision) for precision in PRECISIONS}
    times: dict[tuple[str, str], list[float]] = {
        (name, precision): []
        for precision in PRECISIONS
        for name in (PLAIN, "one member", "ten seeds in two processes")
    }
    products: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    copies: list[float] = []
    for _ in range(chosen.rounds):
        copies.append(copy_speed())
        for precision, member in single.items():
            products[precision].append(product_speed(PRECISIONS[precision]))
            plain = train_plainly(data.inputs, targets, chosen.steps, mixed=precision == "bfloat16")
            times[PLAIN, precision].append(plain)
            times["one member", precision].append(member.take(chosen.steps))
    del single
    for _ in range(max(1, chosen.rounds // 2)):
        for precision in PRECISIONS:
            seconds = two_processes(precision, max(2, chosen.steps // 2))
            times["ten seeds in two processes", precision].append(seconds)
    copied = statistics.median(copies)
    speeds = {precision: statistics.median(values) for precision, values in products.items()}
    bounds = {precision: OPERATIONS / speed + OPTIMISER_BYTES / copied for precision, speed in speeds.items()}
    middle = {what: statistics.median(values) for what, values in times.items()}
    rows = [
        {
            "what": f"{name}, {precision}",
            "milliseconds": 1e3 * middle[name, precision],
            "lowest": 1e3 * min(values),
            "highest": 1e3 * max(values),
            "times faster": middle[PLAIN, precision] / middle[name, precision],
            "times the bound": middle[name, precision] / bounds[precision],
        }
        for (name, precision), values in times.items()
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
                    "operations_per_second": speeds,
                    "bytes_per_second": copied,
                    "bound_milliseconds": {precision: 1e3 * bound for precision, bound in bounds.items()},
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
            f"  {row['times faster']:5.2f} x as fast as its plain loop, {row['times the bound']:.2f} x the bound"
        )
    for precision, bound in bounds.items():
        print(
            f"bound, {precision}: {1e3 * bound:.1f} ms: {OPERATIONS / 1e9:.1f} GFLOP of matrix products at "
            f"{speeds[precision] / 1e9:.0f} GFLOP/s, and {OPTIMISER_BYTES / 1e6:.0f} MB through the optimiser at "
            f"{copied / 1e9:.1f} GB/s"
        )


if __name__ == "__main__":
    main()
