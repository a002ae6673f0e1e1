"""Runs of several experiments: shared over processes, kept, found again."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import polars as pl
import pytest
import torch

from anchorlab.engine import local as on_this_machine
from anchorlab.engine import run, train
from anchorlab.engine.plan import _divide, choose_workers, devices_of, planned
from anchorlab.engine.ray_cluster import Ray
from anchorlab.engine.slurm import Slurm
from anchorlab.errors import AnchorlabError, SpecError, StoreError
from anchorlab.models import DecoderSpec, VectorSpec
from anchorlab.runs import Run, Store
from anchorlab.tasks import MinimalRetrieval
from anchorlab.training import (
    Evaluation,
    Experiment,
    FixedSample,
    Members,
    Recipe,
    Stream,
    Times,
    fit,
    memory_per_member,
    work_per_step,
)
from tests.engine.killed import contents
from tests.small_experiments import DECODER, IDENTITY, KINDS, SAMPLE, experiment, worst

ALL = [experiment(kind) for kind in KINDS]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Every kind of model, its members shared over two processes; and all that was reported."""
    reports = []

    def report(status):
        reports.append((status.done, status.total, status.cells_done, status.cells, dict(status.metrics)))

    return run(ALL, Store(tmp_path_factory.mktemp("shared")), workers=2, report=report), reports


@pytest.mark.slow
@pytest.mark.parametrize("index", range(len(ALL)), ids=list(KINDS))
def test_members_shared_over_processes_are_those_trained_together(shared, index):
    found, together = shared[0][index], fit(ALL[index], execution="mapped")
    assert worst(found.ensemble().weights, together.ensemble.weights) < 1e-10
    keys = ["member", "step", "split", "group", "edit", "metric"]
    ours = found.metrics.sort(keys)
    theirs = pl.DataFrame(together.rows, schema=found.metrics.schema, orient="row").sort(keys)
    assert ours.drop("value").equals(theirs.drop("value"))
    assert (ours["value"] - theirs["value"]).abs().max() < 1e-9


def test_progress_reaches_the_end(shared):
    reports = shared[1]
    done = [each[0] for each in reports]
    assert done == sorted(done)
    total = sum(30 * 3 * work_per_step(one) for one in ALL)
    assert reports[-1][:2] == (total, total)
    assert reports[-1][3] == len(ALL)
    assert any("test loss" in each[4] for each in reports)


def test_a_finished_run_is_read_and_not_trained_again(tmp_path):
    one, store = experiment(), Store(tmp_path)
    first = run([one], store, workers=1)[0]
    before, steps = contents(tmp_path), []
    again = run([one, one], store, workers=2, report=lambda status: steps.append(status.done))
    assert [each.run.address for each in again] == [first.run.address] * 2
    assert contents(tmp_path) == before and not any(steps)
    assert again[0].experiment == one


@pytest.mark.parametrize("change", [{"model": DECODER.replace(layers=4)}, {"recipe": SAMPLE.replace(duration=40)}])
def test_the_costliest_run_goes_first_and_stays_when_a_later_one_fails(tmp_path, change):
    """Four layers take longer than one for as many steps."""
    small = Experiment(IDENTITY, DECODER.replace(layers=1), SAMPLE.replace(duration=20), Members())
    large = replace(small, **change)

    def report(status):
        if status.cells_done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run([small, large], Store(tmp_path), workers=1, report=report)
    assert large.cell in Store(tmp_path)
    with Store(tmp_path).open(small.cell) as directory, directory.chunk(0):  # which is not locked
        assert not directory.finished


def test_checkpoints_are_kept_when_due_and_at_the_end(tmp_path):
    one = experiment(checkpoints=Times(every=12, at=(5,)))
    found = run([one], Store(tmp_path), workers=1)[0]
    assert found.checkpoints == [0, 5, 12, 24, 30]
    twelve = fit(experiment(duration=12))
    assert worst(found.ensemble(12).weights, twelve.ensemble.weights) == 0
    assert worst(found.ensemble().weights, found.ensemble(30).weights) == 0
    with pytest.raises(StoreError, match="no checkpoint of step 13"):
        found.ensemble(13)


def test_checkpoints_of_epochs_are_named_by_steps(tmp_path):
    one = experiment(unit="epochs", duration=4, checkpoints=Times(every=2), evaluation=Evaluation(size=4))
    assert run([one], Store(tmp_path), workers=1)[0].checkpoints == [0, 6, 12]


def test_wrong_arguments_write_nothing(tmp_path):
    store = Store(tmp_path / "store")
    for arguments in ({"workers": 0}, {"device": "cudaa"}, {"device": "meta"}):
        with pytest.raises(SpecError) as caught:
            run([experiment()], store, **arguments)
        assert caught.value.field in arguments
    assert not store.root.exists()


@pytest.mark.untyped
@pytest.mark.parametrize("workers", [1.5, "2"])
def test_a_number_of_processes_that_is_not_whole_is_refused_before_a_plan_is_recorded(tmp_path, workers):
    with pytest.raises(SpecError, match=r"^workers: .* is not a number of processes; give 1 or more$"):
        run([experiment()], tmp_path / "store", workers=workers)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("backend", [Ray, Slurm])
def test_a_device_other_than_the_backends_is_refused(tmp_path, backend):
    name = backend.__name__
    message = rf"^device: is cuda, but {name} trains on cpu; give it to the backend: {name}\(device='cuda'\)$"
    with pytest.raises(SpecError, match=message):
        run([experiment()], tmp_path / "store", device="cuda", on=backend())
    assert not (tmp_path / "store").exists()


@pytest.mark.untyped
@pytest.mark.parametrize("on", [None, 5, "lokal"])
def test_what_is_no_backend_is_refused(tmp_path, on):
    with pytest.raises(SpecError, match=r"^on: unknown backend '.*'; .*local"):
        run([experiment()], tmp_path / "store", on=on)
    assert not (tmp_path / "store").exists()


@pytest.mark.untyped
def test_experiments_from_a_generator_are_trained(tmp_path):
    (found,) = run((one for one in [experiment(duration=1)]), tmp_path, workers=1)
    assert found.experiment == experiment(duration=1)


def test_torchs_threads_are_put_back(tmp_path):
    torch.set_num_threads(2)
    try:
        run([experiment(duration=1)], Store(tmp_path), workers=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("members", "runs", "workers", "threads"), [(2, 1, 2, 1), (1, 1, 4, 4), (1, 3, 4, 1), (1, 8, 1, 1), (1, 2, 5, 2)]
)
def test_one_thread_each_and_more_only_where_cores_would_idle(members, runs, workers, threads):
    asked = [experiment(duration=20 + each, members=Members(seeds=members)) for each in range(runs)]
    plans = planned({one.cell.address: one for one in asked}, asked, workers, "cpu", "member")
    assert {plan.threads for plan in plans.of.values()} == {threads}


def paper_size(duration, members):
    """Experiments of about 0.1 s a step and member on a core: 12 GFLOP."""
    recipe = Recipe(data=FixedSample(size=1000), duration=duration, evaluation=Evaluation(every=None))
    return Experiment(IDENTITY, DecoderSpec(), recipe, Members(seeds=members))


def test_small_work_stays_in_this_process_and_large_work_uses_every_core(monkeypatch):
    monkeypatch.setattr(sys.modules["anchorlab.engine.plan"], "cores", lambda: 7)
    assert choose_workers([]) == 1
    assert choose_workers([experiment(duration=100)]) == 1  # under a second
    assert choose_workers([paper_size(10, 10)]) == 1  # about ten seconds
    assert choose_workers([paper_size(10, 1)] * 100) == 7  # many small ones are much together
    assert choose_workers([paper_size(4000, 1)]) == 7
    assert choose_workers([paper_size(100, 40)]) == 7


@pytest.mark.parametrize(
    ("seconds", "workers", "processes"), [(1, None, []), (1e4, None, [3]), (1, 2, [2]), (1e4, 1, [])]
)
def test_workers_that_are_given_are_obeyed_and_else_chosen(tmp_path, monkeypatch, seconds, workers, processes):
    module, started = sys.modules["anchorlab.engine.plan"], []

    def here(driver, backend):
        started.append(backend.workers)
        driver._train_here()

    monkeypatch.setattr(module, "estimated_seconds", lambda one: seconds)
    monkeypatch.setattr(module, "cores", lambda: 3)
    monkeypatch.setattr("anchorlab.engine.driver.Driver._train_on", here)
    (found,) = run([experiment(duration=1)], Store(tmp_path), workers=workers)
    assert started == processes
    assert found.ensemble().size == 3


@pytest.mark.parametrize(
    ("count", "workers", "expected"),
    [(1, 2, [[0]]), (3, 1, [[0, 1, 2]]), (5, 2, [[0, 1], [2, 3, 4]]), (3, 8, [[0], [1], [2]])],
)
def test_members_are_divided_evenly(count, workers, expected):
    assert _divide(experiment(members=Members(seeds=tuple(range(count)))), workers, "cpu") == expected


def test_an_ensemble_too_large_for_memory_is_trained_in_chunks(monkeypatch):
    """A million sequences of the retrieval problem for each of ten members, on a machine with 8 GiB."""
    recipe = Recipe(data=FixedSample(size=2**20), batch=64)
    one = Experiment(MinimalRetrieval(), VectorSpec(layers=2), recipe, Members(seeds=tuple(range(10))))
    of_one = memory_per_member(one)
    sequence = 4 * (28 * 8 + 4 * 12)
    assert of_one > 2**20 * sequence
    page = 4096
    monkeypatch.setattr("os.sysconf", lambda name: page if name == "SC_PAGE_SIZE" else 2**33 // page)
    chunks = _divide(one, 1, "cpu")
    assert [member for chunk in chunks for member in chunk] == list(range(10))
    assert max(map(len, chunks)) * of_one <= 2**32 < (max(map(len, chunks)) + 1) * of_one
    assert [len(chunk) for chunk in _divide(one, 8, "cpu")] == [1] * 10


@pytest.mark.parametrize(
    ("recipe", "field"),
    [
        (
            Recipe(data=FixedSample(size=2**20), batch=64),
            r"recipe\.data\.size: takes 1\.15 GB for one member, and there are 1\.07 GB",
        ),
        (Recipe(evaluation=Evaluation(size=2**20)), r"recipe\.evaluation\.size: takes 2\.30 GB"),
        (Recipe(data=Stream(), batch=2**20), r"recipe\.batch: takes 1\.15 GB"),
    ],
)
def test_a_member_too_large_for_memory_is_refused_before_anything_is_drawn(tmp_path, monkeypatch, recipe, field):
    """A sequence has 28 positions of 8 numbers and 4 targets of 12 in float32, 1088 bytes, and 8 in the order."""
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**18}[name])  # 1 GiB
    with pytest.raises(SpecError, match=field):
        run([Experiment(MinimalRetrieval(), VectorSpec(layers=2), recipe, Members())], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_defined_at_a_prompt_stays_in_this_process(monkeypatch):
    def processes():
        one = experiment()
        return planned({one.cell.address: one}, [one], 2, "cpu", "member").processes

    monkeypatch.setattr(sys.modules["__main__"], "__file__", "script.py", raising=False)
    assert processes() == 2
    monkeypatch.setattr(type(DECODER), "__module__", "__main__")
    assert processes() == 2

    class Prompt:
        __name__ = "__main__"

    monkeypatch.setitem(sys.modules, "__main__", Prompt())
    assert processes() == 1


def test_each_gpu_has_a_process(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    assert devices_of("cuda") == ("cuda:0", "cuda:1", "cuda:2")
    assert devices_of("cuda:1") == ("cuda:1",) and devices_of("cpu") == ("cpu",)
    begun = []

    class Process:
        busy = False

        def __init__(self, device):
            self.device = device

        def start(self, job):
            self.busy = True
            begun.append((job, self.device))

    monkeypatch.setattr(on_this_machine, "_Process", Process)
    with on_this_machine.Local(3, devices_of("cuda")).pool() as pool:
        pool.submit(["first", "second", "third"])
    assert begun == [("first", "cuda:0"), ("second", "cuda:1"), ("third", "cuda:2")]


SCRIPT = """
import torch
from anchorlab.models import register_module
from tests.small_experiments import SAMPLE
import anchorlab as al

@register_module("bag-of-a-script")
def bag(shape, width: int = WIDTH):
    return torch.nn.Sequential(torch.nn.Embedding(shape.input_size, width), torch.nn.Linear(width, shape.output_size))

{guard}
    recipe = SAMPLE.replace(duration=4)
    arguments = dict(seeds=2, workers=2, execution="member", store="runs")
    print(al.train("anchor/identity", "bag-of-a-script", recipe, **arguments).run.address)
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", [("own/own.py",), ("-m", "own.own")])
@pytest.mark.parametrize(("guard", "trains"), [("if __name__ == '__main__':", True), ("if True:", False)])
def test_processes_import_the_script_that_defines_a_model(tmp_path, guard, trains, words):
    """With the helpers that lie beside it, or in its package."""
    helper = "from .helper import WIDTH" if words[0] == "-m" else "from helper import WIDTH"
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "helper.py").write_text("WIDTH = 4")
    (tmp_path / "own" / "own.py").write_text(helper + SCRIPT.format(guard=guard))
    place = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run([sys.executable, *words], cwd=tmp_path, env=place, capture_output=True, text=True)
    if trains:
        assert (said.returncode, said.stderr) == (0, "")
        assert Run(tmp_path / "runs" / said.stdout.strip()).finished
    else:
        assert said.stderr.splitlines()[-1].endswith(
            "import: own.py trains while a worker imports it; put what it runs below `if __name__ == '__main__':`"
        )


def test_an_interrupt_waits_until_no_lock_of_the_processes_is_taken(tmp_path, monkeypatch):
    """Raised amid `wait`, it would leave locks taken, for which ending the processes waits for ever."""
    whole, waiting = [], on_this_machine.wait

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)
        whole.append(waiting(*arguments))
        return whole[-1]

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        monkeypatch.setattr(on_this_machine, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run([experiment(duration=10**6)], tmp_path, 2, execution="member")
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(whole) == 2  # for the first news, and for the processes to end


def test_work_beyond_the_memory_ends_in_one_line(tmp_path, monkeypatch):
    def full(*arguments):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("anchorlab.training.feed.stack", full)
    with pytest.raises(AnchorlabError, match=r"^out of memory; use fewer workers, or reduce the size of the work$"):
        train("anchor/identity", DECODER, SAMPLE.replace(duration=1), store=Store(tmp_path))


def test_a_damaged_run_is_not_taken_for_a_good_one(tmp_path):
    one, store = experiment(), Store(tmp_path)
    (finished,) = run([one], store, workers=1)
    checkpoint = next((finished.run.path / "checkpoints").iterdir())
    checkpoint.write_bytes(checkpoint.read_bytes()[:-5])
    with pytest.raises(StoreError, match=checkpoint.name):
        run([one], store, workers=1)
