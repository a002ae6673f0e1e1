"""Control the precision of PyTorch's computations on a GPU in training."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
