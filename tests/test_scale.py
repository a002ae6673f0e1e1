"""The page on many machines: what it tells people to try is true."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.documents import DOCS, ROOT, blocks
from tests.engine.killed import wait_until

pytestmark = [
    pytest.mark.killed,
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.xdist_group("ray"),  # one cluster at a time
]

FIRST = blocks(DOCS / "how_to" / "scale.md", "sh")[0]
ALONE, NODES = [block for block in blocks(DOCS / "how_to" / "scale.md", "sh") if "diff -r" in block]


def shell(text, folder):
    """Run the lines of a block in a folder, with trainings of a third of their length; return what they print."""
    four = (ROOT / "examples" / "studies" / "four.toml").read_text("utf-8")
    assert "duration = 400" in four
    (folder / "four.toml").write_text(four.replace("duration = 400", "duration = 130"))
    here = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    (folder / "block.sh").write_text(text)
    with (folder / "log").open("w") as log:  # not a pipe, which what the block leaves behind would keep open
        printing = {"stdout": log, "stderr": log}
        subprocess.run(
            ["bash", "block.sh"], cwd=folder, env={**os.environ, **here}, timeout=300, check=False, **printing
        )
    return (folder / "log").read_text()


def test_the_first_block_as_it_is_written(tmp_path):
    """On a new store, in the order of the page: the study ends, and so do the workers."""
    printed = shell(FIRST, tmp_path)
    assert "claims" in printed, printed
    assert len(list(tmp_path.glob("STORE/*/metrics.parquet"))) == 8  # four, and each untrained
    wait_until(lambda: not list(tmp_path.glob("STORE/workers/*")), 30)


def test_workers_and_nodes_that_are_killed_leave_the_same_bytes(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    printed = shell(ALONE, tmp_path)
    assert printed.count("Killed") == 2, printed
    assert printed.splitlines()[-1] == "the same", printed
    assert len(list(tmp_path.glob("shared/*/metrics.parquet"))) == 4
    assert "ray stop" in NODES
    with TemporaryDirectory(prefix="ray-") as session:  # short, since it holds sockets
        monkeypatch.setenv("RAY_TMPDIR", session)
        # Every process of the cluster has its folder among its arguments; no cluster of anybody else is stopped.
        end = ["pkill", "-9", "-f", session]
        try:
            printed = shell(NODES.replace("ray stop", " ".join(end)), tmp_path)
        finally:
            assert subprocess.run(end, check=False).returncode == 1  # the block has left nothing
    deaths = ("Raylet is terminated", "has been marked dead")  # the head sees the end, or misses the heartbeats
    assert any(death in printed for death in deaths), printed
    assert printed.splitlines()[-1] == "the same", printed
    assert len(list(tmp_path.glob("nodes/*/metrics.parquet"))) == 4
