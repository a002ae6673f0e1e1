"""Sweeps of tiny models: runs that differ only in learning rate, trained as one ensemble, one by one, and plainly.

    python benchmarks/tiny_runs.py [--runs 8 32] [--seeds 2] [--steps 2000] [--json]

Counts processor time of this process for the training, its files included, on one thread. The plain loop is PyTorch's
own, with `nn.Embedding`, `nn.Linear`, `torch.optim` and batches by index, one model after the other.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from plain_loop import PlainTransformer
from torch import Tensor, nn

from anchorlab.engine import run
from anchorlab.findings.provenance import hardware
from anchorlab.models import AssociativeSpec, DecoderSpec
from anchorlab.tasks import task
from anchorlab.training import SGD, AdamW, Evaluation, Experiment, FixedSample, Members, Recipe

Sweep = tuple[str, list[Experiment], Callable[[Experiment, int], None]]


def sweeps(runs: int, seeds: int, steps: int) -> list[Sweep]:
    """The associative memory of the quick profile, and a decoder of one layer: by name, with their plain loops."""
    members = Members(seeds=seeds)
    rates = [0.1 * 1.2**index for index in range(runs)]
    memory = [
        Experiment(
            task("associative/noisy", inputs=3, alpha=0.03),
            AssociativeSpec(width=12),
            Recipe(
                data=FixedSample(size=3),
                optimiser=SGD(learning_rate=rate),
                batch=3,
                duration=steps,
                evaluation=Evaluation(size=3),
            ),
            members,
        )
        for rate in rates
    ]
    decoder = [
        Experiment(
            task("anchor/identity"),
            DecoderSpec(layers=1, heads=1, width=8, head_width=64, hidden=32),
            Recipe(
                data=FixedSample(size=500),
                optimiser=AdamW(learning_rate=0.01 * rate),
                batch=10,
                duration=steps,
                evaluation=Evaluation(size=100),
            ),
            members,
        )
        for rate in rates
    ]
    return [("associative memory, width 12", memory, plain_memory), ("decoder, one layer of width 8", decoder, plain)]


def plain_memory(one: Experiment, seed: int) -> None:
    """A linear map between fixed embeddings, on every input at each step."""
    torch.manual_seed(seed)
    outputs = one.task.shape.output_size
    embed, unembed = torch.randn(3, 12), torch.randn(12, outputs)
    map_ = nn.Linear(12, 12, bias=False)
    optimiser = torch.optim.SGD(map_.parameters(), lr=one.recipe.optimiser.learning_rate)
    sample = one.task.sample("train", 3, seed)
    loop(one, optimiser, lambda inputs: map_(embed[inputs[:, -1]]) @ unembed, sample.inputs, sample.targets[:, 0], seed)


def plain(one: Experiment, seed: int) -> None:
    """The decoder of `plain_loop.py` at this size."""
    torch.manual_seed(seed)
    model = PlainTransformer(one.task.shape.input_size, one.task.shape.length, 8, 1, 1, 8, 32)
    optimiser = torch.optim.AdamW(model.parameters(), lr=one.recipe.optimiser.learning_rate)
    sample = one.task.sample("train", 500, seed)
    loop(one, optimiser, lambda inputs: model(inputs)[:, -1], sample.inputs, sample.targets[:, 0], seed)


def loop(
    one: Experiment,
    optimiser: torch.optim.Optimizer,
    predict: Callable[[Tensor], Tensor],
    inputs: Tensor,
    targets: Tensor,
    seed: int,
) -> None:
    """Train with a new order of the sample every epoch."""
    generator = torch.Generator().manual_seed(seed)
    done = 0
    while done < one.recipe.duration:
        for rows in torch.randperm(len(inputs), generator=generator).split(one.recipe.batch):
            optimiser.zero_grad()
            wanted = targets[rows] if targets.ndim == 1 else targets[rows].float()
            nn.functional.cross_entropy(predict(inputs[rows]), wanted).backward()
            optimiser.step()
            done += 1


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def trained(experiments: list[Experiment], together: bool) -> float:
    with tempfile.TemporaryDirectory() as store:
        if together:
            return seconds(lambda: run(experiments, store, workers=1))
        return seconds(lambda: [run([one], store, workers=1) for one in experiments])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, nargs="+", default=[8, 32])
    options.add_argument("--seeds", type=int, default=2)
    options.add_argument("--steps", type=int, default=2000)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, experiments, plainly in sweeps(max(chosen.runs), chosen.seeds, chosen.steps):
        for together in (True, False):  # a warm-up
            trained([replace(one, recipe=one.recipe.replace(duration=5)) for one in experiments[:8]], together)
        for count in chosen.runs:
            some = experiments[:count]
            row = {"model": name, "runs": count, "seeds": chosen.seeds, "steps": chosen.steps}
            row["together, seconds"] = trained(some, together=True)
            row["one by one, seconds"] = trained(some, together=False)
            models = [partial(plainly, one, seed) for one in some for seed in one.members.seeds]
            row["plain loop, seconds"] = seconds(lambda models=models: [train() for train in models])
            rows.append(row)
    if chosen.json:
        print(json.dumps({"hardware": hardware(), "torch": torch.__version__, "threads": 1, "rows": rows}, indent=2))
        return
    print(f"{hardware()}, torch {torch.__version__}, one thread, {chosen.seeds} seeds a run, {chosen.steps} steps")
    for row in rows:
        joint, apart, loops = (row[f"{how}, seconds"] for how in ("together", "one by one", "plain loop"))
        print(
            f"{row['model']}, {row['runs']:3d} runs: together {joint:6.1f} s; one by one {apart:6.1f} s, "
            f"{apart / joint:.1f} x; plain loop {loops:6.1f} s, {loops / joint:.1f} x"
        )


if __name__ == "__main__":
    main()
