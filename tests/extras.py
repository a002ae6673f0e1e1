"""The dependencies and extras that `pyproject.toml` declares, by the names under which they are imported."""

import re
import tomllib
from collections.abc import Iterable

from tests.documents import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
_NAMED_OTHERWISE = {"pyyaml": "yaml", "scikit-learn": "sklearn"}


def packages(requirements: Iterable[str]) -> set[str]:
    """The names by which the packages of requirements are imported."""
    names = {re.match(r"[\w.-]+", one)[0].lower() for one in requirements}
    return {_NAMED_OTHERWISE.get(name, name.replace("-", "_")) for name in names}


def extra_of(name: str) -> str | None:
    """The first extra that installs what a module belongs to."""
    package = name.split(".")[0]
    return next((extra for extra, needed in EXTRAS.items() if package in packages(needed)), None)


def install(extra: str) -> str:
    """The command that installs an extra in a clone."""
    return f"pip install -c requirements/extras.txt -e '.[{extra}]'"
