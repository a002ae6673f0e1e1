"""Training steps of many members, one by one and mapped, on a CPU or a GPU.

    python benchmarks/mapped_members.py [--device cuda] [--size smoke|tiny|paper] [--seconds 1] [--most 120]
                                        [--out FILE]

Milliseconds for a step of one member. On a CPU they are of processor time on one thread; on a GPU of wall-clock time,
with the mapped step as a captured graph. `tiny` has the models of `docs/speed.md`; `paper` adds models in the papers'
own settings, which a CPU trains slowly. After `--most` seconds no other model is begun. `--out` writes JSON, too.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

from anchorlab.findings.provenance import hardware
from anchorlab.models import (
    AssociativeSpec,
    DecoderSpec,
    FNNSpec,
    ModelSpec,
    VectorSpec,
    denormals_as_zero,
    fast_float32,
)
from anchorlab.papers.retrieval import circuits
from anchorlab.papers.retrieval.emergence import emergence
from anchorlab.tasks import Task, task
from anchorlab.training import AdamW, Evaluation, Experiment, FixedSample, Members, Recipe, work_per_step
from anchorlab.training.trainer import ExecutionName, Session

WARM_UP = 4  # steps; a graph is captured in the first one
FEWEST = 3  # measured steps
DEVICES = ("cpu", "cuda")


def tiny(model: ModelSpec, batch: int, of: Task | None = None) -> Experiment:
    recipe = Recipe(
        data=FixedSample(size=batch), optimiser=AdamW(), batch=batch, clip=1.0, evaluation=Evaluation(size=3)
    )
    return Experiment(of or task("anchor/identity"), model, recipe, Members())


def decoder(layers: int, width: int, batch: int) -> Experiment:
    return tiny(DecoderSpec(layers=layers, heads=1, width=width, head_width=64, hidden=4 * width), batch)


def cases(size: str) -> dict[str, tuple[Experiment, tuple[int, ...]]]:
    """The experiments by name, with the numbers of members that are trained at once."""
    smallest = {
        "associative memory, width 12, batch 3": (
            tiny(AssociativeSpec(width=12), 3, task("associative/noisy", inputs=3, alpha=0.03)),
            (8, 64),
        ),
        "decoder, one layer of width 8, batch 10": (decoder(1, 8, 10), (8, 64)),
    }
    if size == "smoke":
        return {name: (one, (2,)) for name, (one, _) in smallest.items()}
    found = {
        **smallest,
        "fully connected, width 8, batch 10": (tiny(FNNSpec(layers=1, width=8, hidden=8), 10), (8, 64)),
        "decoder, one layer of width 16, batch 50": (decoder(1, 16, 50), (8, 64)),
        "decoder, two layers of width 32, batch 10": (decoder(2, 32, 10), (8, 64)),
        "decoder, two layers of width 16, batch 50": (decoder(2, 16, 50), (8, 64)),
        "decoder, two layers of width 32, batch 50": (decoder(2, 32, 50), (8, 64)),
        "retrieval, one layer, batch 10": (
            tiny(VectorSpec(layers=1, heads=1, width=64), 10, task("retrieval/minimal", steps=2)),
            (8, 64),
        ),
    }
    if size == "tiny":
        return found
    paper = {
        "emergence, the paper's setting": (emergence.PAPER, (1, 5)),
        "circuits, the paper's setting": (circuits.PAPER, (1, 3)),
        "anchor functions, the paper's decoder": (tiny(DecoderSpec(), 50), (1, 10)),
    }
    return {**found, **paper}


def seconds_per_step(one: Experiment, device: str, execution: ExecutionName, seconds: float) -> tuple[float, str]:
    """The seconds of a step of one member, and why the step could not be captured; `""` if it could."""
    clock: Callable[[], float] = time.process_time if device == "cpu" else time.perf_counter
    with fast_float32(), denormals_as_zero():
        session = Session(one, torch.device(device), execution)
        for step in range(WARM_UP):
            session.take_step(step, 1.0)
        wait(device)
        began, count = clock(), 0
        while count < FEWEST or clock() - began < seconds:
            session.take_step(WARM_UP + count, 1.0)
            count += 1
        wait(device)
        passed = clock() - began
    reason = getattr(session.execution, "fallback", None) if device == "cuda" else None
    return passed / count / len(one.members), reason or ""


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def measured(chosen: argparse.Namespace) -> Iterator[dict[str, str | int | float]]:
    """Yield a row for each model and number of members, until the time is over."""
    began = time.monotonic()
    for name, (whole, counts) in cases(chosen.size).items():
        if time.monotonic() - began > chosen.most:
            return
        # steps alone are measured: neither evaluations nor the drawing of a large sample
        few = FixedSample(size=4 * whole.recipe.batch)
        one = replace(whole, recipe=whole.recipe.replace(data=few, evaluation=Evaluation(size=3)))
        single, _ = seconds_per_step(replace(one, members=Members()), chosen.device, "member", chosen.seconds)
        for count in counts:
            some = replace(one, members=Members(seeds=count))
            mapped, reason = seconds_per_step(some, chosen.device, "mapped", chosen.seconds)
            yield {
                "model": name,
                "operations": work_per_step(one),
                "members": count,
                "one by one, ms": 1e3 * single,
                "mapped, ms": 1e3 * mapped,
                "times faster": single / mapped,
                "not captured": reason,
            }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--device", choices=DEVICES, default="cpu")
    options.add_argument("--size", choices=("smoke", "tiny", "paper"), default="tiny")
    options.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    options.add_argument("--most", type=float, default=600.0, help="seconds after which no other model is begun")
    options.add_argument("--out", type=Path, help="a file of JSON to write")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    place = {"hardware": hardware(chosen.device), "torch": torch.__version__}
    print(f"{place['hardware']}, torch {place['torch']}; a step of one member, in milliseconds")
    rows = []
    for row in measured(chosen):
        rows.append(row)
        print(
            f"{row['model']}: {row['operations']:.2g} operations, {row['members']} members, one by one "
            f"{row['one by one, ms']:.3f}, mapped {row['mapped, ms']:.3f}, {row['times faster']:.2f} times faster"
            + (f"; not captured: {row['not captured']}" if row["not captured"] else "")
        )
        if chosen.out is not None:  # also where a limit ends the rest
            chosen.out.write_text(json.dumps({**place, "rows": rows}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
