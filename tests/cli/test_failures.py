"""Pieces that fail, disks that are full, chunks that are damaged: what a command says of them."""

import pytest

from anchorlab.engine import run
from anchorlab.errors import IncompleteError, StoreError
from anchorlab.runs import Store
from anchorlab.training import Evaluation, Times
from tests.small_disk import NoDiskError, small_disk
from tests.small_experiments import BREAKING, experiment, worst


def test_the_pieces_that_failed_are_listed_with_exit_code_1(anchorlab, small, monkeypatch):
    def failing(experiments, store, *rest, **named):
        return run([BREAKING, *experiments], store, workers=1)

    monkeypatch.setattr("anchorlab.engine.run", failing)
    said = anchorlab("train", "anchor/identity", *small)
    assert (said.code, said.out) == (1, "")
    assert said.err.splitlines() == [
        "anchorlab: breaking, seeds 0, 1, 2 failed: ZeroDivisionError: it broke",
        "anchorlab: everything else is finished; run the same command again to try these once more",
    ]


@pytest.fixture
def disk(tmp_path):
    """A function that gives a file system of so many kilobytes; called again, it changes the size."""
    with small_disk(tmp_path / "disk") as sized:
        try:
            sized(20)
        except NoDiskError as error:
            pytest.skip(str(error))
        yield sized


LARGE = experiment(checkpoints=Times(every=10), evaluation=Evaluation(every=10, size=8))  # four checkpoints of 254 kB


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [[[0, 1, 2]], [[0], [1, 2]]])
def test_a_full_disk_is_named_and_the_run_goes_on_where_there_is_space_again(tmp_path, disk, chunks):
    """It ends on a disk that holds its checkpoints once, and one of them twice."""
    expected = run([LARGE], Store(tmp_path / "whole"), workers=1)[0]
    store = Store(disk(20) / "runs")
    with store.open(LARGE.cell) as directory:
        directory.plan({"chunks": chunks, "threads": 1, "execution": "auto"})
    for size in (40, 300, 600, 900):
        disk(size)
        error = (StoreError, IncompleteError)  # one piece has failed, or more than one
        with pytest.raises(error, match=r"cannot be written: No space left on device$") as caught:
            run([LARGE], store, workers=1)
        assert "{" not in str(caught.value) and "\n" not in str(caught.value)
    disk(1450)
    found = run([LARGE], store, workers=1)[0]
    assert found.metrics.drop("value").equals(expected.metrics.drop("value"))
    for step in expected.checkpoints:
        assert worst(found.ensemble(step).weights, expected.ensemble(step).weights) < 1e-12
    assert found.run.problems() == []
