"""The environment a result was computed in: versions, platform, commit."""

import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path


@cache
def environment() -> dict[str, str | None]:
    """Return the versions of anchorlab, torch, numpy and Python, the platform, and anchorlab's commit if known.

    Versions are read from package metadata, so torch is not imported.
    """
    return {
        **{name: _version(name) for name in ("anchorlab", "torch", "numpy")},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "commit": _commit(),
    }


@cache
def processor() -> str:
    """Return the name of the processor, such as its model name in /proc/cpuinfo."""
    with suppress(OSError):
        rows = Path("/proc/cpuinfo").read_text().splitlines()
        if names := [row.split(":", 1)[1].strip() for row in rows if "model name" in row]:
            return names[0]
    return platform.processor() or platform.machine()


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the working tree with this file, with `-dirty` if tracked files differ; None if unknown."""
    import subprocess

    here = Path(__file__)

    def git(*arguments: str) -> str | None:
        # Without optional locks, git does not write its index file.
        command = ["git", "--no-optional-locks", "-C", str(here.parent), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installation may lie inside another project's repository, whose commit is not ours.
    if git("ls-files", "--error-unmatch", here.name) is None:
        return None
    return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
