"""`anchorlab runs pack` and `anchorlab runs unpack`."""

from pathlib import Path
from typing import Literal

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import counted, print_json, print_text, waiting


def pack_(*, where: shared.Where = None, store: shared.StoreFolder = None, json: shared.Json = False) -> None:
    """Pack many small finished runs into few files; every command reads them as before.

    Runs above 1 MB, unfinished and damaged runs, and folders with other files of yours stay as they are.
    """
    _move("pack", where, store, json)


def unpack_(*, where: shared.Where = None, store: shared.StoreFolder = None, json: shared.Json = False) -> None:
    """Move packed runs back into folders of their own."""
    _move("unpack", where, store, json)


def _move(verb: Literal["pack", "unpack"], where: list[str] | None, store: Path | None, json: bool) -> None:
    from anchorlab.runs import Store

    with waiting(f"{verb}ing the runs", json):
        moved = getattr(Store(store), verb)(*where or ())
    if json:
        print_json({f"{verb}ed": moved})
    else:
        print_text(f"{verb}ed {counted(len(moved), 'run')}" if moved else f"nothing to {verb}")
