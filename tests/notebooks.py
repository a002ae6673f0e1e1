"""Notebooks, executed by a real kernel."""

from pathlib import Path
from typing import Any

import nbclient
import pytest


def execute(notebook: Any, folder: Path, workplace: Path, allow_errors: bool = False) -> None:
    """Run every cell in a kernel whose working directory is `workplace`; nothing else is kept outside `folder`."""
    from jupyter_client import AsyncKernelManager

    with pytest.MonkeyPatch.context() as changed:
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "ANCHORLAB_STORE"):
            changed.setenv(name, str(folder / name.lower()))
        changed.setenv("OMP_NUM_THREADS", "2")  # so that effects show their progress from threads
        manager = AsyncKernelManager(transport="ipc", ip=str(folder / "k"))  # no port is opened
        client = nbclient.NotebookClient(notebook, km=manager, timeout=600, allow_errors=allow_errors)
        client.execute(cwd=str(workplace))
