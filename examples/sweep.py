"""Heads, layers, width, learning rate, ...: how does test accuracy depend on any one or two of them?

`python examples/sweep.py heads` runs one of the sweeps below.
"""

import sys

import anchorlab as al
from anchorlab.studies import sweep_study

SWEEPS = {
    "heads": {"model.heads": (1, 2, 4)},
    "layers": {"model.layers": (1, 2, 3, 4)},
    "width": {"model.width": (16, 32, 64, 128)},
    "learning-rate": {"recipe.optimiser.learning_rate": (1e-3, 3e-3, 6e-3, 1e-2)},
    "batch": {"recipe.batch": (10, 25, 50, 100)},
    "weight-decay": {"recipe.optimiser.weight_decay": (0.0, 0.1, 0.3, 1.0)},
    "initialisation": {"members.initialisation_scale": (0.3, 1.0, 3.0)},
    "layers-by-heads": {"model.layers": (1, 2, 4), "model.heads": (1, 2, 4)},
}

if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else "layers"
    study = sweep_study("anchor/identity", SWEEPS[name], seeds=range(3), name=f"sweep/{name}")
    print("report:", al.write_report(al.run_study(study), f"sweep_{name}.html"))
