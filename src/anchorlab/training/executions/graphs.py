"""CUDA graphs: capture work on a GPU once and replay it."""

from collections.abc import Callable

import torch

_WARM_UP = 3  # torch's recommendation: libraries allocate their workspaces in the first passes


class Graphs:
    """Capture graphs on one device; all of them share one stream and one memory pool.

    Graphs that are replayed one after another can share memory, since a graph needs it only during its replay. All
    tensors that outlive a replay must be allocated before the capture.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        with torch.cuda.device(device):
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()

    def capture(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        """Return a graph of `work`. It runs three times before the capture, and must change nothing in these runs.

        The current device and stream are restored afterwards, even if the capture fails.

        Errors: the `RuntimeError` of the operation that cannot be captured, or `OutOfMemoryError`.
        """
        current = torch.cuda.current_stream(self.device)
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):  # torch.cuda.graph leaves its stream current if the capture fails
                for _ in range(_WARM_UP):
                    work()
                # Only this thread must keep to the rules of capture: others may use the device meanwhile.
                with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                    work()
        except RuntimeError as error:
            raise _first(error) from None
        finally:
            current.wait_stream(self._stream)
        return graph


def _first(error: BaseException) -> BaseException:
    """Return the root cause of an error: ending a failed capture raises another error, which hides the first."""
    while error.__context__ is not None:
        error = error.__context__
    return error
