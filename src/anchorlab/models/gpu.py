"""How PyTorch computes on a GPU while members are trained."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_float32() -> Iterator[None]:
    """Compute convolutions and recurrent layers in full float32 inside.

    By default cuDNN rounds their factors to TF32, with 10 bits after the point; matrix products keep full precision
    unless the user allows less. Our own models use neither, but a user's module may. Nothing changes if the user has
    chosen a precision for one of the two operations.
    """
    cudnn = torch.backends.cudnn
    try:
        before = cudnn.allow_tf32
    except RuntimeError:  # the two operations differ, so somebody has chosen
        yield
        return
    cudnn.allow_tf32 = False
    try:
        yield
    finally:
        cudnn.allow_tf32 = before
