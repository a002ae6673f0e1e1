"""Pieces of runs whose chunks other processes change meanwhile, and how far they have come, counted by hand."""

from dataclasses import replace

import pytest

from anchorlab.engine import scheduler
from anchorlab.engine.job import Job, Piece
from anchorlab.engine.planning import Plan, Plans
from anchorlab.engine.scheduler import Pieces, Tally
from anchorlab.runs import Store
from anchorlab.training import Members, Progress
from tests.small_experiments import experiment

LONG, SHORT = experiment(duration=30), experiment(duration=20, members=Members(seeds=(5, 6)))


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """A tally of two experiments whose members cost 7 and 2 a step, all that it reports, and their jobs."""
    monkeypatch.setattr(scheduler, "work_per_step", lambda one: 7 if one.steps == 30 else 2)
    said = []
    one = Tally({each.cell.address: each for each in (LONG, SHORT)}, lambda status: said.append(replace(status)))
    plan = Plan([[0], [1, 2]], 1, "auto")
    first, second = (Job((Piece.of(Store(tmp_path), LONG, plan, index, "cpu", 1.0),)) for index in range(2))
    other = Piece.of(Store(tmp_path), SHORT, Plan([[0, 1]], 1, "mapped"), 0, "cpu", 1.0)
    return one, said, first, second, Job((other,))


def test_work_is_that_of_the_steps_of_all_members(counted):
    one, said, first, second, other = counted
    assert (one.status.total, one.status.cells) == (7 * 3 * 30 + 2 * 2 * 20, 2)
    for job, step, done, before in [
        (first, 4, 7 * 4, 7 * 4),  # where it begins was done by an earlier process
        (second, 0, 28, 28),
        (other, 5, 28 + 2 * 2 * 5, 28 + 20),
        (second, 10, 48 + 7 * 2 * 10, 48),
        (first, 9, 188 + 7 * 5, 48),
        (second, 0, 223, 48),  # it starts over: what was shown as done stays
        (second, 12, 223 + 7 * 2 * 2, 48),
    ]:
        one.update(job, Progress(step, job.first.experiment.steps))
        assert (said[-1].done, said[-1].before, said[-1].label) == (done, before, job.first.experiment.cell.label)


def test_a_joint_job_counts_for_each_of_its_parts(counted):
    one, said, first, _, other = counted
    one.count(first, 2)
    one.count(Job((*first.pieces, *other.pieces)), 3)
    assert (said[-1].done, said[-1].before) == (7 * 3 + 2 * 2 * 3, 7 * 2 + 2 * 2 * 3)


def test_a_note_is_told_once_and_metrics_stay_until_there_are_newer_ones(counted):
    one, said, first, *_ = counted
    one.update(first, Progress(3, 30, {"test loss": 2.0}))
    one.update(first, Progress(0, 30, note="starts over"))
    one.update(first, Progress(1, 30))
    assert [(status.note, status.done, status.metrics) for status in said] == [
        ("", 21, {"test loss": 2.0}),
        ("starts over", 21, {"test loss": 2.0}),
        ("", 21, {"test loss": 2.0}),
    ]


@pytest.mark.parametrize("last", [0, 1])
def test_a_run_with_a_failed_chunk_is_not_merged_whichever_chunk_ends_last(tmp_path, monkeypatch, last):
    one = experiment(members=Members(seeds=(0, 1)))
    plans = Plans({one.cell.address: Plan([[0], [1]], 1, "auto")}, [[one.cell.address]])
    merged = []
    monkeypatch.setattr(scheduler, "merge", lambda directory, experiment, plan: merged.append(experiment))

    class Failing:
        def beginning(self, store):
            return ""

        def train(self, jobs, hear, done):
            ended = list(jobs)
            assert len(ended) == 2
            for index, job in enumerate(ended):
                done(job, None if index == last else ValueError("lost"))

    with pytest.raises(ValueError, match=r"^lost$"):
        Pieces(Store(tmp_path), {one.cell.address: one}, plans, "cpu", 20.0, None).train(Failing())
    assert merged == []
