"""`anchorlab browse`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import check_file, print_json, print_text, waiting
from anchorlab.errors import SpecError, StoreError

if TYPE_CHECKING:
    from anchorlab.runs import Store


def browse(
    *,
    store: shared.StoreFolder = None,
    out: Path | None = None,
    serve: shared.Flag = False,
    port: int = 0,
    json: shared.Json = False,
) -> None:
    """Write one HTML page about the store: a table of runs, their curves, the studies and their claims.

    The page loads nothing from the network. With `--serve` this machine serves it instead, rebuilt at every visit,
    until you press Ctrl-C; only the printed address opens it.

    Parameters
    ----------
    out
        File to write; by default `browse.html` in the store.
    serve
        Serve the page on 127.0.0.1 instead of writing it.
    port
        Port to serve on; by default a free one.
    """
    if serve and out is not None:
        raise SpecError("out", "nothing is written when the page is served", "leave out one of --serve and --out")
    if port and not serve:
        raise SpecError("port", "only a served page has one", "add --serve")
    check_file(out, "out")

    from anchorlab.runs import Store

    kept = Store(store)
    if not kept.root.is_dir():
        raise StoreError(f"{kept.root}: has no runs; `anchorlab train TASK` makes one")
    if serve:
        _serve(kept, port, json)
        return

    from anchorlab.report.browse import write_browser

    with waiting("reading the runs of the store", quiet=json):
        page = write_browser(kept, out)
    if json:
        print_json({"page": str(page.absolute())})
    else:
        print_text(f"page: {page.absolute()}", wrapped=False)


def _serve(kept: "Store", port: int, json: bool) -> None:
    from anchorlab.report.serving import Browser

    with Browser(kept, port) as server:
        if json:
            print_json({"address": server.address})
        else:
            print_text(f"open {server.address}", wrapped=False)
            print_text("Ctrl-C ends it")
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
