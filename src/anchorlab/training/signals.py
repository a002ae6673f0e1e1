"""Delay signals until the end of a training step."""

import signal
import threading
from types import FrameType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM)


class DelayedSignals:
    """Delay Ctrl-C and SIGTERM inside `with` until `deliver` is called, so that the state can be kept first.

    Signals that the process ignores stay ignored. Outside the main thread, nothing is delayed.
    """

    def __init__(self) -> None:
        self.waiting: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "DelayedSignals":
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            signal.raise_signal(waiting)

    def deliver(self) -> None:
        """Let a waiting signal take effect: by default, SIGTERM ends the process and Ctrl-C raises an exception."""
        if self.waiting is not None:
            self.__exit__()
            self.__enter__()  # the handler returned: training continues

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.waiting = number
