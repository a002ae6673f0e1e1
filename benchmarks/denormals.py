"""A training step of a model whose attention is saturated, with numbers below 1.2e-38 computed and taken for zero.

    python benchmarks/denormals.py [--rounds 5] [--steps 20] [--json]

The model is the simplified one of the anchor-function paper (section 5.4): attention alone, all sizes 201. Its query
and key maps are drawn ten times as large as usual, so that most attention is as near to 0 as at the end of a long
training. Rounds alternate; medians are compared, both on one thread.
"""

import argparse
import json
import statistics
import time
from contextlib import nullcontext

import torch
from torch.nn import functional

from anchorlab.findings.provenance import hardware
from anchorlab.models import DecoderSpec, denormals_as_zero
from anchorlab.tasks import task

SATURATED = 10.0


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    identity = task("anchor/identity")
    batch = identity.sample("train", 50, seed=0)
    switches = dict.fromkeys(("residual", "output_linear", "layer_norm", "feed_forward", "projection", "mask"), False)
    spec = DecoderSpec(layers=2, heads=1, width=201, head_width=201, **switches)
    model = spec.build(identity.shape)
    model.initialise(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("W_Q", "W_K")):
                weight *= SATURATED

    def step() -> None:
        outputs = model(batch.inputs, batch.positions)
        functional.cross_entropy(outputs.flatten(0, 1), batch.targets.flatten()).backward()
        model.zero_grad()

    times: dict[str, list[float]] = {}
    for _ in range(chosen.rounds):
        for name, manner in (("computed", nullcontext), ("taken for zero", denormals_as_zero)):
            with manner():
                began = time.perf_counter()
                for _ in range(chosen.steps):
                    step()
                times.setdefault(name, []).append((time.perf_counter() - began) / chosen.steps)
    medians = {name: statistics.median(values) * 1e3 for name, values in times.items()}
    ratio = medians["computed"] / medians["taken for zero"]
    if chosen.json:
        print(json.dumps({"hardware": hardware("cpu"), "milliseconds": medians, "ratio": ratio}))
    else:
        print(hardware("cpu"))
        for name, value in medians.items():
            print(f"{name:15} {value:7.2f} ms a step")
        print(f"ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
