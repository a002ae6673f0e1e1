"""The gates' commands run to the end, and their page says what each took and what failed."""

import subprocess
import sys

import pytest

from tests.documents import ROOT

PASSES = "echo 8 passed, 2 skipped in 3.21s; echo beside"
FAILS = "echo 'FAILED tests/test_a.py::test_b[c - d] - assert 1 == 2'; echo '1 failed, 8 passed in 3.21s'; exit 3"


def run(folder, lines, *options):
    command = [sys.executable, str(ROOT / "tests" / "steps.py"), "build/gates", *options]
    done = subprocess.run(command, cwd=folder, input="\n".join(lines), capture_output=True, text=True, check=False)
    page = (folder / "build" / "gates.txt").read_text()
    assert done.stderr == "" and done.stdout.endswith(page)
    return done.returncode, done.stdout.removesuffix(page), [line.split(maxsplit=2) for line in page.splitlines()]


def test_a_failure_is_told_at_the_end_and_the_others_run(tmp_path):
    code, _, page = run(tmp_path, ["# a comment", f"one: {PASSES}", "", f"two: {FAILS}", "three: echo here; exit 1"])
    assert code == 1
    assert page[0] == ["seconds", "processor"]
    assert [line[2].split(maxsplit=2) for line in page[1:4]] == [
        ["ok", "one", "8 passed, 2 skipped in 3.21s"],
        ["FAILED", "two", "1 failed, 8 passed in 3.21s"],
        ["FAILED", "three"],
    ]
    assert [" ".join(line) for line in page[4:]] == [
        "0 0 0.0 minutes in all",
        "",
        "two:",
        "FAILED tests/test_a.py::test_b[c - d] - assert 1 == 2",
        "",
        "three:",
        "here",
    ]
    assert (tmp_path / "build" / "gates" / "02-two.txt").read_text().startswith("FAILED")


def test_targets_of_make_and_errors_of_types_are_named(tmp_path):
    (tmp_path / "Makefile").write_text("types:\n\t@echo 'src/a.py:3: error: Wrong  [misc]'; echo beside; exit 1\n")
    code, _, page = run(tmp_path, ["types: make types"])
    heading, error, target = page[4:]
    assert (code, heading, error) == (1, ["types:"], ["src/a.py:3:", "error:", "Wrong  [misc]"])
    assert target[0].startswith("make") and target[1] == "***" and target[2].endswith("types] Error 1")


def test_without_what_is_needed_the_others_are_left_out(tmp_path):
    code, _, page = run(tmp_path, ["one!: exit 2", "two: touch here"])
    assert code == 1 and page[2] == ["not", "run", "two"] and not (tmp_path / "here").exists()
    code, _, page = run(tmp_path, ["one!: true", "two: touch here"])
    assert code == 0 and (tmp_path / "here").exists()


@pytest.mark.parametrize("options", [(), ("--show",)])
def test_outputs_are_shown_on_demand(tmp_path, options):
    _, said, _ = run(tmp_path, ["one: echo first; sleep 0.3; echo last", "two: cat"], *options)
    assert said.count("first\nlast\n") == len(options)


def test_seconds_of_processor_are_told_beside_those_of_the_clock(tmp_path):
    (tmp_path / "busy.py").write_text("import time\nwhile time.process_time() < 1.2: pass\n")
    _, _, page = run(tmp_path, ["one: sleep 1.2", f"two: {sys.executable} busy.py"])
    assert page[1][:2] == ["1", "0"] and page[2][1] == "1"
