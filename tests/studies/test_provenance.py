import os

import polars as pl
import pytest
import torch

from anchorlab.models import DecoderSpec
from anchorlab.runs import Run
from anchorlab.studies.provenance import commit, hardware, seeds_text
from anchorlab.studies.tables import member_values, spread
from anchorlab.tasks import task
from anchorlab.training import Experiment, Members, Recipe, TrainedRun


@pytest.mark.parametrize(
    ("seeds", "words"), [([0], "0"), ([0, 1], "0..1"), ([3, 4, 5], "3..5"), ([0, 2, 3], "0, 2, 3"), ([], "")]
)
def test_seeds_in_words(seeds, words):
    assert seeds_text(seeds) == words


def test_hardware_names_the_cores():
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert hardware().startswith(f"{cores} CPU core")


class Kept(Run):
    """A run made under these commits."""

    def __init__(self, *commits):
        self.commits = commits

    @property
    def environments(self):
        return [{"commit": one} for one in self.commits]


def test_commits_of_all_runs():
    assert commit([Kept("b"), Kept("a", "b")]) == "a, b"
    assert commit([Kept(None)]) == "unknown"


@pytest.mark.parametrize(("values", "words"), [([0.5], "one value"), ([0.25, 0.5, 0.125], "0.125 to 0.5 over 3 seeds")])
def test_spread_in_words(values, words):
    assert spread(torch.tensor(values)) == words


class Measured(TrainedRun):
    """A run whose second member stopped early."""

    def __init__(self):
        rows = [(0, 0, 0.1), (1, 0, 0.2), (1, 5, 0.6), (0, 10, 0.9)]
        self.run = Kept()
        self.metrics = pl.DataFrame(
            [(member, step, "test", "none", "accuracy", value) for member, step, value in rows],
            schema=["member", "step", "split", "edit", "metric", "value"], orient="row",
        )  # fmt: skip
        self.experiment = Experiment(
            task("anchor/identity"), DecoderSpec(layers=1, width=4), Recipe(), Members(seeds=(0, 1))
        )

    def __repr__(self):
        return "a run"


def test_member_values():
    run = Measured()
    assert member_values(run, "test", "accuracy").tolist() == pytest.approx([0.9, 0.6])
    assert member_values(run, "test", "accuracy", step=0).tolist() == pytest.approx([0.1, 0.2])
    with pytest.raises(ValueError, match="has no accuracy on test under none for every member"):
        member_values(run, "test", "accuracy", step=5)
