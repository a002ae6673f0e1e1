"""The folder of files that can be made again at any time."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of files that can be recreated: `$ANCHORLAB_CACHE`, else `anchorlab` in the user's cache.

    The user's cache is `$XDG_CACHE_HOME`, or `~/.cache` without it.
    """
    if chosen := os.environ.get("ANCHORLAB_CACHE"):
        return Path(chosen).expanduser()
    users = os.environ.get("XDG_CACHE_HOME")
    return (Path(users) if users else Path.home() / ".cache") / "anchorlab"
