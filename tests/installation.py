"""Pages run as a reader runs them: by the programs of an installation, in a folder of the test's own.

The installation is the environment of the tests, or the one whose folder of programs `$ANCHORLAB_PROGRAMS` names. So
`make test-wheel` runs the same tests on the wheel, and `make test-installed` with its declared dependencies alone.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.documents import ROOT, all_blocks

NAMED = os.environ.get("ANCHORLAB_PROGRAMS")
SHORT_TRAINING = {"--recipe.duration": "3", "--recipe.evaluation.size": "20", "--workers": "1"}
FEW_SEQUENCES = {"truncate": "--n", "circuit": "--sequences"}


@dataclass(frozen=True)
class Ran:
    """What the page's Python printed, what each command said, by its words, and what stood for RUN and OTHER."""

    printed: str
    said: dict[str, str]
    addresses: dict[str, str]


def pytest_itemcollected(item: pytest.Item) -> None:
    if "installation" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.installed)


def shortened(words: list[str]) -> list[str]:
    """The same command where the page's own takes minutes: a short training, few sequences, a small profile, a plan."""
    if words[0] == "train":
        for option, value in SHORT_TRAINING.items():
            words = [*words[: words.index(option)], *words[words.index(option) + 2 :]] if option in words else words
            words = [*words, option, value]
    if words[0] in FEW_SEQUENCES:
        return [*words, FEW_SEQUENCES[words[0]], "20"]
    if words[0] == "verify" or (words[0] == "study" and "*" in words[1]):
        return [*words, "--dry-run"]
    if words[0] == "study":
        return [*("smoke" if word == "quick" else word for word in words), "--workers", "1"]
    return words


@dataclass(frozen=True)
class Installation:
    """The programs, and the folder in which they run."""

    folder: Path
    programs: Path

    @property
    def settings(self) -> dict[str, str]:
        """The variables of its processes; another installation does not see the sources of this one."""
        kept = {name: value for name, value in os.environ.items() if not (NAMED and name == "PYTHONPATH")}
        store = {"ANCHORLAB_STORE": str(self.folder / "runs")}
        return {**kept, **store, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "COLUMNS": "120"}

    def run(self, program: str, *arguments: str) -> str:
        """What a program prints; it must succeed."""
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(command, cwd=self.folder, env=self.settings, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (arguments, done.stdout[-2000:], done.stderr[-4000:])
        return done.stdout

    def run_page(self, page: Path, python: Callable[[str], str] = str) -> Ran:
        """Run every block of Python and every line that calls `anchorlab`, in their order."""
        blocks: list[tuple[str, object]] = []
        for language, text in all_blocks(page):
            if language == "python":
                blocks.append((language, python(text)))
            elif language == "bash":
                lines = [shlex.split(line, comments=True) for line in text.splitlines()]
                blocks.append((language, [shortened(line[1:]) for line in lines if line[:1] == ["anchorlab"]]))
        asked, report = self.folder.parent / "blocks.json", self.folder.parent / "said.json"
        asked.write_text(json.dumps(blocks), "utf-8")
        printed = self.run("python", str(ROOT / "tests" / "page_driver.py"), str(asked), str(report))
        said, addresses = json.loads(report.read_text("utf-8"))
        return Ran(printed, {" ".join(words): told for words, told in said}, addresses)


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    folder = tmp_path / "here"
    folder.mkdir()
    return Installation(folder, Path(NAMED) if NAMED else Path(sys.executable).parent)
