"""`anchorlab browse`."""

from contextlib import suppress
from pathlib import Path
from time import sleep

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import check_file, hand_out, waiting
from anchorlab.errors import SpecError, StoreError


def browse(
    *, store: shared.StoreFolder = None, out: Path | None = None, every: int | None = None, json: shared.Json = False
) -> None:
    """Write one HTML page about the store: a table of runs, their curves, the studies and their claims.

    The page loads nothing from the network. Unfinished runs have curves up to their newest state; training saves its
    state about every 20 seconds.

    Parameters
    ----------
    out
        File to write; by default `browse.html` in the store.
    every
        Seconds after which the page is written again, until Ctrl-C; the page reloads itself as often.
    """
    check_file(out, "out")
    if every is not None and every < 1:
        raise SpecError("every", f"{every} is not a number of seconds", "give 1 or more")

    kept = shared.existing_store(store)
    if not kept.root.is_dir():
        raise StoreError(f"{kept.root}: has no runs; `anchorlab train TASK` makes one")

    from anchorlab.report.browse import write_browser

    with waiting("reading the runs of the store", quiet=json):
        page = write_browser(kept, out, every).absolute()
    hand_out(json, lambda: {"page": str(page)}, (), page=page)
    with suppress(KeyboardInterrupt):
        while every is not None:
            sleep(every)
            write_browser(kept, out, every)
