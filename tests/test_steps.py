"""The gates' commands run to the end, and their page says what each took and what failed."""

import subprocess
import sys

from tests.documents import ROOT

PASSES = "echo 8 passed, 2 skipped in 3.21s; echo beside"
FAILS = "echo 'FAILED tests/test_a.py::test_b[c - d] - assert 1 == 2'; echo '1 failed, 8 passed in 3.21s'; exit 3"


def run(folder, lines):
    command = [sys.executable, str(ROOT / "tests" / "steps.py"), "build/gates"]
    done = subprocess.run(command, cwd=folder, input="\n".join(lines), capture_output=True, text=True, check=False)
    page = (folder / "build" / "gates.txt").read_text()
    assert done.stderr == "" and done.stdout.endswith(page)
    return done.returncode, [" ".join(line.split()) for line in page.splitlines()]


def test_a_failure_is_told_at_the_end_and_the_others_run(tmp_path):
    code, page = run(tmp_path, ["# a comment", f"one: {PASSES}", "", f"two: {FAILS}", "three: echo here; exit 1"])
    assert code == 1
    verdicts = ["ok one 8 passed, 2 skipped in 3.21s", "FAILED two 1 failed, 8 passed in 3.21s", "FAILED three"]
    assert [line.split(maxsplit=2)[2] for line in page[1:4]] == verdicts
    ends = ["two:", "FAILED tests/test_a.py::test_b[c - d] - assert 1 == 2", "", "three:", "here"]
    assert page[4:] == ["0 0 0.0 minutes in all", "", *ends]
    assert (tmp_path / "build" / "gates" / "02-two.txt").read_text().startswith("FAILED")


def test_without_what_is_needed_the_others_are_left_out(tmp_path):
    code, page = run(tmp_path, ["one!: exit 2", "two: touch here"])
    assert code == 1 and page[2] == "not run two" and not (tmp_path / "here").exists()
    code, page = run(tmp_path, ["one!: true", "two: touch here"])
    assert code == 0 and (tmp_path / "here").exists()
