"""Run commands one after the other, whatever becomes of them, and end in one page: what ran, how long, what failed.

`python3 tests/steps.py FOLDER < COMMANDS` reads lines `name: command`. Where a name ends in `!`, the steps after it
need it and are left out if it fails. Outputs are kept in FOLDER, the page in FOLDER.txt; with `--show` outputs are
printed, too. The exit code is 1 if a command failed. The gates begin with this file, so it imports nothing but Python's
own.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# pytest's names of failed tests, mypy's errors and the targets that failed
FAILED = re.compile(r"^(?:(?:FAILED|ERROR) \S+\.py.*|\S+:\d+: error: .*|make\S*: \*\*\* .*)$", re.MULTILINE)
END = re.compile(r"^(\d+ (?:failed|passed|skipped|deselected|error).* in [\d.]+s).*$", re.MULTILINE)  # its last line
TAIL = 20  # lines of a step that failed without any of these


@dataclass(frozen=True)
class Step:
    """A command that has run: its exit code, seconds by the clock and of processor, and what it printed."""

    name: str
    code: int
    seconds: float
    processor: float
    output: str

    @property
    def line(self) -> str:
        """Its line of the table."""
        verdict, ends = "FAILED" if self.code else "ok", " | ".join(END.findall(self.output))
        return f"{self.seconds:8.0f} {self.processor:10.0f}  {verdict:8}{self.name:20}{ends}".rstrip()

    @property
    def failed(self) -> list[str]:
        """The lines that name what failed, or the last ones that it printed."""
        return list(dict.fromkeys(FAILED.findall(self.output))) or self.output.splitlines()[-TAIL:]


def run(name: str, command: str, output: Path, show: bool) -> Step:
    """Run a command in a shell. It writes to a file, not to a pipe, which what it leaves behind could keep open."""
    began, before, running = time.monotonic(), os.times(), True
    with output.open("wb") as written, output.open("rb") as read:
        process = subprocess.Popen(
            command, shell=True, stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.STDOUT
        )
        while running:
            running = process.poll() is None
            told = read.read()
            if show:
                sys.stdout.buffer.write(told)
                sys.stdout.flush()
            time.sleep(0.1 * running)
    after = os.times()
    processor = sum(after[2:4]) - sum(before[2:4])  # of the processes that it started and waited for
    text = output.read_text("utf-8", errors="replace")
    return Step(name, process.returncode, time.monotonic() - began, processor, text)


def page(done: Sequence[Step], left: Sequence[str]) -> str:
    """The table of the steps, and below it what failed in each."""
    seconds, processor = sum(step.seconds for step in done), sum(step.processor for step in done)
    lines = [" seconds  processor", *(step.line for step in done)]
    lines += [f"{'':21}not run {name}" for name in left]
    lines += [f"{seconds:8.0f} {processor:10.0f}  {seconds / 60:.1f} minutes in all"]
    for step in done:
        if step.code:
            lines += ["", f"{step.name}:", *step.failed]
    return "\n".join([*lines, ""])


def main(folder: str, *options: str) -> int:
    kept, done = Path(folder), []
    kept.mkdir(parents=True, exist_ok=True)
    lines = [line.strip() for line in sys.stdin if line.strip() and not line.startswith("#")]
    named = [line.partition(": ")[::2] for line in lines]
    for number, (marked, command) in enumerate(named, 1):
        name = marked.rstrip("!")
        print(f"\n== {name}: {command}", flush=True)
        done.append(run(name, command, kept / f"{number:02}-{name}.txt", "--show" in options))
        print(done[-1].line, flush=True)
        kept.with_suffix(".txt").write_text(page(done, [one.rstrip("!") for one, _ in named[number:]]), "utf-8")
        if done[-1].code and name != marked:
            break
    print(f"\n{kept.with_suffix('.txt').read_text('utf-8')}", end="")
    return int(any(step.code for step in done))


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
