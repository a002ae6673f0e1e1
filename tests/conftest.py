"""Shapes are checked at run time in every test, and every test computes on one thread."""

from jaxtyping import install_import_hook

install_import_hook("anchorlab", "beartype.beartype")

import torch  # noqa: E402 - after the hook, which checks only what is imported later

torch.set_num_threads(1)
