"""A CUDA device in software: streams, devices and graphs that hold their users to the rules; a CPU does the work.

A graph is a tape of operations. As on a GPU, what is recorded does not happen; a replay runs the operations again on
the same memory, so that a number which Python read at the capture stays as it was. A failed capture ends as torch's
does: with an error of its own, and with the side stream current.
"""

from contextlib import contextmanager

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

READS = {"aten._local_scalar_dense.default", "aten.is_nonzero.default", "aten.equal.default", "aten.nonzero.default"}


class Stream:
    def __init__(self, cuda, device, name):
        self.cuda, self.device, self.name, self.seen = cuda, torch.device(device), name, set()

    def wait_stream(self, other):
        self.seen.add(other)


class Tape(TorchDispatchMode):
    """Operations in their order, with the tensors that they read and wrote."""

    def __init__(self):
        super().__init__()
        self.calls, self.born, self.before = [], set(), {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if str(function) in READS:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        named = dict(zip([one.name for one in function._schema.arguments], args, strict=False)) | kwargs
        for argument in function._schema.arguments:
            value = named.get(argument.name)
            if argument.is_write and isinstance(value, torch.Tensor):
                self._keep(value)
        result = function(*args, **kwargs)
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, torch.Tensor) and not writes(function):
                self.born.add(place(value))
        self.calls.append((function, args, kwargs, result))
        return result

    def _keep(self, value):
        """The content of memory from outside before its first change."""
        if place(value) not in self.born and place(value) not in self.before:
            whole = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
            self.before[place(value)] = (whole, whole.clone())

    def undo(self):
        for whole, content in self.before.values():
            whole.copy_(content)

    def replay(self):
        with torch.no_grad():
            for function, args, kwargs, result in self.calls:
                again = function(*args, **kwargs)
                if writes(function):
                    continue
                pairs = zip(*(one if isinstance(one, tuple | list) else [one] for one in (result, again)), strict=True)
                for kept, new in pairs:
                    if isinstance(kept, torch.Tensor) and place(kept) != place(new):
                        kept.copy_(new)


def writes(function):
    return any(argument.is_write for argument in function._schema.arguments)


def place(tensor):
    return tensor.untyped_storage().data_ptr()


class Graph:
    def __init__(self, cuda):
        self.cuda, self.tape = cuda, None
        cuda.graphs.append(self)

    def replay(self):
        assert self.cuda.capturing is None
        self.tape.replay()


class FakeCuda:
    """The part of `torch.cuda` that a capture uses, and what was done with it."""

    def __init__(self):
        self.index, self.capturing, self.graphs, self.streams, self.captures = 0, None, [], [], []
        self.default = [Stream(self, f"cuda:{index}", "default") for index in range(2)]
        self.current = list(self.default)
        self.pools = 0

    def make_stream(self, device=None):
        assert self.index == torch.device(device).index, "a stream belongs to the device that is current"
        self.streams.append(Stream(self, device, f"side {len(self.streams)}"))
        return self.streams[-1]

    def current_stream(self, device=None):
        return self.current[self.index if device is None else torch.device(device).index]

    def graph_pool_handle(self):
        self.pools += 1
        return (0, self.pools)

    @contextmanager
    def device(self, device):
        before, self.index = self.index, torch.device(device).index
        try:
            yield
        finally:
            self.index = before

    @contextmanager
    def stream(self, stream):
        index, before = self.index, self.current[stream.device.index]
        self.enter(stream)
        try:
            yield
        finally:
            self.index, self.current[stream.device.index] = index, before

    def enter(self, stream):
        self.index = stream.device.index
        self.current[self.index] = stream

    @contextmanager
    def graph(self, graph, pool=None, stream=None, capture_error_mode="global"):
        before = self.current[stream.device.index]
        self.enter(stream)  # not left if the capture fails
        assert stream.name != "default", "the default stream cannot be captured"
        assert self.default[stream.device.index] in stream.seen, "the stream has not waited for earlier work"
        self.captures.append((stream, pool, capture_error_mode))
        graph.tape = self.capturing = Tape()
        try:
            with graph.tape:
                yield
        except RuntimeError:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")  # noqa: B904
        finally:
            graph.tape.undo()
            self.capturing = None
        self.enter(before)


@pytest.fixture
def cuda(monkeypatch):
    fake = FakeCuda()
    names = {
        "Stream": fake.make_stream,
        "CUDAGraph": lambda: Graph(fake),
        **{name: getattr(fake, name) for name in ("current_stream", "graph_pool_handle", "device", "stream", "graph")},
    }
    for name, value in names.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return fake
