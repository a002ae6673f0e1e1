import os

import pytest

from anchorlab.findings import Provenance
from anchorlab.findings.provenance import hardware, seeds_text, versions
from anchorlab.runs import Run


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ([0], "0"),
        ([0, 1], "0..1"),
        ([3, 4, 5], "3..5"),
        ([0, 2, 3], "0, 2, 3"),
        ([0, 1, 2, 7, 8, 9], "0..2, 7..9"),
        ([], ""),
    ],
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


def test_an_installed_package_names_its_version(monkeypatch):
    monkeypatch.setattr(Kept, "environments", [{"anchorlab": "0.2.0", "commit": one} for one in (None, "a" * 40)])
    assert versions([Kept()], "commit") == f"{'a' * 40}, version 0.2.0"
    made = Provenance("quick", "0", "1 CPU core", "version 0.2.0", "2.13.0", 1.0)
    assert made.line == "profile quick · seeds 0 · 1 CPU core · version 0.2.0"
    assert Provenance("own", "0", "1 CPU core", f"{'a' * 40}, version 0.2.0", "2.13.0", 1.0).line.endswith(
        f"commit {'a' * 12}, version 0.2.0"
    )


def test_no_seeds_in_words():
    made = Provenance("quick", "none", "1 CPU core", "a" * 40, "2.13.0", 1.0)
    assert made.line == f"profile quick · no seeds · 1 CPU core · commit {'a' * 12}"


def test_a_short_commit_shows_changes():
    source = Provenance("quick", "0", "1 CPU core", f"{'a' * 40}, {'b' * 40}-dirty, unknown", "2.13.0", 1.0)
    assert source.short_commit == f"{'a' * 12}, {'b' * 12}-dirty, unknown"
    assert source.line.endswith(f"commit {source.short_commit}")
