"""A real server of a language model: transformers' own, with SmolLM2-135M."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.extras import install

START = "import sys; from transformers.cli.transformers import main; sys.argv[0] = 'transformers'; main()"
PATIENCE = 300.0  # seconds until it listens; ten where nothing else runs


def _listens(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url.removesuffix('/v1')}/health", timeout=5) as reply:
            return reply.status == 200
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


@pytest.fixture(scope="session")
def serving(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that has SmolLM2, under the name of its folder."""
    transformers = pytest.importorskip("transformers")
    if not transformers.utils.import_utils.is_serve_available():
        pytest.skip(f"needs the extra serving: {install('serving')}")
    home = tmp_path_factory.mktemp("hub")
    (home / "hub").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (home / "log").open("w")
    process = subprocess.Popen(
        [
            sys.executable, "-c", START, "serve", str(smollm2), "--port", str(port), "--host", "127.0.0.1", "--device",
            "cpu",
        ],
        env=os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        stdout=log,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    address, end = f"http://127.0.0.1:{port}/v1", time.monotonic() + PATIENCE
    try:
        while not _listens(address):
            assert process.poll() is None, (home / "log").read_text()
            assert time.monotonic() < end, "the server did not start"
            time.sleep(0.5)
        yield address
    finally:
        process.kill()
        process.wait(30)
        log.close()
