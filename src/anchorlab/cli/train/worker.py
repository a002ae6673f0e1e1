"""`anchorlab worker`."""

import sys
import time

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import counted, print_text
from anchorlab.printable import printable


def worker(
    store: shared.StoreFolder = None,
    /,
    *,
    device: str = "cpu",
    until_empty: shared.Flag = False,
) -> None:
    """Train a store's unfinished runs, together with other workers on any machine that shares its folder.

    A worker trains one chunk of an unfinished run after another, and merges a run after its last chunk. It may be ended
    at any moment: another worker continues from the last state. `anchorlab study NAME --on folder` and `anchorlab
    submit` plan runs for workers.

    Parameters
    ----------
    device
        `cpu`, `cuda`, or one of several, such as `cuda:1`: one worker for each.
    until_empty
        End when nothing is left to do, instead of waiting for more.
    """
    from anchorlab.engine import Worker
    from anchorlab.runs import Store

    def say(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {printable(text, lines=True)}", file=sys.stderr, flush=True)

    trained = Worker(Store(store), device, say).work(until_empty)
    print_text(f"{counted(trained, 'chunk')} trained; nothing is left to do")
