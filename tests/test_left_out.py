"""What a run leaves out is said at its end: a run of pytest on made-up tests, with and without processes."""

import os
import subprocess
import sys

import pytest

from tests.documents import ROOT
from tests.extras import EXTRAS, extra_of

MADE_UP = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("n", range(3))
def test_slow(n): pass

@pytest.mark.browser
@pytest.mark.slow
def test_page(): pass

def test_here(): pass

def test_extra():
    pytest.importorskip("transformer_lens_of_tomorrow")

def test_two():
    pytest.importorskip("inspect_ai.made_up")

@pytest.mark.skipif(True, reason="there is no such device")
def test_device(): pass
"""
SKIPPED_FILE = "import pytest\npytest.importorskip('ray.made_up')\ndef test_ray(): pass\n"


def run(folder, *options, **settings):
    (folder / "test_made_up.py").write_text(MADE_UP)
    (folder / "test_cluster.py").write_text(SKIPPED_FILE)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: x\n    browser: x\n")
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "ANCHORLAB_"))}
    environment = {**outer, "PYTHONPATH": str(ROOT), **settings}
    command = [sys.executable, "-m", "pytest", "-p", "tests.left_out", "-p", "no:cacheprovider", *options, str(folder)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.partition("left out")[2].splitlines()[1:]


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "2"])
def test_what_is_left_out_is_counted_with_its_command(tmp_path, processes):
    code, lines = run(tmp_path, "-n", processes, "-m", "not (slow or browser)")
    assert code == 0
    assert lines[:6] == [
        "3 tests that take more than two seconds each",
        "1 test that drive a headless browser (make browser)",
        "1 file: needs the extra ray: pip install -c requirements/extras.txt -e '.[ray]'",
        "1 test: could not import 'transformer_lens_of_tomorrow': No module named 'transformer_lens_of_tomorrow'",
        "1 test: needs the extra inspect: pip install -c requirements/extras.txt -e '.[inspect]'",
        "1 test: there is no such device",
    ]
    assert lines[6] == "`make test-rest` installs what they need and runs them, `make nightly` every test"


@pytest.mark.slow
def test_where_nothing_may_be_left_out_a_missing_extra_fails(tmp_path):
    assert run(tmp_path, "-n", "0", ANCHORLAB_NOTHING_LEFT_OUT="1")[0] == 1
    chosen = ("-n", "0", "--ignore", str(tmp_path / "test_cluster.py"), "--deselect")
    there = (*chosen, "test_made_up.py::test_two")
    assert run(tmp_path, *there, ANCHORLAB_NOTHING_LEFT_OUT="1")[0] == 0  # a device cannot be installed


def test_a_module_belongs_to_the_first_extra_that_names_it():
    assert extra_of("transformers.utils") == "language" and any("transformers" in one for one in EXTRAS["serving"])
    assert (extra_of("yaml"), extra_of("inspect_ai"), extra_of("einops")) == ("dev", "inspect", None)
