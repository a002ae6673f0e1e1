"""Every test computes on one thread. Shapes are checked at run time in models and the task contract.

With `ANCHORLAB_CHECK_TYPES=all` they are checked everywhere, at twice the time; `make test` does so in its first part.
"""

import os

from jaxtyping import install_import_hook

import tests.checked  # noqa: F401 - the hook looks it up by name

everywhere = os.environ.get("ANCHORLAB_CHECK_TYPES") == "all"
packages = ["anchorlab"] if everywhere else ["anchorlab.models", "anchorlab.tasks.batch", "anchorlab.tasks.task"]
install_import_hook(packages, "tests.checked.checked")

import torch  # noqa: E402 - after the hook, which checks only what is imported later

torch.set_num_threads(1)

pytest_plugins = ["tests.browser", "tests.serving", "tests.smollm2"]
