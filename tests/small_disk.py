"""A disk of few kilobytes, which can be full."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class NoDiskError(Exception):
    """This user may not mount a file system, or the system has none in memory."""


@contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[int], Path]]:
    """Give a function that gives a file system of so many kilobytes; called again, it changes the size.

    Errors: `NoDiskError` from the function.
    """
    folder.mkdir(parents=True)

    def sized(kilobytes: int) -> Path:
        options = f"{'remount,' if os.path.ismount(folder) else ''}size={kilobytes}k"
        command = ["mount", "-t", "tmpfs", "-o", options, "anchorlab-test", str(folder)]
        if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
            raise NoDiskError("needs the right to mount a file system")
        return folder

    try:
        yield sized
    finally:
        if os.path.ismount(folder):
            subprocess.run(["umount", str(folder)], check=True)
