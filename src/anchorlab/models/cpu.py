"""How a CPU computes: the library that multiplies float32 matrices, and numbers too small for full precision."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch


@contextmanager
def fast_float32() -> Iterator[None]:
    """Compute float32 products on the CPU with oneDNN inside, where that keeps full float32 precision.

    PyTorch uses MKL unless a lower precision is allowed. MKL does not use the AVX-512 units of AMD processors; oneDNN
    is more than twice as fast there, and four times for batched products. Nothing changes where oneDNN would round to
    bfloat16 (AMX units), or if PyTorch lacks the switch. The choice depends on the machine, never on a timing, so a
    resumed run computes the same bytes.
    """
    if not _keeps_float32():
        yield
        return
    with _onednn_allowed():
        yield


@contextmanager
def denormals_as_zero() -> Iterator[None]:
    """Take numbers below 1.2e-38 for zero inside, in the calling thread alone.

    A processor computes with such numbers many times more slowly, and models that fit their data are full of them: in
    attention that is nearly 0, and in gradients behind it. What they are added to does not change.
    """
    before = float(torch.tensor([1e-39]) * 1.0) == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


@cache
def _keeps_float32() -> bool:
    """Return whether products under the switch have float32 precision; bfloat16 errors are a hundred times larger."""
    if not hasattr(getattr(torch.backends.mkldnn, "matmul", None), "fp32_precision"):
        return False
    size = 256
    places = torch.arange(size * size, dtype=torch.float64).view(size, size)
    left, right = torch.sin(places).float(), torch.cos(places).float()
    with _onednn_allowed():
        products = torch.stack([left @ right, torch.bmm(left.unsqueeze(0), right.unsqueeze(0))[0]])
    exact = left.double() @ right.double()
    return bool((products - exact).abs().max() < 1e-6 * left.double().norm() * right.double().norm() / size)


@contextmanager
def _onednn_allowed() -> Iterator[None]:
    """Set the switch that lets PyTorch use oneDNN: the permission to compute in bfloat16."""
    matmul: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before
