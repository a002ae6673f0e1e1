"""What training would take, against what it takes."""

import itertools
import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from anchorlab.engine import forecast, run
from anchorlab.engine.forecast import _until_the_last
from anchorlab.errors import SpecError
from anchorlab.models import DecoderSpec
from anchorlab.runs import ChunkDirectory, Store
from anchorlab.training import AdamW, Evaluation, Experiment, FixedSample, Members, Recipe, Stop, Stream, Times
from anchorlab.training.evaluation import Evaluator, MappedEvaluator
from anchorlab.training.executions import MappedExecution, MemberExecution
from anchorlab.training.step_timing import Pace, measure_pace, pace_key
from tests.small_experiments import IDENTITY, experiment

SMALL = Recipe(
    data=FixedSample(size=40),
    optimiser=AdamW(learning_rate=1e-3),
    batch=20,
    duration=6,
    evaluation=Evaluation(every=3, size=10),
    checkpoints=Times(every=2),
)
ONE = replace(experiment(recipe=SMALL), label="one")


@pytest.fixture
def steps_taken(monkeypatch):
    """How many steps each member has taken, all members together."""
    taken, step = [], MemberExecution.step

    def counted(self, batches, factor, active, number):
        taken.append(sum(active))
        step(self, batches, factor, active, number)

    monkeypatch.setattr(MemberExecution, "step", counted)
    return taken


@pytest.mark.slow
def test_what_is_said_is_what_runs(tmp_path, steps_taken):
    """Also of an experiment that goes on from another, of one given twice, and of untrained members."""
    further = replace(ONE, start=ONE.take(range(2)), members=Members(seeds=(5, 6)), recipe=SMALL.replace(duration=4))
    asked = [further, ONE, ONE, ONE.untrained(), replace(ONE, recipe=SMALL.replace(duration=2))]
    store = Store(tmp_path / "runs")
    run([asked[-1]], store, workers=1)
    before = {path.name for path in store.root.iterdir()}
    steps_taken.clear()
    found = forecast(asked, store, workers=1)
    assert {path.name for path in store.root.iterdir()} == before
    assert sum(steps_taken) > found.measured_steps > 0  # a warm-up comes first
    steps_taken.clear()
    run(asked, store, workers=1)
    after = {path.name for path in store.root.iterdir()}
    assert {cell.experiment.cell.address for cell in found.cells} == after - {"lock"}
    assert {cell.experiment.cell.address for cell in found.left} == after - before
    assert sum(cell.member_steps for cell in found.left) == sum(steps_taken) == 2 * 6 + 2 * 4 + 3 * 6
    assert [cell.finished for cell in found.cells].count(True) == 1


def test_all_of_it_finished(tmp_path):
    store = Store(tmp_path)
    run([ONE], store, workers=1)
    found = forecast([ONE], store)
    assert (found.left, found.seconds, found.memory, found.disk, found.states, found.measured_steps) == (
        (),
        0.0,
        0,
        0,
        0,
        0,
    )


def test_nothing_is_written_where_there_is_no_store(tmp_path):
    found = forecast([ONE], tmp_path / "runs")
    assert not list(tmp_path.iterdir())
    assert not found.cells[0].begun and found.seconds > 0


def test_a_begun_cell_is_named(tmp_path):
    store = Store(tmp_path)
    with store.open(ONE.cell) as directory:
        directory.plan({"chunks": [[0, 1, 2]], "threads": 1})
    (cell,) = forecast([ONE], store).cells
    assert cell.begun and not cell.finished


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_checkpoints_and_states_take_as_much_as_is_said(tmp_path, precision, monkeypatch):
    one = replace(ONE, recipe=SMALL.replace(precision=precision))
    found, kept = forecast([one], tmp_path), set()
    said, write = found.disk, ChunkDirectory.write_state

    def written(chunk, step, tensors, metadata=None):
        kept.add(sum(value.nbytes for value in tensors.values()))
        write(chunk, step, tensors, metadata)

    monkeypatch.setattr(ChunkDirectory, "write_state", written)
    (trained,) = run([one], tmp_path, workers=1, keep_every=0.0)
    assert kept == {found.states / 2}  # while a state is written, the one before is there, too
    taken = sum(path.stat().st_size for path in trained.run.path.glob("checkpoints/*"))
    assert said < taken < said * 1.02 + 4 * 4096  # each file has a header, too


@pytest.mark.parametrize(
    ("seconds", "processes", "end"), [([3, 1, 2], 1, 6), ([3, 1, 2], 2, 3), ([4, 1, 1], 2, 4), ([], 2, 0), ([5], 3, 5)]
)
def test_the_last_process_is_done(seconds, processes, end):
    assert _until_the_last(seconds, processes) == end


def test_a_member_costs_its_begin_its_steps_and_its_evaluations():
    pace = Pace(begin=100.0, step=10.0, evaluate=1.0, steps=3)
    assert pace.seconds(ONE) == 100 + 6 * 10 + 3  # evaluated at 0, 3 and 6
    assert pace.seconds(ONE.untrained()) == 101


def test_what_is_measured_once_and_what_apart():
    key = pace_key(ONE)
    same = [
        {"duration": 60},
        {"data": FixedSample(size=60)},
        {"optimiser": AdamW(learning_rate=1e-2)},
        {"checkpoints": Times()},
        {"evaluation": Evaluation(every=1, size=10)},
    ]
    apart = [
        {"batch": 10},
        {"data": Stream()},
        {"precision": "float64"},
        {"evaluation": Evaluation(every=3, size=20)},
        {"clip": 1.0},
    ]
    assert {pace_key(replace(ONE, recipe=SMALL.replace(**change))) for change in same} == {key}
    assert len({key, *(pace_key(replace(ONE, recipe=SMALL.replace(**change))) for change in apart)}) == 6
    assert pace_key(replace(ONE, model=ONE.model.replace(width=20))) != key
    assert pace_key(replace(ONE, members=Members(seeds=7))) == key
    assert pace_key(replace(ONE, members=Members(seeds=8))) != key  # so many tiny ones are mapped


@pytest.fixture
def clock(monkeypatch):
    """A clock, in seconds, that only a test puts forward."""
    now = [0.0]
    monkeypatch.setattr("anchorlab.training.step_timing.time.perf_counter", lambda: now[0])
    return now


@pytest.fixture
def timed(monkeypatch, clock):
    """Let each call of a method put the clock forward by `seconds(number of the call)`, from 0."""

    def let(owner, name, seconds):
        calls, act = itertools.count(), getattr(owner, name)

        def passing(*arguments, **named):
            clock[0] += seconds(next(calls))
            return act(*arguments, **named)

        monkeypatch.setattr(owner, name, passing)

    return let


@pytest.mark.parametrize(("step", "steps"), [(0.25, 16), (1.5, 3), (9.0, 3)])
@pytest.mark.parametrize("execution", ["member", "mapped"])
def test_each_part_is_measured_by_itself(timed, execution, step, steps):
    """For four seconds, at least three steps; the two first steps and the first evaluation are a warm-up."""
    of = {"member": MemberExecution, "mapped": MappedExecution}[execution]
    timed(Experiment, "initial_ensemble", lambda call: 6.0)
    timed(of, "step", lambda call: step if call >= 2 else 100.0)
    timed({"member": Evaluator, "mapped": MappedEvaluator}[execution], "measure", lambda call: 3.0 - call)
    two = replace(ONE, members=Members(seeds=2), recipe=SMALL.replace(duration=100))
    assert measure_pace(two, execution=execution, seconds=4.0) == Pace(3.0, step / 2, 1.0, steps)


def test_one_evaluation_is_enough_if_it_takes_long(timed):
    timed(Evaluator, "measure", lambda call: 5.0 - call)
    assert measure_pace(replace(ONE, members=Members(seeds=1)), seconds=0.0).evaluate == 5.0


@pytest.mark.parametrize(("most", "sequences"), [(1.0, 64), (2000 * 3.0, 64), (1e12, 1000)])
def test_a_long_evaluation_is_measured_on_some_of_its_sequences(monkeypatch, clock, most, sequences):
    """By a clock that counts a millisecond for each sequence of each member."""
    seen = []

    def measure(self, ensemble, step):
        seen.append(self.size)
        clock[0] += 1e-3 * self.size * ensemble.size

    monkeypatch.setattr("anchorlab.training.evaluation.Evaluator.measure", measure)
    monkeypatch.setattr("anchorlab.training.step_timing._EVALUATED_WORK", most)
    whole = replace(ONE, recipe=SMALL.replace(evaluation=Evaluation(every=3, size=1000)))
    found = measure_pace(whole, execution="member", seconds=0.0)
    assert found.evaluate == pytest.approx(1.0) and {*seen} == {sequences}


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_all_members_are_measured_at_once_on_cuda(tmp_path):
    few, many = (measure_pace(replace(ONE, members=Members(seeds=seeds)), "cuda") for seeds in (2, 64))
    assert 0 < many.step < few.step / 4  # a member of many costs less
    assert forecast([ONE], tmp_path, device="cuda").workers == 1


JOINED = [
    replace(
        ONE, model=DecoderSpec(layers=1, heads=1, width=4), members=Members(seeds=2, learning_rate=(rate, 2 * rate))
    )
    for rate in (1e-3, 4e-3, 16e-3, 64e-3)
]


@pytest.mark.parametrize(
    ("asked", "workers", "cells", "seconds", "memory"),
    [
        # a member of six steps takes 361 s and 60 bytes, one of four 341 s and 40; chunks of 1 and 2, and of 1 and 1
        ([6, 4], 2, [3 * 361, 2 * 341], 361 + 341 + 341, 120 + 60 + 2 * 1000),
        ([6, 4], 1, [3 * 361, 2 * 341], 3 * 361 + 2 * 341, 3 * 60 + 1000),
        (JOINED, 1, [2 * 361] * 4, 8 * 361, 8 * 60 + 1000),
    ],
    ids=["two processes", "one", "trained together"],
)
def test_seconds_and_memory_are_those_of_the_chunks(tmp_path, monkeypatch, asked, workers, cells, seconds, memory):
    """By hand: a process takes 1000 bytes, a member ten a step; it begins in 1 s, and is evaluated three times."""
    module = sys.modules["anchorlab.engine.forecast"]  # the name of the package is the function's
    monkeypatch.setattr(module, "measure_pace", lambda *_: Pace(begin=1.0, step=10.0, evaluate=100.0, steps=3))
    monkeypatch.setattr(module, "memory_per_member", lambda one: 10 * one.steps)
    monkeypatch.setattr(module, "_memory_of_this_process", lambda: 1000)
    members = {6: Members(seeds=3), 4: Members(seeds=2)}
    experiments = [
        replace(ONE, recipe=SMALL.replace(duration=one), members=members[one]) if isinstance(one, int) else one
        for one in asked
    ]
    found = forecast(experiments, tmp_path, workers=workers)
    assert [cell.seconds for cell in found.cells] == cells
    assert (found.seconds, found.memory) == (seconds, memory)


@pytest.mark.slow
def test_a_stop_rule_makes_it_at_most(tmp_path):
    stop = replace(ONE, recipe=SMALL.replace(stop=Stop(metric="accuracy", value=0.9)))
    assert forecast([stop], tmp_path).may_stop and not forecast([ONE], tmp_path).may_stop


@pytest.mark.slow
def test_workers_share_the_members(tmp_path):
    one = forecast([ONE], tmp_path, workers=1)
    three = forecast([ONE], tmp_path, workers=3)
    assert (one.workers, three.workers) == (1, 3)
    assert three.memory > 2 * one.memory  # the processes themselves take the most
    with pytest.raises(SpecError, match="workers: 0 is not a number of processes"):
        forecast([ONE], tmp_path, workers=0)
    with pytest.raises(SpecError, match="device"):
        forecast([ONE], tmp_path, device="abacus")


MEASURED = """
import json, resource, sys, time
from anchorlab.engine import run
from anchorlab.runs import Store
from anchorlab.training import Experiment
one = Experiment.from_json(json.load(open(sys.argv[1])))
began = time.perf_counter()
run([one], Store(sys.argv[2]), workers=1)
print(json.dumps([time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))
"""


REAL = {
    "narrow": (DecoderSpec(layers=2, heads=1, width=64, head_width=64), 400, FixedSample(size=1000)),
    "wide": (DecoderSpec(layers=2, heads=2, width=200, head_width=100), 60, Stream()),
}


def said_and_measured(tmp_path, model, steps, data):
    """The forecast of a training and its seconds; the seconds and bytes of the training in a process of its own."""
    recipe = Recipe(data=data, batch=50, duration=steps, clip=1.0, evaluation=Evaluation(every=50))
    one = replace(ONE, task=IDENTITY, model=model, recipe=recipe, members=Members(seeds=4))
    (tmp_path / "one.json").write_text(json.dumps(one.to_json()))
    began = time.perf_counter()
    said = forecast([one], tmp_path / "runs", workers=1)
    waited = time.perf_counter() - began
    words = [sys.executable, "-c", MEASURED, str(tmp_path / "one.json"), str(tmp_path / "runs")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return said, waited, *json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "darwin", reason="counts memory in other units")
def test_memory_is_an_upper_bound_of_that_of_a_real_training(tmp_path):
    said, _, _, memory = said_and_measured(tmp_path, *REAL["wide"])
    assert memory < 1.1 * said.memory


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "darwin", reason="counts memory in other units")
@pytest.mark.parametrize("name", REAL)
def test_time_and_memory_are_those_of_a_real_training(tmp_path, name):
    """Within a factor of three in time, on a machine that others use too; memory is an upper bound."""
    said, waited, seconds, memory = said_and_measured(tmp_path, *REAL[name])
    assert waited < 60
    assert said.seconds / 3 < seconds < said.seconds * 3
    assert memory < 1.1 * said.memory
