"""What a result was computed with: versions, machine, commit."""

import platform
from functools import cache
from pathlib import Path


@cache
def environment() -> dict[str, str | None]:
    """Versions of anchorlab, torch, numpy and Python, the platform, and the commit of anchorlab's source if known.

    The versions come from the installed packages' metadata; torch is not imported for it.
    """
    return {
        **{name: _version(name) for name in ("anchorlab", "torch", "numpy")},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "commit": _commit(),
    }


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the working tree that holds this file, `-dirty` behind it where files differ from it."""
    import subprocess

    here = Path(__file__)

    def git(*arguments: str) -> str | None:
        # Without optional locks git does not refresh its index: looking must not write.
        command = ["git", "--no-optional-locks", "-C", str(here.parent), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installation may lie inside the repository of somebody's own project, whose commit says nothing about us.
    if git("ls-files", "--error-unmatch", here.name) is None:
        return None
    return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
