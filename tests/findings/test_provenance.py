import os

import polars as pl
import pytest
import torch

from anchorlab.findings.findings import Claim, Provenance
from anchorlab.findings.provenance import hardware, seeds_text, versions
from anchorlab.models import DecoderSpec
from anchorlab.runs import Run
from anchorlab.studies.kit import along, judge_means, member_values, spread
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
    assert versions([Kept("b"), Kept("a", "b")], "commit") == "a, b"
    assert versions([Kept(None)], "commit") == "unknown"


@pytest.mark.parametrize(("values", "words"), [([0.5], "one value"), ([0.25, 0.5, 0.125], "0.125 to 0.5 over 3 seeds")])
def test_spread_in_words(values, words):
    assert spread(torch.tensor(values)) == words


class Measured(TrainedRun):
    """A run whose second member stopped early."""

    def __init__(self):
        rows = [(0, 0, 0.1), (1, 0, 0.2), (1, 5, 0.6), (0, 10, 0.9)]
        more = [("7", 0, 0.3), ("7", 1, 0.3)]  # a group of the sequences, which is not asked for
        self.run = Kept()
        self.metrics = pl.DataFrame(
            [(member, step, "test", "all", "none", "accuracy", value) for member, step, value in rows]
            + [(member, 20, "test", group, "none", "accuracy", value) for group, member, value in more],
            schema=["member", "step", "split", "group", "edit", "metric", "value"], orient="row",
        )  # fmt: skip
        self.experiment = Experiment(
            task("anchor/identity"), DecoderSpec(layers=1, width=4), Recipe(), Members(seeds=(0, 1))
        )

    def __repr__(self):
        return "a run"


def test_member_values():
    run = Measured()
    assert member_values(run, "test", "accuracy").tolist() == pytest.approx([0.9, 0.6])
    with pytest.raises(ValueError, match="has no loss on test under none in group all for every member"):
        member_values(run, "test", "loss")
    with pytest.raises(ValueError, match="in group 7 for every member"):
        member_values(Measured(), "train", "accuracy", group="7")
    assert member_values(run, "test", "accuracy", group="7").tolist() == pytest.approx([0.3, 0.3])


def test_along():
    steps, values = along(Measured(), "test", "accuracy")
    assert steps == [0, 5, 10]
    assert values[:, 0].tolist() == pytest.approx([0.1, 0.2])
    assert values[1, 1] == pytest.approx(0.6)
    assert values[0, 1].isnan()


def test_claims_are_judged_by_means():
    claim = Claim("a/b/c", "it is", "here", "1", "so", (0.5, None))
    (result,) = judge_means([claim], {"c": torch.tensor([0.25, 1.0])}, "quick")
    assert (result.value, result.verdict, result.spread) == (0.625, "reproduced", "0.25 to 1 over 2 seeds")
    assert judge_means([claim], {"c": None}, "quick")[0].verdict == "not measured"


def test_a_short_commit_tells_of_changes():
    source = Provenance("quick", "0", "1 CPU core", f"{'a' * 40}, {'b' * 40}-dirty, unknown", "2.13.0", 1.0)
    assert source.short_commit == f"{'a' * 12}, {'b' * 12}-dirty, unknown"
    assert source.line.endswith(f"commit {source.short_commit}")
