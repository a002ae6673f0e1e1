"""Steps and evaluations of trainings in the papers' settings, beside what `estimated_seconds` says of them.

    python benchmarks/costs.py [--seconds 3] [--out FILE]

On one thread, in processor time, the median of several. `docs/gallery/costs.md` rests on these estimates.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from anchorlab.findings.provenance import hardware
from anchorlab.models import denormals_as_zero, fast_float32
from anchorlab.studies import study
from anchorlab.training import Experiment, FixedSample, Members
from anchorlab.training.cost import estimated_seconds
from anchorlab.training.evaluation import ROWS
from anchorlab.training.trainer import Session

TRAININGS = {
    "anchor/structures": ("without FNN", "one layer", "residual + LN + projection + mask"),
    "anchor/identity": ("identity, two layers of one head",),
    "anchor/frequency": ("low frequency",),
    "anchor/learners": ("identity, LSTM, 200 sequences", "identity, FNN, 200 sequences"),
    "anchor/multi-anchor": ("multi-anchor",),
    "anchor/working-memory": ("working memory",),
    "anchor/composite": ("composite, 10 layers",),
    "retrieval/known-depth": ("1 layer, 1 step", "2 layers, 3 steps"),
    "retrieval/depth": ("4 layers, no curriculum", "8 layers, with curriculum"),
    "retrieval/emergence": ("twenty-four layers",),
    "retrieval/circuits": ("twelve layers",),
    "truncation/associative-memory": ("d = 12",),
    "truncation/feedforward-choices": ("noisy recall, linear and mlp",),
    "truncation/feedforward-noise": ("noisy recall",),
}


def median(act: Callable[[], object], seconds: float, least: int = 3) -> float:
    """The median processor time of an action, repeated for so many seconds."""
    times: list[float] = []
    while len(times) < least or sum(times) < seconds:
        began = time.process_time()
        act()
        times.append(time.process_time() - began)
    return statistics.median(times)


def measured(one: Experiment, seconds: float) -> tuple[float, float]:
    """The seconds of a step and of a whole evaluation of one member."""
    recipe, size = one.recipe, min(ROWS, one.recipe.evaluation.size)
    if recipe.data.kind == "sample":  # of two batches: drawing all of it is not measured
        recipe = recipe.replace(data=FixedSample(size=2 * recipe.batch), unit="steps")
    short = replace(one, members=Members(), recipe=recipe.replace(evaluation=recipe.evaluation.replace(size=size)))
    with fast_float32(), denormals_as_zero():
        session, done = Session(short, torch.device("cpu"), "member"), 0

        def step() -> None:
            nonlocal done
            session.take_step(done, 1.0)
            done += 1

        step()
        step()
        evaluation = median(lambda: session.evaluator.measure(session.ensemble, 0), seconds / 2, least=2)
        return median(step, seconds), evaluation * one.recipe.evaluation.size / size


def gigaflops() -> float:
    """Floating-point operations of a large float32 product, in billions per second."""
    left, right = torch.randn(1024, 1024), torch.randn(1024, 1024)
    with fast_float32():
        return 2 * 1024**3 / median(lambda: left @ right, 0.3) / 1e9


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    options.add_argument("--out", type=Path, help="a file of JSON to write")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    place = {"hardware": hardware(), "torch": torch.__version__, "gigaflops": gigaflops()}
    print(
        f"{place['hardware']}, torch {place['torch']}, one thread, {place['gigaflops']:.0f} GFLOP/s in large products"
    )
    rows = []
    for name, labels in TRAININGS.items():
        every = {one.label: one for one in study(name).experiments_of("paper")}
        for label in labels:
            one = replace(every[label], members=Members())
            step, evaluation = measured(one, chosen.seconds)
            evaluations = len(set(one.steps_at(one.recipe.evaluation)))
            hours, estimate = (one.steps * step + evaluations * evaluation) / 3600, estimated_seconds(one) / 3600
            rows.append(
                {
                    "study": name,
                    "training": label,
                    "step, ms": 1e3 * step,
                    "evaluation, ms": 1e3 * evaluation,
                    "hours a seed": hours,
                    "estimated": estimate,
                    "ratio": estimate / hours,
                }
            )
            print(
                f"{name}, {label}: step {1e3 * step:.1f} ms, evaluation {1e3 * evaluation:.0f} ms, "
                f"{hours:.2f} h a seed, estimated {estimate:.2f} h, {estimate / hours:.2f} times",
                flush=True,
            )
    ratios = sorted(row["ratio"] for row in rows)
    print(f"estimated: {ratios[0]:.2f} to {ratios[-1]:.2f} times the measured times")
    if chosen.out is not None:
        chosen.out.write_text(json.dumps({**place, "rows": rows}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
