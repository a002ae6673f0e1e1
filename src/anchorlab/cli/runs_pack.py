"""`anchorlab runs pack` and `anchorlab runs unpack`."""

from pathlib import Path

from anchorlab.cli.output import Json, counted, print_json, print_text, waiting
from anchorlab.cli.runs_matching import Where


def pack_(*, where: Where = None, store: Path | None = None, json: Json = False) -> None:
    """Put many small finished runs into few files; every command reads them there as before.

    Runs above 1 MB stay in folders of their own, and so do unfinished and damaged runs and folders with files of yours.

    Parameters
    ----------
    where
        Only runs that fulfil conditions, as for `anchorlab runs`.
    store
        Folder of stored runs and findings; by default $ANCHORLAB_STORE, or `runs`.
    json
        Print JSON.
    """
    from anchorlab.runs import Store

    with waiting("packing the runs", json):
        moved = Store(store).pack(*where or ())
    if json:
        print_json({"packed": moved})
    else:
        print_text(f"packed {counted(len(moved), 'run')}" if moved else "nothing to pack")


def unpack_(*, where: Where = None, store: Path | None = None, json: Json = False) -> None:
    """Give packed runs folders of their own again.

    Parameters
    ----------
    where
        Only runs that fulfil conditions, as for `anchorlab runs`.
    store
        Folder of stored runs and findings; by default $ANCHORLAB_STORE, or `runs`.
    json
        Print JSON.
    """
    from anchorlab.runs import Store

    with waiting("unpacking the runs", json):
        moved = Store(store).unpack(*where or ())
    if json:
        print_json({"unpacked": moved})
    else:
        print_text(f"unpacked {counted(len(moved), 'run')}" if moved else "nothing to unpack")
