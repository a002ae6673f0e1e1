"""Check a folder of model files from an untrusted source before a library opens them."""

import os
from contextlib import suppress
from itertools import chain
from pathlib import Path
from stat import S_ISBLK, S_ISCHR, S_ISFIFO

from anchorlab.errors import SpecError
from anchorlab.printable import printable

_TEMPLATES = "additional_chat_templates"  # the only subfolder where transformers reads files


def check_files(folder: Path, field: str) -> None:
    """Raise an error if a pipe or a device is among the files that transformers may open: reading it may never end.

    Symbolic links are followed, because the hub's cache consists of them. A missing folder passes the check.

    Errors: `SpecError` at `field`.
    """
    if not os.path.isdir(folder):  # noqa: PTH112 - also for names on the hub, and names that no folder has
        return
    for path in chain(folder.glob("*"), folder.glob(f"{_TEMPLATES}/*")):
        mode = 0
        with suppress(OSError):  # a link to nothing, or not ours to read
            mode = path.stat().st_mode
        if S_ISFIFO(mode) or S_ISCHR(mode) or S_ISBLK(mode):
            raise SpecError(field, f"{printable(str(path))} is no file", "remove it")
