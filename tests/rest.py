"""What one run of the suite leaves out, another runs: every test once, and only the files in question are collected.

`--note-rest FILE` notes the tests that marks deselect, and the tests and files that lack what can be installed.
`--rest FILE` runs those, what takes long first, and the tests of a file in one process, which share what they make.
`make test` notes, `make test-rest` runs them where everything is installed.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.left_out import can_be_installed, reason

KEY = "rest"
LONG = ("language", "killed", "slow", "browser")  # the marks of what takes long, the longest first


class Noted:
    """Notes names of tests and paths of files; a worker hands on what it alone knows."""

    def __init__(self, path: Path) -> None:
        self.path, self.names = path, set[str]()

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self.names.update(item.nodeid for item in items)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def _note(self, report: Any) -> None:
        if report.skipped and can_be_installed({reason(report)}):
            self.names.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[KEY] = json.dumps(sorted(self.names))
        else:
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text("".join(f"{name}\n" for name in sorted(self.names)), "utf-8")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.names.update(json.loads(getattr(node, "workeroutput", {}).get(KEY, "[]")))


class Rest:
    """Collects the files of what was noted and keeps what was noted."""

    def __init__(self, path: Path, root: Path) -> None:
        self.root, self.names = root, set(path.read_text("utf-8").splitlines())
        self.files = {name.partition("::")[0] for name in self.names}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        is_test = collection_path.is_file() and collection_path.name.startswith("test_")
        return True if is_test and str(collection_path.relative_to(self.root)) not in self.files else None

    @pytest.hookimpl(tryfirst=True)  # xdist adds groups to the names later
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        groups: dict[str, list[pytest.Item]] = {}
        for item in items:
            file = item.nodeid.partition("::")[0]
            if not self.names.isdisjoint((item.nodeid, file)):
                if item.get_closest_marker("xdist_group") is None:
                    item.add_marker(pytest.mark.xdist_group(file))
                groups.setdefault(item.get_closest_marker("xdist_group").args[0], []).append(item)
        items[:] = [item for group in sorted(groups.values(), key=_rank) for item in group]


def _rank(group: list[pytest.Item]) -> int:
    marks = {mark.name for item in group for mark in item.iter_markers()}
    return next((rank for rank, mark in enumerate(LONG) if mark in marks), len(LONG))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--note-rest", type=Path)
    parser.addoption("--rest", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    if config.option.note_rest:
        config.pluginmanager.register(Noted(config.option.note_rest), "noted")
    if config.option.rest:
        config.pluginmanager.register(Rest(config.option.rest, config.rootpath), "rest")
