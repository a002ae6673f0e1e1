"""Find a device, and control the precision of PyTorch's computations on a GPU in training."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from anchorlab.errors import SpecError


def existing_device(device: str | int | torch.device) -> torch.device:
    """Return the device of this name. Errors: `SpecError` for a device that does not exist."""
    try:
        return torch.zeros((), device=device).device  # with its index: `cuda` becomes the current device
    except (RuntimeError, AssertionError):
        remedy = "use cpu" if "cuda" in str(device) else "use cpu or cuda"
        raise SpecError("device", f"{str(device)!r} does not exist", remedy) from None


def check_target(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raise `SpecError` if the arguments of a module's `to` name a device that does not exist."""
    device = named.get("device", given[0] if given else None)
    if isinstance(device, str | int | torch.device):
        existing_device(device)


@contextmanager
def full_float32() -> Iterator[None]:
    """Compute convolutions and recurrent layers in full float32 inside `with`.

    By default cuDNN rounds their factors to TF32, which has 10 mantissa bits; matrix products keep full precision
    unless the user allows less. anchorlab's models use neither operation, but a user's module may. Nothing changes if
    the user has chosen different precisions for the two operations.
    """
    cudnn = torch.backends.cudnn
    try:
        before = cudnn.allow_tf32
    except RuntimeError:  # the two operations differ: the user has chosen
        yield
        return
    cudnn.allow_tf32 = False
    try:
        yield
    finally:
        cudnn.allow_tf32 = before
