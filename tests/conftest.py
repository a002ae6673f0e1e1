"""Every test computes on one thread. Shapes are checked at run time in models and the task contract.

With `ANCHORLAB_CHECK_TYPES=all`, as in `make test-types`, they are checked in every module that names one. The other
modules have plain types, which mypy checks without running them.
"""

import os
import shutil
import tempfile
from pathlib import Path

from jaxtyping import install_import_hook

import tests.checked


def with_shapes() -> list[str]:
    """Return the modules of the package that name shapes of tensors, for more than type checkers alone."""
    source = Path(__file__).parents[1] / "src"
    paths = [path for path in (source / "anchorlab").rglob("*.py") if "\nfrom jaxtyping" in path.read_text()]
    return [".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__") for path in paths]


everywhere = os.environ.get("ANCHORLAB_CHECK_TYPES") == "all"
modules = with_shapes() if everywhere else ["anchorlab.models", "anchorlab.tasks.batch", "anchorlab.tasks.task"]
install_import_hook(modules, "tests.checked.checked")

import pytest  # noqa: E402
import torch  # noqa: E402 - after the hook, which checks only what is imported later
from hypothesis import HealthCheck, settings  # noqa: E402

from anchorlab.cache import cache_folder  # noqa: E402
from anchorlab.language.packaged import PACKAGED  # noqa: E402
from tests.processes import fork_workers  # noqa: E402

torch.set_num_threads(1)
fork_workers()
# how fast a machine is, and what else it does, is no reason to fail
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

pytest_plugins = [
    "tests.browser", "tests.installation", "tests.left_out", "tests.packaged_models", "tests.rest", "tests.serving",
]  # fmt: skip


def pytest_configure(config):
    """Give the tests a cache of their own, in which the packaged models are those of the user's cache."""
    folder = Path(tempfile.mkdtemp(prefix="anchorlab-cache-"))
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    for name in PACKAGED:
        (folder / name).symlink_to(cache_folder() / name)
    os.environ["ANCHORLAB_CACHE"] = str(folder)


def pytest_collection_finish(session):
    """Stop where tests of one group would run in several processes at once, as under pytest 9.2 with xdist 3.8."""
    grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
    if getattr(session.config.option, "loadgroup", False) and not all("@" in item.nodeid for item in grouped):
        raise pytest.UsageError("--dist loadgroup does not group; install what requirements/constraints.txt says")


def pytest_runtest_setup(item):
    tests.checked.begin()
