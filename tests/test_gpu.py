"""`make gpu`, tried on a CPU: its stages, their limits, and what it leaves."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anchorlab.runs import Store
from anchorlab.studies import study

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu.py"


@pytest.fixture
def gpu(monkeypatch):
    spec = importlib.util.spec_from_file_location("gpu", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


PROGRAMS = {
    "ends": "print('all'); print()",
    "fails": "print('so far'); raise SystemExit(3)",
    "keeps": """
import signal, sys, time
def keep(*_):
    print("kept")
    sys.exit(1)
signal.signal(signal.SIGTERM, keep)
print("ready")
time.sleep(60)
""",
    "ignores": "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready'); time.sleep(60)",
}


class LimitOnceReady(subprocess.Popen):
    """A process whose limit is reached when it has begun to sleep, however long that takes to come."""

    def wait(self, timeout=None):
        if timeout != 1.0:
            return super().wait(timeout)
        while self.poll() is None and "ready" not in Path(self.told.name).read_text():
            time.sleep(0.01)
        if self.poll() is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def __init__(self, *arguments, stdout, **named):
        self.told = stdout
        super().__init__(*arguments, stdout=stdout, **named)


@pytest.mark.parametrize(
    ("name", "program", "end", "last", "failed"),
    [
        ("bench", "ends", "done", "all", False),
        ("bench", "fails", "failed with 3", "so far", True),
        ("bench", "keeps", "not done at its limit", "kept", True),
        ("trainings", "keeps", "stopped", "kept", False),
        ("trainings", "ignores", "killed at its limit", "ready", True),
    ],
)
def test_how_a_stage_ends(gpu, monkeypatch, tmp_path, name, program, end, last, failed):
    monkeypatch.setattr(gpu.subprocess, "Popen", LimitOnceReady)
    monkeypatch.setattr(gpu, "CLOSING", 0.2 if program == "ignores" else 60.0)
    found = gpu.run_stage(name, ["-c", PROGRAMS[program]], 1.0, tmp_path)
    assert (found.end, found.last, found.failed) == (end, last, failed)


def test_a_failed_stage_stops_no_other(gpu, monkeypatch, tmp_path, capsys):
    made_up = {"tests": "raise SystemExit(1)", "bench": "print('fast')", "trainings": "print('ended: one seed')"}
    monkeypatch.setattr(gpu, "commands", lambda chosen: {name: ["-c", text] for name, text in made_up.items()})
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--minutes", "1", "--out", str(tmp_path)])
    assert gpu.main() == 1
    told = (tmp_path / "summary.txt").read_text()
    assert capsys.readouterr().out.endswith(told)
    head, *stages, one, verdict = told.splitlines()
    assert head == "cuda, size paper, 1 minutes"
    assert [line.split()[:2] for line in stages] == [["tests", "failed"], ["bench", "done"], ["trainings", "done"]]
    assert one == "ended: one seed"
    assert verdict.startswith("failed: tests; ")


def test_the_marked_tests_are_all_named(gpu):
    chosen = gpu.argparse.Namespace(device="cuda", size="paper", minutes=10.0, out=Path("out"))
    named = {Path(one).name for one in gpu.commands(chosen)["tests"] if one.endswith(".py")}
    assert {"test_cuda.py", "test_look.py", "test_forecast.py"} <= named


@pytest.mark.nightly
def test_all_stages_at_smoke_size_on_a_cpu(tmp_path):
    command = [
        sys.executable,
        str(SCRIPT),
        *["--device", "cpu", "--size", "smoke", "--minutes", "8", "--out"],
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" in (tmp_path / "tests.txt").read_text()
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert {row["members"] for row in rows} == {2}
    assert all(row["mapped, ms"] > 0 for row in rows)
    trained = [
        one for name in ("retrieval/emergence", "retrieval/circuits") for one in study(name).experiments_of("smoke")
    ]
    seeds = {one.take(range(at, at + 1)).cell for one in trained for at in range(len(one.members))}
    assert all(cell in Store(tmp_path / "runs") for cell in seeds)
    ended = [line for line in (tmp_path / "summary.txt").read_text().splitlines() if line.startswith("ended: ")]
    assert len(ended) == sum(len(one.members) for one in trained)
