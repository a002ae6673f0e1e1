"""CUDA graphs: record work on a GPU once and replay it, by the rules of capture."""

from collections.abc import Callable

import torch

_WARM_UP = 3  # torch's recommendation: libraries allocate their workspaces in the first passes


class Graphs:
    """Capture graphs on one device; all share one stream and one pool of memory.

    A graph's memory is free again once it has been replayed, so graphs that are replayed one after the other can share
    it, as long as everything that outlives a replay was allocated before the capture.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        with torch.cuda.device(device):
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()

    def capture(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        """Return a graph of `work`, which runs three times before it is recorded and must then change nothing.

        Afterwards the current device and stream are those of before, also if the capture fails.

        Errors: the `RuntimeError` of the operation that cannot be captured, or `OutOfMemoryError`.
        """
        current = torch.cuda.current_stream(self.device)
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):  # torch.cuda.graph leaves its stream current if the capture fails
                for _ in range(_WARM_UP):
                    work()
                # Other threads may use the device meanwhile: only this one is held to the rules of capture.
                with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                    work()
        except RuntimeError as error:
            raise _first(error) from None
        finally:
            current.wait_stream(self._stream)
        return graph


def _first(error: BaseException) -> BaseException:
    """Return the error that began it: ending a failed capture raises another one, which does not name the cause."""
    while error.__context__ is not None:
        error = error.__context__
    return error
