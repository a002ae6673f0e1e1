"""Work on members in parallel threads, with one count of what is done."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Lock

import torch
from jaxtyping import Shaped
from torch import Tensor


class Tally:
    """Counts the work done in any thread, and reports it to a callback."""

    def __init__(self, tell: Callable[[int, int], None], count: int) -> None:
        self.tell, self.count, self.done, self.lock = tell, count, 0, Lock()

    def __call__(self, more: int) -> None:
        """Add work that is done."""
        with self.lock:
            self.done += more
            if more:
                self.tell(self.done, self.count)


def in_threads(by_member: Callable[[int], Shaped[Tensor, "..."]], members: int) -> list[Shaped[Tensor, "..."]]:
    """Return the result of each member, computed in as many threads as PyTorch uses."""
    threads = torch.get_num_threads()
    workers = min(threads, members)
    contexts = [copy_context() for _ in range(members)]  # tell a notebook which cell the progress belongs to
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads // workers,)) as pool:
            return list(pool.map(lambda member: contexts[member].run(by_member, member), range(members)))
    finally:
        torch.set_num_threads(threads)  # setting it in a thread also sets the default of later threads
