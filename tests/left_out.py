"""At the end of a run, say which tests were left out and with which command they run.

With `ANCHORLAB_NOTHING_LEFT_OUT=1`, as in CI, a run that lacks something that can be installed fails.
"""

import json
import os
import re
from collections import Counter
from typing import Any

import pytest

from tests.extras import extra_of, install

MARKS = {  # the first that a test has is told
    "nightly": "take long, or repeat for more cases what others check once (make nightly)",
    "language": "compute with SmolLM2-135M (make language)",
    "browser": "drive a headless browser (make browser)",
    "installed": "run pages in an installation of the wheel (make test-wheel)",
    "killed": "start processes and kill them",
    "slow": "take more than two seconds each",
    "untyped": "pass values of the wrong type",
    "cuda": "need a CUDA device",
}
END = "`make test-rest` installs what they need and runs them, `make nightly` every test"
KEY = "left_out"


class LeftOut:
    """Counts by reason: tests that a mark deselects, and files that are skipped; a worker hands them on."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.deselected: Counter[str] = Counter()
        self.files: Counter[str] = Counter()

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        if self.config.option.markexpr and not self.config.option.keyword:
            marks = [next((mark for mark in MARKS if item.get_closest_marker(mark)), None) for item in items]
            self.deselected.update(mark for mark in marks if mark)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.files[reason(report)] += 1

    @property
    def tests(self) -> Counter[str]:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        skipped = reporter.stats.get("skipped", ()) if reporter else ()
        return Counter(reason(one) for one in skipped if one.when != "collect")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput[KEY] = json.dumps([self.deselected, self.files])
        elif os.environ.get("ANCHORLAB_NOTHING_LEFT_OUT") == "1" and can_be_installed({*self.files, *self.tests}):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        deselected, files = json.loads(getattr(node, "workeroutput", {}).get(KEY, "[{}, {}]"))
        self.deselected |= Counter(deselected)  # every worker collects the same
        self.files |= Counter(files)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        lines = summary(self.deselected, self.files, self.tests)
        if lines:
            terminalreporter.section("left out", sep="-")
            terminalreporter.write("\n".join([*lines, ""]))


def reason(report: Any) -> str:
    """Why a test or a file was skipped."""
    told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return explained(str(told).removeprefix("Skipped: "))


def explained(reason: str) -> str:
    """A reason to skip; that of `pytest.importorskip` with the extra that is missing, and its command."""
    found = re.match(r"could not import '([\w.]+)'", reason)
    extra = extra_of(found[1]) if found else None
    return f"needs the extra {extra}: {install(extra)}" if extra else reason


def can_be_installed(reasons: set[str]) -> list[str]:
    """The reasons that end in a command: what this machine lacks could be there."""
    return sorted(reason for reason in reasons if re.search(r"^needs .*: (make|pip) ", reason))


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"


def summary(deselected: Counter[str], files: Counter[str], tests: Counter[str]) -> list[str]:
    """What is said: deselected tests, the most first, and skipped ones and files by reason."""
    lines = [f"{_number(count, 'test')} that {MARKS[mark]}" for mark, count in deselected.most_common()]
    for reason, _ in (files + tests).most_common():
        parts = [_number(count[reason], noun) for count, noun in ((tests, "test"), (files, "file")) if count[reason]]
        lines.append(f"{' and '.join(parts)}: {reason}")
    return [*lines, END] if lines else []


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LeftOut(config), "left-out")
