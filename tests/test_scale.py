"""The page on many machines: what it tells people to try is true."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.documents import DOCS, ROOT, blocks

pytestmark = [
    pytest.mark.killed,
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.xdist_group("ray"),  # one cluster at a time
]

(NODES,) = [block for block in blocks(DOCS / "how_to" / "scale.md", "sh") if "diff -r" in block]


def shell(text, folder, kill_rest=False):
    """Run the lines of a block in a folder, with trainings of a third of their length; return what they print.

    `kill_rest` kills the processes that the block leaves behind, which are in its process group.
    """
    four = (ROOT / "examples" / "studies" / "four.toml").read_text("utf-8")
    assert "duration = 400" in four
    (folder / "four.toml").write_text(four.replace("duration = 400", "duration = 130"))
    here = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    (folder / "block.sh").write_text(text)
    with (folder / "log").open("w") as log:  # not a pipe, which what the block leaves behind would keep open
        printing = {"stdout": log, "stderr": log}
        block = subprocess.Popen(
            ["bash", "block.sh"], cwd=folder, env={**os.environ, **here}, start_new_session=True, **printing
        )
        try:
            block.wait(timeout=300)
        except subprocess.TimeoutExpired:
            kill_rest = True
            raise
        finally:
            if kill_rest:
                with suppress(ProcessLookupError):
                    os.killpg(block.pid, signal.SIGKILL)
    return (folder / "log").read_text()


def test_nodes_that_are_killed_leave_the_same_bytes(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    assert NODES.count("ray stop") == NODES.count("pkill -9 -n raylet") == 1
    # both would end a cluster of somebody else; here they end processes of the block's group alone
    cluster, compared = NODES.replace("pkill -9 -n", "pkill -9 -g 0 -n").split("ray stop")
    with TemporaryDirectory(prefix="ray-") as session:  # short, since it holds sockets
        monkeypatch.setenv("RAY_TMPDIR", session)
        printed = shell(cluster, tmp_path, kill_rest=True)
    deaths = ("Raylet is terminated", "has been marked dead")  # the head sees the end, or misses the heartbeats
    assert any(death in printed for death in deaths), printed
    assert shell(compared, tmp_path) == "the same\n"
    assert len(list(tmp_path.glob("nodes/*/metrics.parquet"))) == 4
