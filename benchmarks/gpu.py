"""For a GPU that is at hand for a quarter of an hour: its tests, its benchmark, and trainings in the papers' settings.

    python benchmarks/gpu.py [--device cuda] [--size paper] [--minutes 10] [--out build/gpu]
    python benchmarks/gpu.py --device cpu --size smoke

The second tries all of it on a CPU. The stages are processes, one after the other, each with a limit of its own; one
that fails stops no other. The package need not be installed, only what it imports.

- `tests`: `pytest -m cuda`, a fifth of the time. Without a GPU they are skipped.
- `bench`: `mapped_members.py`, a fifth of the time.
- `trainings`: `retrieval/emergence` and `retrieval/circuits`, seed by seed, until the time is over. Each seed is a run
  in the store `runs`. A training that does not end keeps its state there, and the same command resumes it.

In the folder: the text of each stage, `bench.json`, the store, and `summary.txt`, what ran, what failed and how long.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "gpu"
STUDIES = ("retrieval/emergence", "retrieval/circuits")
CLOSING = 20.0  # seconds in which a stage keeps its state before it is killed
SHARES = {"tests": 0.2, "bench": 0.2, "trainings": 1.0}  # of the time, and of what is left of it for the last


@dataclass(frozen=True)
class Stage:
    """A stage that has ended: how, after how many seconds, and the last line that it printed."""

    name: str
    end: str
    seconds: float
    last: str

    @property
    def failed(self) -> bool:
        return self.end not in ("done", "stopped")


def commands(chosen: argparse.Namespace) -> dict[str, list[str]]:
    """The command of each stage."""
    marked = [str(one) for one in sorted((ROOT / "tests").rglob("test_*.py")) if "pytest.mark.cuda" in one.read_text()]
    device, size = ["--device", chosen.device], ["--size", chosen.size]
    seconds = str(0.02 if chosen.size == "smoke" else 1.0)
    limit = str(60 * chosen.minutes * SHARES["bench"] - CLOSING)
    bench = [*device, *size, "--seconds", seconds, "--most", limit, "--out", str(chosen.out / "bench.json")]
    return {
        "tests": ["-m", "pytest", "-m", "cuda", "-n", "0", "-rfE", "-p", "no:cacheprovider", *marked],
        "bench": [str(ROOT / "benchmarks" / "mapped_members.py"), *bench],
        "trainings": [__file__, "trainings", *device, *size, "--out", str(chosen.out)],
    }


def run_stage(name: str, command: list[str], seconds: float, out: Path) -> Stage:
    """Run a stage for at most so many seconds; its output goes to `<name>.txt`."""
    began, path = time.monotonic(), out / f"{name}.txt"
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    with path.open("w", encoding="utf-8") as text:
        process = subprocess.Popen(
            [sys.executable, *command], stdout=text, stderr=subprocess.STDOUT, env=environment, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
        end = wait(process, seconds, name)
    lines = [line for line in path.read_text("utf-8", "replace").splitlines() if line.strip()]
    return Stage(name, end, time.monotonic() - began, lines[-1].strip() if lines else "")


def wait(process: "subprocess.Popen[bytes]", seconds: float, name: str) -> str:
    """Wait for a stage and say how it ended; at its limit it may keep its state, then its process group is killed."""
    try:
        code = process.wait(timeout=seconds)
        return "done" if code == 0 else f"failed with {code}"
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=CLOSING)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "killed at its limit"
        if isinstance(error, KeyboardInterrupt):
            raise
        return "stopped" if name == "trainings" else "not done at its limit"


def trainings(chosen: argparse.Namespace) -> None:
    """Train seed after seed of every study, and say what each gives as it ends."""
    from anchorlab.engine import run
    from anchorlab.progress import shown
    from anchorlab.runs import Store
    from anchorlab.studies import study
    from anchorlab.studies.kit import at_end
    from anchorlab.training import Experiment

    experiments = {name: study(name).experiments_of(chosen.size) for name in STUDIES}
    store = Store(chosen.out / "runs")

    def train(name: str, whole: Experiment, index: int) -> None:
        began, one = time.monotonic(), whole.take(range(index, index + 1))
        label = f"{name}, {whole.label}, seed {one.members.seeds[0]}"
        print(f"begins: {label}, {one.steps} steps")
        with shown(True) as show:
            (found,) = run([one], store, device=chosen.device, report=show)
        loss = float(at_end(found, "test", "loss")[0])
        print(f"ended: {label}, {time.monotonic() - began:.0f} s, test loss {loss:.4f}, run {one.cell.address}")

    for index in count():
        left = {name: [one for one in several if index < len(one.members)] for name, several in experiments.items()}
        if not any(left.values()):
            print("every seed is trained")
            return
        for name, several in left.items():
            for whole in several:
                train(name, whole, index)


def summary(stages: list[Stage], chosen: argparse.Namespace, runs: list[str]) -> str:
    """What ran, what failed, how long, and the trainings that ended."""
    head = f"{chosen.device}, size {chosen.size}, {chosen.minutes:g} minutes"
    lines = [f"{one.name:10s} {one.end:22s} {one.seconds:5.0f} s   {one.last}" for one in stages]
    failed = [one.name for one in stages if one.failed]
    verdict = f"failed: {', '.join(failed)}" if failed else "nothing failed"
    return "\n".join([head, *lines, *runs, f"{verdict}; {sum(one.seconds for one in stages):.0f} s in all"]) + "\n"


def main() -> int:
    """Run every stage; 1 if one failed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("only", nargs="?", choices=("trainings",), help="train in this process, without a limit")
    options.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    options.add_argument("--size", choices=("smoke", "paper"), default="paper")
    options.add_argument("--minutes", type=float, default=10.0, help="for all stages together")
    options.add_argument("--out", type=Path, default=OUT, help="where everything is written")
    chosen = options.parse_args()
    chosen.out = chosen.out.absolute()
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.only:
        trainings(chosen)
        return 0
    end, stages = time.monotonic() + 60 * chosen.minutes - CLOSING, []
    for name, command in commands(chosen).items():
        seconds = min(60 * chosen.minutes * SHARES[name], end - time.monotonic())
        stages.append(run_stage(name, command, max(1.0, seconds), chosen.out))
        print(f"{name}: {stages[-1].end}, {stages[-1].seconds:.0f} s; {stages[-1].last}", flush=True)
    said = (chosen.out / "trainings.txt").read_text("utf-8", "replace").splitlines()
    text = summary(stages, chosen, [line for line in said if line.startswith("ended: ")])
    (chosen.out / "summary.txt").write_text(text, "utf-8")
    print(text, end="")
    return 1 if any(one.failed for one in stages) else 0


if __name__ == "__main__":
    sys.exit(main())
