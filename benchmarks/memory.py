"""Memory of a training cell, beside what it must hold: weights, optimiser state and activations.

    python benchmarks/memory.py [--members 1 4] [--json]

Activations are counted as the bytes that autograd keeps for the backward pass of one member, each storage once. The
measured side is the growth of the process's peak resident memory over a process that only imported everything and took
a step of a tiny model. Gradients and temporary values are not in the computed sum: they are part of the ratio.
"""

import argparse
import json
import subprocess
import sys

import torch
from torch import Tensor

from anchorlab.findings.provenance import hardware
from anchorlab.models import DecoderSpec, fast_float32
from anchorlab.models.model import predict
from anchorlab.tasks import task
from anchorlab.training import AdamW, Experiment, FixedSample, Members, Recipe
from anchorlab.training.ensemble import initialise
from anchorlab.training.executions.loss import mean_loss

PROBE = """
import resource, sys
sys.path.insert(0, "benchmarks")
from memory import cell, tiny
from anchorlab.training import fit
import torch
torch.set_num_threads(1)
fit(tiny())
members = int(sys.argv[1])
if members:
    fit(cell(members), execution="member")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def cell(members: int, steps: int = 3) -> Experiment:
    """The anchor paper's model and batch."""
    recipe = Recipe(
        data=FixedSample(size=1000), optimiser=AdamW(learning_rate=2e-4), batch=50, duration=steps, clip=1.0
    )
    return Experiment(task("anchor/identity"), DecoderSpec(), recipe, Members(seeds=tuple(range(members))))


def tiny() -> Experiment:
    """A step of something small, so that what torch sets up once is not counted."""
    recipe = Recipe(data=FixedSample(size=50), batch=50, duration=1)
    return Experiment(task("anchor/identity"), DecoderSpec(layers=1, heads=1, width=8), recipe, Members())


def activations(experiment: Experiment) -> int:
    """Bytes that autograd keeps for one member's backward pass, weights left out."""
    ensemble = initialise(experiment.model, experiment.task.shape, [0])
    weights = {name: value.requires_grad_() for name, value in ensemble.member_weights(0).items()}
    own = {value.untyped_storage().data_ptr() for value in weights.values()}
    kept: dict[int, int] = {}

    def keep(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return value

    batch = experiment.task.sample("train", experiment.recipe.batch, seed=0)
    with fast_float32(), torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        loss = mean_loss(
            predict(ensemble.template, batch.inputs, batch.positions, weights),
            batch.targets,
            None,
            experiment.task.losses,
        )
    assert loss.requires_grad
    return sum(kept.values())


def measured(members: int) -> int:
    """Peak resident bytes of a process that trains so many members (0: none)."""
    output = subprocess.run([sys.executable, "-c", PROBE, str(members)], check=True, capture_output=True, text=True)
    return int(output.stdout) * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--members", type=int, nargs="+", default=[1, 4])
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    experiment = cell(1)
    parameters = 4 * initialise(experiment.model, experiment.task.shape, [0]).parameter_count
    saved, base = activations(experiment), measured(0)
    rows = []
    for members in chosen.members:
        computed = members * 3 * parameters + saved
        grown = measured(members) - base
        rows.append(
            {"members": members, "computed_MB": computed / 1e6, "measured_MB": grown / 1e6, "ratio": grown / computed}
        )
    if chosen.json:
        print(
            json.dumps(
                {
                    "hardware": hardware(),
                    "parameters_MB": parameters / 1e6,
                    "activations_MB": saved / 1e6,
                    "rows": rows,
                },
                indent=2,
            )
        )
        return
    print(
        f"{hardware()}; one member: weights {parameters / 1e6:.0f} MB, optimiser {2 * parameters / 1e6:.0f} MB, "
        f"activations {saved / 1e6:.0f} MB"
    )
    for row in rows:
        print(
            f"{row['members']} members: computed {row['computed_MB']:.0f} MB, measured {row['measured_MB']:.0f} MB, "
            f"ratio {row['ratio']:.2f}"
        )


if __name__ == "__main__":
    main()
