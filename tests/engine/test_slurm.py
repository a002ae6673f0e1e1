"""Jobs of Slurm: its runs are those of this machine alone, bit for bit; a second command finds them in the queue."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from anchorlab.engine import Slurm, run
from anchorlab.engine.job import Job
from anchorlab.errors import SpecError
from anchorlab.runs import Store
from tests.browser import until
from tests.engine import fake_slurm
from tests.engine.killed import FOUR, chunks, results, stop_when
from tests.engine.test_joint import SWEEP
from tests.small_experiments import BREAKING, experiment

SLOWED = ("tests.engine.slowed",)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """The commands of Slurm on the path, and the folder where they note their jobs."""
    pytest.importorskip("submitit")
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name in fake_slurm.COMMANDS:
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{fake_slurm.__file__}" {name} "$@"\n')
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(folder))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return folder


@pytest.mark.killed
@pytest.mark.slow
def test_jobs_leave_the_bytes_of_this_machine(cluster, tmp_path):
    whole, shared = Store(tmp_path / "whole"), Store(tmp_path / "shared")
    run(FOUR[:2], whole, workers=1)
    run(FOUR[:2], shared, on=Slurm({"partition": "gpu", "time": 60}), workers=1)
    assert results(shared.root) == results(whole.root)
    assert {path.name for path in shared.root.iterdir()} == {path.name for path in whole.root.iterdir()}
    script = tmp_path / "shared-slurm" / "1_submission.sh"
    assert "#SBATCH --partition=gpu\n" in script.read_text() and "#SBATCH --time=60\n" in script.read_text()
    assert len(list(cluster.glob("*.pid"))) == 2


@pytest.mark.killed
@pytest.mark.slow
@pytest.mark.nightly
def test_a_second_command_finds_the_jobs_that_are_still_at_work(cluster, tmp_path):
    whole, shared = Store(tmp_path / "whole"), Store(tmp_path / "shared")
    run(FOUR[:2], whole, workers=1)

    class Ended(Exception):
        pass

    def report(status):
        if status.done:
            raise Ended

    on = Slurm(modules=SLOWED)
    with pytest.raises(Ended):
        run(FOUR[:2], shared, on=on, workers=1, report=report, keep_every=0.0)
    sent = len(list(cluster.glob("*.pid")))
    run(FOUR[:2], shared, on=on, workers=1, keep_every=0.0)
    assert len(list(cluster.glob("*.pid"))) == sent == 2
    assert results(shared.root) == results(whole.root)


@pytest.mark.killed
@pytest.mark.slow
@pytest.mark.nightly
def test_a_chunk_that_a_job_of_an_earlier_command_trains_with_others_is_waited_for(cluster, tmp_path):
    whole, shared = Store(tmp_path / "whole"), Store(tmp_path / "shared")
    run(SWEEP, whole, workers=1)

    def report(status):
        if status.done:
            raise KeyboardInterrupt

    on = Slurm(modules=SLOWED)
    with pytest.raises(KeyboardInterrupt):
        run(SWEEP, shared, on=on, report=report, keep_every=0.0)
    run(SWEEP[:2], shared, on=on, keep_every=0.0)
    assert len(list(cluster.glob("*.pid"))) == 1
    run(SWEEP, shared, on=on, keep_every=0.0)
    assert results(shared.root) == results(whole.root)


@pytest.mark.killed
@pytest.mark.slow
def test_a_job_at_its_time_limit_goes_on_from_its_state_when_it_is_queued_again(tmp_path):
    """By submitit's own executor for one machine, which sends the signal that Slurm sends before the limit."""
    submitit = pytest.importorskip("submitit")
    whole, shared = Store(tmp_path / "whole"), Store(tmp_path / "shared")
    run(FOUR[:1], whole, workers=1)
    stop_when(FOUR[:1], shared.root)  # has recorded the plan
    (folder,) = shared.root.glob("*/state/chunk-0000.*")
    executor = submitit.LocalExecutor(tmp_path / "jobs")
    executor.update_parameters(timeout_min=1, signal_delay_s=0)
    task = Job(str(shared.root), ((folder.parents[1].name, 0),), "cpu", 0.0, SLOWED, str(Path.cwd()))
    job = executor.submit(task)
    before = {path.name for path in chunks(shared.root, "step-*")}
    until(lambda: {path.name for path in chunks(shared.root, "step-*")} - before, 90)
    os.kill(int(_child(job._process.pid)), signal.SIGUSR2)
    assert job.result() is None
    assert "Requeued job" in job.stdout()
    run(FOUR[:1], shared, workers=1)
    assert results(shared.root) == results(whole.root)


def _child(process):
    """The process that trains, which submitit's own process has started."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if found := Path(f"/proc/{process}/task/{process}/children").read_text().split():
            return found[0]
        time.sleep(0.05)
    raise AssertionError("there is none")


@pytest.mark.killed
@pytest.mark.slow
@pytest.mark.nightly
def test_a_job_that_fails_is_told_with_its_reason(cluster, tmp_path):
    good, store = experiment(), Store(tmp_path / "store")
    with pytest.raises(Exception, match=r"ZeroDivisionError: it broke"):
        run([good, BREAKING], store, on=Slurm(), workers=1)
    assert good.cell in store and BREAKING.cell not in store


def test_what_is_missing_or_misspelled_is_named(tmp_path, cluster, monkeypatch):
    with pytest.raises(SpecError, match=r"^slurm: unknown option 'partitoin'; did you mean 'partition'\?$"):
        run([experiment()], tmp_path / "store", on=Slurm({"partitoin": "gpu"}))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SpecError, match=r"^on: there is no Slurm on this machine; run where srun and sbatch are$"):
        run([experiment()], tmp_path / "store", on="slurm")
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(SpecError, match=r"^on: submitit is not installed; run pip install 'anchorlab\[slurm\]'$"):
        run([experiment()], tmp_path / "store", on="slurm")
