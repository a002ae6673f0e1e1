"""Training in several processes, which end with the one that started them."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import Any

from anchorlab.engine.piece import Piece
from anchorlab.errors import AnchorlabError
from anchorlab.training import Progress


def train_in_processes(
    pieces: Iterator[Piece], workers: int, hear: Callable[[Piece, Progress], None], done: Callable[[Piece], None]
) -> None:
    """Trains all pieces in `workers` processes at once, and tells of progress and of each piece that is done.

    Pieces are taken as they are needed. When anything goes wrong, and when this process is interrupted, the workers
    end, and what they trained since their last kept state is lost.

    Errors: whatever a piece raises; `AnchorlabError` where a worker died.
    """
    context = multiprocessing.get_context("spawn")
    heard: Any = context.Queue()
    running: dict[Future[None], int] = {}
    taken: list[Piece] = []

    def listen() -> None:
        while not heard.empty():
            index, progress = heard.get()
            hear(taken[index], progress)

    with ProcessPoolExecutor(workers, context, _start, (heard, os.getpid())) as pool:
        try:
            while True:
                for piece in islice(pieces, workers + 1 - len(running)):  # one waits, so that no worker ever does
                    taken.append(piece)
                    with _without_interrupts():  # the workers that are started here inherit it
                        running[pool.submit(_train, len(taken) - 1, piece)] = len(taken) - 1
                if not running:
                    return
                finished, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
                listen()
                for future in finished:
                    index = running.pop(future)
                    future.result()
                    done(taken[index])
        except BrokenProcessPool:
            raise AnchorlabError(
                "a training process died: for want of memory (use fewer workers), or because the script that trains "
                "lacks `if __name__ == '__main__':`; what was kept is safe, run again to go on"
            ) from None
        except BaseException:
            _end(pool)
            raise


def _end(pool: ProcessPoolExecutor) -> None:
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ctrl-C goes to all processes of a terminal: the parent ends its workers, they need not hear it themselves."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_heard: Any = None


def _start(heard: Any, parent: int) -> None:
    global _heard
    _heard = heard
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: int) -> None:
    """Ends this process once its parent is gone, so that a killed training leaves nothing running."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _train(index: int, piece: Piece) -> None:
    piece.train(lambda progress: _heard.put((index, progress)))
