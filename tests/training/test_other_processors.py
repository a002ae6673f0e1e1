"""Between processors results agree within rounding: libraries held to older instructions stand in for another one."""

import os
import subprocess
import sys

import pytest
from safetensors.torch import load_file, save_file

from anchorlab.training import AdamW, fit
from tests.small_experiments import experiment

OLDER = {"ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ONEDNN_MAX_CPU_ISA": "SSE41"}
CHILD = """
import sys, torch
from tests.training.test_other_processors import train
train(*sys.argv[1:])
print(torch.backends.cpu.get_cpu_capability())
"""


def train(precision, path, initial="", rate=1e-3):
    """Train a decoder for 30 steps, from its own or from given initial weights, and write its weights to a file."""
    one = experiment("decoder", precision=precision, duration=30, optimiser=AdamW(learning_rate=rate))
    start = one.initial_ensemble().with_weights(load_file(initial)) if initial else None
    write(fit(one, start=start).ensemble, path)


def write(ensemble, path):
    save_file({name: value.contiguous() for name, value in ensemble.weights.items()}, path)


def furthest(left, right):
    """The largest difference of two weights."""
    theirs = load_file(right)
    return max(float((value - theirs[name]).abs().max()) for name, value in load_file(left).items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "same_start", "tolerance"),
    [("float64", True, 1e-12), ("float64", False, 2e-5), ("float32", False, 2e-5)],
)
def test_results_agree_within_rounding(precision, same_start, tolerance, tmp_path):
    """From equal initial weights, in float64, to a few thousand roundings of 1e-16.

    Initial weights are drawn in float32 by code of the processor's own, also for trainings in float64: they differ by
    some 1e-7, and Adam, which divides a gradient by its own size, makes that up to a hundred times as much in 30 steps.
    """
    here, there, other, initial = (str(tmp_path / name) for name in ("here", "there", "other", "initial"))
    if same_start:
        write(experiment("decoder", precision=precision).initial_ensemble(), initial)
    else:
        initial = ""
    train(precision, here, initial)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, precision, there, initial],
        env={**os.environ, **OLDER},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["DEFAULT"]
    assert furthest(here, there) < tolerance
    train(precision, other, initial, rate=1.1e-3)
    assert furthest(here, other) > 5 * tolerance
