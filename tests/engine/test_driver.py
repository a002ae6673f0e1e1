"""How far the chunks of runs have come, counted by hand, and runs of which a chunk fails."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from anchorlab.engine import driver
from anchorlab.engine.driver import Driver, Tally
from anchorlab.engine.plan import Plan, Plans
from anchorlab.runs import Run, Store
from anchorlab.training import Members, Progress
from tests.small_experiments import experiment

LONG, SHORT = experiment(duration=30), experiment(duration=20, members=Members(seeds=(5, 6)))
FIRST = {(LONG.cell.address, 0): LONG.take(range(1))}
SECOND = {(LONG.cell.address, 1): LONG.take(range(1, 3))}
OTHER = {(SHORT.cell.address, 0): SHORT}


@pytest.fixture
def counted(monkeypatch):
    """A tally of two experiments whose members cost 7 and 2 a step, and all that it reports."""
    monkeypatch.setattr(driver, "work_per_step", lambda one: 7 if one.steps == 30 else 2)
    said = []
    return Tally({each.cell.address: each for each in (LONG, SHORT)}, said.append), said


def test_work_is_that_of_the_steps_of_all_members(counted):
    one, said = counted
    assert (one.status.total, one.status.cells) == (7 * 3 * 30 + 2 * 2 * 20, 2)
    for chunk, step, done, before in [
        (FIRST, 4, 7 * 4, 7 * 4),  # where it begins was done by an earlier process
        (SECOND, 0, 28, 28),
        (OTHER, 5, 28 + 2 * 2 * 5, 28 + 20),
        (SECOND, 10, 48 + 7 * 2 * 10, 48),
        (FIRST, 9, 188 + 7 * 5, 48),
        (SECOND, 0, 223, 48),  # it starts over: what was shown as done stays
        (SECOND, 12, 223 + 7 * 2 * 2, 48),
    ]:
        one.update(chunk, Progress(step, 30))
        assert (said[-1].done, said[-1].before) == (done, before)


def test_a_metric_that_only_some_chunks_have_is_the_mean_of_these(counted):
    one, said = counted
    one.update(FIRST, Progress(2, 30, {"train loss": 1.0, "test loss": 4.0}))
    one.update(SECOND, Progress(2, 30, {"train loss": 3.0}))
    assert said[-1].metrics == {"train loss": 2.0, "test loss": 4.0}


def test_chunks_that_are_trained_together_count_each(counted):
    one, said = counted
    one.update(FIRST, Progress(2, 30))
    one.update(OTHER | FIRST, Progress(3, 30, {"test loss": 5.0}))
    assert (said[-1].done, said[-1].before) == (7 * 3 + 2 * 2 * 3, 7 * 2 + 2 * 2 * 3)
    assert (said[-1].label, said[-1].metrics) == ("anchor/identity and 1 other", {"test loss": 5.0})


def test_a_note_is_told_once_and_metrics_stay_until_there_are_newer_ones(counted):
    one, said = counted
    one.update(FIRST, Progress(3, 30, {"test loss": 2.0}))
    one.update(FIRST, Progress(0, 30, note="starts over"))
    one.update(FIRST, Progress(1, 30))
    assert [(status.note, status.done, status.metrics) for status in said] == [
        ("", 21, {"test loss": 2.0}),
        ("starts over", 21, {"test loss": 2.0}),
        ("", 21, {"test loss": 2.0}),
    ]


def test_metrics_are_means_over_the_chunks_of_an_experiment_and_not_of_another(counted):
    one, said = counted
    one.update(FIRST, Progress(1, 30, {"test loss": 2.0}))
    one.update(SECOND, Progress(1, 30, {"test loss": 4.0}))
    one.update(OTHER, Progress(1, 20, {"test loss": 9.0}))
    one.update(FIRST, Progress(2, 30, {"test loss": 3.0}))
    assert [status.metrics.get("test loss") for status in said] == [2.0, 3.0, 3.0, 3.5]


def test_the_first_experiment_is_shown_until_its_last_chunk_ends(counted):
    one, said = counted
    first, second, other = (
        {chunk: replace(part, label=label) for chunk, part in chunks.items()}
        for chunks, label in ((FIRST, "long"), (SECOND, "long"), (OTHER, "short"))
    )
    for chunk, step, steps, loss, shown in [
        (first, 1, 30, 2.0, ("long", 2.0)),
        (other, 1, 20, 9.0, ("long and 1 other", 2.0)),
        (second, 1, 30, 4.0, ("long and 1 other", 3.0)),
        (first, 30, 30, 0.0, ("long and 1 other", 2.0)),
        (other, 2, 20, 8.0, ("long and 1 other", 2.0)),
        (second, 30, 30, 4.0, ("short", 8.0)),
        (other, 20, 20, 7.0, ("short", 7.0)),
    ]:
        one.update(chunk, Progress(step, steps, {"test loss": loss}))
        assert (said[-1].label, said[-1].metrics["test loss"]) == shown


@pytest.mark.parametrize("last", [0, 1])
def test_a_run_with_a_failed_chunk_is_not_merged_whichever_chunk_ends_last(tmp_path, monkeypatch, last):
    one = experiment(members=Members(seeds=(0, 1)))
    plans = Plans({one.cell.address: Plan([[0], [1]], 1, "auto")}, [[one.cell.address]], 2)
    merged = []
    monkeypatch.setattr(driver, "merge", lambda directory, experiment, plan: merged.append(experiment))

    class Failing:
        device, modules, slots, label = "cpu", (), 2, ""

        def pool(self):
            return nullcontext(self)

        def submit(self, jobs):
            return [index for _, index in (job.chunks[0] for job in jobs)]

        def ended(self, running, seconds):
            assert running == [0, 1]
            return [(index, self.error(index)) for index in running]

        def error(self, index):
            if index != last:
                return ValueError("lost")
            with Run(tmp_path / one.cell.address).chunk(index) as chunk:
                chunk.finish({"rows": []})
            return None

        def stop(self, running):
            assert running == []

    found = Driver(Store(tmp_path), {one.cell.address: one}, plans, Failing(), "cpu", 20.0, lambda status: None)
    found.train()
    assert [str(error) for _, error in found.failures] == ["lost"]
    assert merged == [] and found.failed == {one.cell.address}
