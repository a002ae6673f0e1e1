"""What decomposes matrices does so after torch's number of threads has changed, as it does around a training."""

import subprocess
import sys

import pytest

from tests.documents import ROOT


@pytest.mark.slow
def test_decompositions_after_the_number_of_threads_has_grown():
    """In one fresh process: see `tests/changed_threads.py`, which compares each with a closed form."""
    done = subprocess.run([sys.executable, "-m", "tests.changed_threads"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    called = ["probed", "components", "circuits", "truncated", "orthonormal", "along_a_curve", "by_numpy"]
    assert done.stdout.split() == called
