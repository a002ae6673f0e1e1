"""What a run leaves out, another runs: two runs of pytest on made-up tests, with and without processes."""

import os
import subprocess
import sys

import pytest

from tests.documents import ROOT

MADE_UP = """
import pytest
from pathlib import Path

def ran(name):
    with (Path(__file__).parent / "ran").open("a") as file:
        file.write(f"{name}\\n")

def needs(name):
    if not (Path(__file__).parent / "installed").exists():
        pytest.skip("could not import 'ray.made_up': none")
    ran(name)

def test_here(): ran("here")

@pytest.mark.slow
@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("n", ["a", "b::c"])
def test_slow(n): ran(f"slow {n}")

@pytest.mark.nightly
def test_nightly(): ran("nightly")

@pytest.mark.slow
@pytest.mark.nightly
def test_slow_nightly(): ran("slow nightly")

def test_extra(): needs("extra")

@pytest.mark.skipif(True, reason="there is no such device")
def test_device(): ran("device")
"""
SKIPPED = """
from pathlib import Path
import pytest
if not (Path(__file__).parent / "installed").exists():
    pytest.importorskip("ray.made_up")
def test_ray(): (Path(__file__).parent / "ray").touch()
"""
WHOLE = """
from pathlib import Path
(Path(__file__).parent / "collected").touch()
def test_whole(): pass
"""


def run(folder, *options):
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "ANCHORLAB_"))}
    plugins = [word for name in ("tests.left_out", "tests.rest", "no:cacheprovider") for word in ("-p", name)]
    command = [sys.executable, "-m", "pytest", *plugins, *options]
    subprocess.run(command, cwd=folder, env={**outer, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True)


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "2"])
def test_every_test_runs_once_and_nightly_ones_never(tmp_path, processes):
    for name, text in (("made_up", MADE_UP), ("skipped", SKIPPED), ("whole", WHOLE)):
        (tmp_path / f"test_{name}.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: x\n    nightly: x\n")
    note = tmp_path / "build" / "rest.txt"
    run(tmp_path, "-n", processes, "-m", "not (slow or nightly)", "--note-rest", str(note))
    assert (tmp_path / "ran").read_text().splitlines() == ["here"] and (tmp_path / "collected").exists()
    (tmp_path / "installed").touch()
    (tmp_path / "collected").unlink()
    run(
        tmp_path,
        "-n",
        processes,
        "--dist",
        "loadgroup",
        "--no-loadscope-reorder",
        "-m",
        "not nightly",
        "--rest",
        str(note),
    )
    ran = (tmp_path / "ran").read_text().splitlines()
    assert sorted(ran) == ["extra", "here", "slow a", "slow b::c"] and (tmp_path / "ray").exists()
    assert not (tmp_path / "collected").exists()  # nothing in that file was left out
