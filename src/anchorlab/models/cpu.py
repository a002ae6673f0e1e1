"""Control how a CPU computes: the library for float32 products, and the treatment of denormal numbers."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch


@contextmanager
def fast_float32() -> Iterator[None]:
    """Compute float32 products on the CPU with oneDNN inside `with`, if that keeps full float32 precision.

    PyTorch uses MKL unless a lower precision is allowed. MKL does not use the AVX-512 units of AMD processors; oneDNN
    is more than twice as fast there, and four times as fast for batched products. Nothing changes if oneDNN would round
    to bfloat16 (AMX units), or if PyTorch lacks the switch. The choice depends on the machine, never on a timing, so a
    resumed run computes the same bytes.
    """
    with _onednn_allowed() if _keeps_float32() else nullcontext():
        yield


@contextmanager
def denormals_as_zero() -> Iterator[None]:
    """Flush denormals (magnitudes below 1.2e-38) to zero inside `with`, in the calling thread only.

    A processor computes with denormals many times more slowly, and models that fit their data are full of them: in
    attention weights near 0, and in the gradients that pass through them. Sums with normal numbers do not change.
    """
    before = float(torch.tensor([1e-39]) * 1.0) == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    """Let torch compute with `count` threads inside `with`; with one thread, denormals are flushed to zero.

    With several threads they are not: the setting would not reach the other threads, and which numbers each of them
    computes can change when a run is resumed.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with denormals_as_zero() if count == 1 else nullcontext():
            yield
    finally:
        torch.set_num_threads(before)


_TRIED = (
    *((1, size, size, size) for size in (16, 32, 64, 128, 256, 512)),
    (64, 8, 8, 8),
    (64, 4, 16, 200),
    (3, 90, 400, 120),
    (1, 1, 4096, 16),
    (1, 1024, 64, 256),
    (1, 512, 400, 1200),
)
"""Shapes of products to test, `(products, rows, summed, columns)`, over the range of sizes that occur in training."""


@cache
def _keeps_float32() -> bool:
    """Return whether products under the switch have float32 precision at every tested size, batched and single."""
    if not hasattr(getattr(torch.backends.mkldnn, "matmul", None), "fp32_precision"):
        return False
    with _onednn_allowed():
        return all(_is_float32(*shape) for shape in _TRIED)


def _is_float32(products: int, rows: int, summed: int, columns: int) -> bool:
    """Return whether products of this shape have the errors of float32; bfloat16's are over ten times the limit."""
    left = torch.sin(torch.arange(products * rows * summed, dtype=torch.float32)).view(products, rows, summed)
    right = torch.cos(torch.arange(products * summed * columns, dtype=torch.float32)).view(products, summed, columns)
    some = slice(None, None, -(-rows // 8))  # check only some rows in float64, which is slow
    exact = left[:, some].double() @ right.double()
    found = torch.bmm(left, right), torch.stack([a @ b for a, b in zip(left, right, strict=True)])
    return all(bool((one[:, some] - exact).abs().max() <= summed * 2**-20) for one in found)


@contextmanager
def _onednn_allowed() -> Iterator[None]:
    """Set the switch that lets PyTorch use oneDNN inside `with`: the permission to compute in bfloat16."""
    matmul: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before
