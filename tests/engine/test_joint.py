"""Tiny runs that are trained together: each has the bytes of its place, also alone, after kills and after failures."""

import pickle
import random
from contextlib import nullcontext
from dataclasses import replace

import pytest

from anchorlab.engine import forecast, run
from anchorlab.engine.driver import Driver
from anchorlab.engine.job import Job
from anchorlab.errors import IncompleteError, StoreError
from anchorlab.models import DecoderSpec
from anchorlab.runs import ChunkDirectory, Store
from anchorlab.training import AdamW, Evaluation, Experiment, FixedSample, Members, Recipe, Times, work_per_step
from anchorlab.training.executions import MappedExecution, MemberExecution
from tests.engine.killed import STATES, check_kills, contents, keep_often, planned, results, stop_when
from tests.small_experiments import IDENTITY, experiment

RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-4)
RECIPE = Recipe(
    data=FixedSample(size=32),
    batch=8,
    duration=60,
    evaluation=Evaluation(every=20, size=8),
    checkpoints=Times(every=30),
)
SWEEP = [
    Experiment(
        IDENTITY,
        DecoderSpec(layers=1, heads=1, width=4),
        RECIPE.replace(optimiser=AdamW(learning_rate=rate)),
        Members(seeds=2),
        label=f"rate {rate:g}",
    )
    for rate in RATES
]

pytestmark = pytest.mark.usefixtures("often")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The bytes of each run, trained by itself at the place that it was planned for."""
    store = Store(tmp_path_factory.mktemp("alone"))
    planned(SWEEP, store)
    for one in SWEEP:
        run([one], store, workers=1)
    return results(store.root)


@pytest.fixture
def jobs(monkeypatch):
    """How many runs each job trained."""
    taken, before = [], Driver._take

    def heard(self, count):
        found = before(self, count)
        taken.extend(len(job.chunks) for job in found)
        return found

    monkeypatch.setattr(Driver, "_take", heard)
    return taken


@pytest.fixture
def refused():
    """Lets no checkpoint of the second run be written, until it is undone."""
    write = ChunkDirectory.write_checkpoint

    def refuse(self, step, tensors):
        if self.address == SWEEP[1].cell.address:
            raise StoreError("no room")
        write(self, step, tensors)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChunkDirectory, "write_checkpoint", refuse)
        yield patch


@pytest.mark.slow
@pytest.mark.equal_bytes
def test_a_sweep_is_one_job_and_leaves_the_bytes_of_each_run_by_itself(tmp_path, alone, jobs):
    reports = []
    found = run(SWEEP, tmp_path, workers=1, report=lambda status: reports.append((status.done, status.total)))
    assert jobs == [5]
    assert results(tmp_path) == alone
    assert [one.experiment for one in found] == SWEEP
    assert reports == sorted(reports)
    assert reports[-1][0] == reports[-1][1] == sum(one.member_steps * work_per_step(one) for one in SWEEP)
    run(SWEEP, tmp_path, workers=1)
    assert jobs == [5]


def test_two_processes_have_a_job_each(tmp_path, jobs, monkeypatch):
    monkeypatch.setattr("anchorlab.engine.plan.MOST_TOGETHER", 10)
    ten = [replace(one, members=members) for members in (Members(seeds=2), Members(seeds=(7, 8))) for one in SWEEP]
    run(ten, tmp_path, workers=2)
    assert sorted(jobs) == [5, 5]


@pytest.mark.equal_bytes
def test_another_process_trains_them_together_from_what_the_store_says(tmp_path, alone, monkeypatch):
    tasks = []

    class Elsewhere:
        device, modules, slots, label = "cpu", (), 1, ""

        def pool(self):
            return nullcontext(self)

        def submit(self, jobs):
            return [pickle.loads(pickle.dumps(job)) for job in jobs]

        def ended(self, running, seconds):
            tasks.extend(running)
            return [(job, job()) for job in running]

        def stop(self, running):
            assert running == []

    run(SWEEP, tmp_path, on=Elsewhere())
    assert [len(task.chunks) for task in tasks] == [5]
    assert results(tmp_path) == alone


BAD_PLANS = {
    "floats": {"chunks": [[0.0, 1.0]]},
    "places of floats": {"places": [0.0, 10.0]},
    "no room": {"places": [9, 10]},
    "before the first": {"places": [-1, 10]},
    "a pass without end": {"places": [0, 10**9]},
    "places of two threads": {"places": [0, 10], "threads": 2},
    "places one by one": {"places": [0, 10], "execution": "member"},
    "places in two chunks": {"places": [0, 10], "chunks": [[0], [1]]},
    "a member twice": {"chunks": [[0, 0]]},
}


@pytest.mark.parametrize("name", BAD_PLANS)
def test_what_is_no_plan_is_refused_in_one_line(name, tmp_path):
    store, first = Store(tmp_path), SWEEP[0].cell
    with store.open(first) as directory:
        directory.plan({"chunks": [[0, 1]], "threads": 1, "execution": "mapped", "places": [8, 10], **BAD_PLANS[name]})
    with pytest.raises(StoreError, match=r"plan\.json: damaged: is no plan of this run"):
        run(SWEEP[:1], store, workers=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "chunks"), [({"threads": 2}, 1), ({"execution": "member"}, 1), ({"chunks": [[0], [1]]}, 2)]
)
def test_a_run_that_was_planned_otherwise_is_not_joined(tmp_path, jobs, changes, chunks):
    """Each of these has other last bits: threads add up in another order, and one alone takes denormals for zero."""
    store, first = Store(tmp_path), SWEEP[0].cell
    with store.open(first) as directory:
        directory.plan({"chunks": [[0, 1]], "threads": 1, "execution": "mapped", **changes})
    run(SWEEP, store, workers=1)
    assert jobs == [*[1] * chunks, 4]


@pytest.mark.slow
def test_other_executions_train_each_run_by_itself(tmp_path, jobs):
    run(SWEEP, tmp_path, workers=1, execution="member")
    assert jobs == [1] * 5


@pytest.mark.equal_bytes
def test_what_was_stopped_goes_on_together(tmp_path, alone, jobs):
    stop_when(SWEEP, tmp_path, count=5)
    run(SWEEP, tmp_path, workers=1)
    assert jobs == [5, 5]
    assert results(tmp_path) == alone


@pytest.mark.slow
@pytest.mark.equal_bytes
def test_what_a_kill_has_left_is_still_mapped(tmp_path, alone, jobs):
    """Two members alone would be trained one by one; they have been asked for with eight others."""
    store = Store(tmp_path)
    run(SWEEP, store, workers=1)
    store.remove(SWEEP[3].cell.address)
    assert results(tmp_path) != alone
    run(SWEEP, store, workers=1)
    assert results(tmp_path) == alone
    store.remove(SWEEP[3].cell.address)
    run(SWEEP[3:4], store, workers=1)
    assert results(tmp_path) != alone
    assert jobs == [5, 1, 1]


@pytest.mark.equal_bytes
def test_states_of_different_steps_go_on_apart(tmp_path, alone, jobs, monkeypatch):
    """As a kill leaves them between the keeping of one and of the next."""
    stop_when(SWEEP, tmp_path, "checkpoints/step-00000030.*", 5)
    kept = {path: path.read_bytes() for path in tmp_path.rglob(STATES)}
    for path in list(kept)[:2]:
        path.unlink()
    steps, joint = [], Job._train_together

    def heard(self, chunks, report):
        steps.append([None if chunk.state is None else chunk.state.step for chunk in chunks])
        joint(self, chunks, report)

    monkeypatch.setattr(Job, "_train_together", heard)
    run(SWEEP, tmp_path, workers=1)
    assert [len(each) for each in steps] == [2, 3]
    assert set(steps[0]) == {None} and len(set(steps[1])) == 1 and steps[1][0] > 20
    assert results(tmp_path) == alone


@pytest.mark.equal_bytes
def test_a_run_that_began_by_itself_goes_on_as_it_was_planned(tmp_path, jobs):
    stop_when(SWEEP[:1], tmp_path)
    run(SWEEP, tmp_path, workers=1)
    assert jobs == [1, 1, 4]
    run(SWEEP[:1], tmp_path / "alone", workers=1)
    first = SWEEP[0].cell.address
    assert results(tmp_path / first) == results(tmp_path / "alone" / first)


@pytest.mark.equal_bytes
def test_a_damaged_state_costs_its_own_run_alone(tmp_path, alone, jobs):
    stop_when(SWEEP, tmp_path, count=5)
    state = min(tmp_path.rglob(f"{SWEEP[2].cell.address}/state/chunk-*/step-*.safetensors"))
    state.write_bytes(state.read_bytes()[:-3])
    notes = []
    run(SWEEP, tmp_path, workers=1, report=lambda status: status.note and notes.append(status.note))
    assert jobs[1:] == [5]
    assert ["rate 0.01, seeds 0, 1 starts over" in note for note in notes] == [True]
    assert results(tmp_path) == alone


@pytest.mark.slow
@pytest.mark.equal_bytes
def test_one_that_cannot_be_kept_fails_alone(tmp_path, alone, refused):
    with pytest.raises(IncompleteError) as caught:
        run(SWEEP, tmp_path, workers=1)
    assert [(chunk, str(error)) for chunk, error in caught.value.failures] == [("rate 0.003, seeds 0, 1", "no room")]
    assert [one.cell in Store(tmp_path) for one in SWEEP] == [True, False, True, True, True]
    refused.undo()
    run(SWEEP, tmp_path, workers=1)
    assert results(tmp_path) == alone


def test_the_forecast_is_of_runs_trained_together(tmp_path, monkeypatch):
    """By a clock that counts a second for each step of a member, or of all members at once."""
    clock = [0.0]
    monkeypatch.setattr("anchorlab.training.step_timing.time.perf_counter", lambda: clock[0])

    def member_step(self, batches, factor, active, number):
        clock[0] += sum(active)

    def mapped_step(self, batches, factor, active, number):
        clock[0] += 1

    monkeypatch.setattr(MemberExecution, "step", member_step)
    monkeypatch.setattr(MappedExecution, "step", mapped_step)
    joint, apart = (forecast(SWEEP, tmp_path, 1, execution=one) for one in ("auto", "member"))
    assert (joint.paces, joint.workers) == (1, 1)
    assert joint.seconds == pytest.approx(60)  # steps of ten members at once
    assert apart.seconds == pytest.approx(10 * 60)
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_the_forecast_of_what_is_left_of_a_small_ensemble(tmp_path, monkeypatch):
    """The first place of the last three is free: a copy of the next member fills it."""
    monkeypatch.setattr("anchorlab.engine.plan.MOST_TOGETHER", 8)
    eleven = [replace(SWEEP[0], members=Members(seeds=(seed,))) for seed in range(11)]
    run(eleven[8:9], tmp_path, workers=1)
    found = forecast(eleven, tmp_path, 1)
    assert [cell.finished for cell in found.cells] == [seed == 8 for seed in range(11)]
    assert found.seconds > 0


def train(root):
    keep_often()
    run(SWEEP, root, 1, keep_every=0.0)


@pytest.mark.killed
def test_killed_at_any_moment(tmp_path, alone):
    assert check_kills(tmp_path, 8, RECIPE.duration, random.Random(3), alone, train) >= 3


def test_nothing_is_left_beside_the_runs(tmp_path):
    run([*SWEEP, experiment(duration=3)], tmp_path, workers=1)
    for one in SWEEP:
        assert not any("state" in name for name in contents(tmp_path / one.cell.address))
