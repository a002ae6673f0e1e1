"""Every test computes on one thread. Shapes are checked at run time in models and the task contract.

With `ANCHORLAB_CHECK_TYPES=all`, as in the first part of `make test-all`, they are checked everywhere, at twice
the time.
"""

import os

from jaxtyping import install_import_hook

import tests.checked  # noqa: F401 - the hook looks it up by name

everywhere = os.environ.get("ANCHORLAB_CHECK_TYPES") == "all"
packages = ["anchorlab"] if everywhere else ["anchorlab.models", "anchorlab.tasks.batch", "anchorlab.tasks.task"]
install_import_hook(packages, "tests.checked.checked")

import torch  # noqa: E402 - after the hook, which checks only what is imported later
from hypothesis import HealthCheck, settings  # noqa: E402

torch.set_num_threads(1)
# how fast a machine is, and what else it does, is no reason to fail
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

pytest_plugins = ["tests.browser", "tests.installation", "tests.left_out", "tests.serving", "tests.smollm2"]
