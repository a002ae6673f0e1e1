"""`anchorlab browse`."""

from pathlib import Path

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import check_file, hand_out, waiting
from anchorlab.errors import StoreError


def browse(*, store: shared.StoreFolder = None, out: Path | None = None, json: shared.Json = False) -> None:
    """Write one HTML page about the store: a table of runs, their curves, the studies and their claims.

    The page loads nothing from the network.

    Parameters
    ----------
    out
        File to write; by default `browse.html` in the store.
    """
    check_file(out, "out")

    from anchorlab.runs import Store

    kept = Store(store)
    if not kept.root.is_dir():
        raise StoreError(f"{kept.root}: has no runs; `anchorlab train TASK` makes one")

    from anchorlab.report.browse import write_browser

    with waiting("reading the runs of the store", quiet=json):
        page = write_browser(kept, out).absolute()
    hand_out(json, lambda: {"page": str(page)}, (), page=page)
