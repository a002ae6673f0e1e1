"""What a run leaves out is said at its end, and another run makes up for it: runs of pytest on made-up tests."""

import os
import subprocess
import sys

import pytest

from tests.documents import ROOT
from tests.extras import EXTRAS, extra_of

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
@pytest.mark.parametrize("n", ["a", "b::c", "d"])
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


def run(folder, *options, **settings):
    """The exit code of a run of the made-up tests, and the lines that it says of what it left out."""
    for name, text in (("made_up", MADE_UP), ("skipped", SKIPPED), ("whole", WHOLE)):
        (folder / f"test_{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: x\n    nightly: x\n")
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "ANCHORLAB_"))}
    plugins = [word for name in ("tests.left_out", "tests.rest", "no:cacheprovider") for word in ("-p", name)]
    command, settings = [sys.executable, "-m", "pytest", *plugins, *options], {"PYTHONPATH": str(ROOT), **settings}
    done = subprocess.run(command, cwd=folder, env=outer | settings, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.partition("left out")[2].splitlines()[1:]


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "2"])
def test_what_is_left_out_is_said_and_run_once_by_another_but_nightly_tests(tmp_path, processes):
    note = tmp_path / "build" / "rest.txt"
    code, said = run(tmp_path, "-n", processes, "-m", "not (slow or nightly)", "--note-rest", str(note))
    assert code == 0 and said[:5] == [
        "3 tests that take more than two seconds each",
        "2 tests that take long, or repeat for more cases what others check once (make nightly)",
        "1 test and 1 file: needs the extra ray: pip install -c requirements/extras.txt -e '.[ray]'",
        "1 test: there is no such device",
        "`make test-rest` installs what they need and runs them, `make nightly` every test",
    ]
    assert (tmp_path / "ran").read_text().splitlines() == ["here"] and (tmp_path / "collected").exists()
    (tmp_path / "installed").touch()
    (tmp_path / "collected").unlink()
    grouped = ("-n", processes, "--dist", "loadgroup", "--no-loadscope-reorder")
    assert run(tmp_path, *grouped, "-m", "not nightly", "--rest", str(note))[0] == 0
    ran = (tmp_path / "ran").read_text().splitlines()
    assert sorted(ran) == ["extra", "here", "slow a", "slow b::c", "slow d"] and (tmp_path / "ray").exists()
    assert not (tmp_path / "collected").exists()  # nothing in that file was left out


@pytest.mark.slow
def test_where_nothing_may_be_left_out_a_missing_extra_fails(tmp_path):
    assert run(tmp_path, "-n", "0", ANCHORLAB_NOTHING_LEFT_OUT="1")[0] == 1
    (tmp_path / "installed").touch()
    assert run(tmp_path, "-n", "0", ANCHORLAB_NOTHING_LEFT_OUT="1")[0] == 0  # a device cannot be installed


def test_a_module_belongs_to_the_first_extra_that_names_it():
    assert extra_of("transformers.utils") == "language" and any("transformers" in one for one in EXTRAS["serving"])
    assert (extra_of("yaml"), extra_of("inspect_ai"), extra_of("einops")) == ("dev", "inspect", None)
