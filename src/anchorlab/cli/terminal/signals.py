"""End a command that is interrupted or terminated."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(BaseException):
    """Raised at SIGTERM, by which the system, or a scheduler at its time limit, asks the process to end."""


@contextmanager
def ending_once() -> Iterator[None]:
    """Within `with`, raise `KeyboardInterrupt` at Ctrl-C or `Terminated` at SIGTERM, once; later signals are ignored.

    So a command can keep its results and stop its processes, however often the user presses Ctrl-C.
    """
    ended = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal ended
        ended = True
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated

    before = {}
    if threading.current_thread() is threading.main_thread():
        usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
        before = {number: handler for number, handler in usual.items() if signal.getsignal(number) == handler}
        for number in before:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            if not ended:
                signal.signal(number, handler)
