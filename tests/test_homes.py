"""Where public names live: each in one package, from which every document and message takes it."""

import ast
import re
import warnings
from importlib import import_module
from pathlib import Path

import pytest

import anchorlab as al
from tests.documents import ROOT, pages

HOMES = (
    *("tasks", "models", "training", "trained", "runs", "engine", "lens", "language", "theory"),
    *("findings", "viewer", "studies", "rankings", "report", "errors"),
)
WITHIN = ("lens.circuits", "language.asking", "language.endpoint")
"""Packages within others with names of their own."""


def test_every_name_has_one_home():
    """A name that two packages hand on would have to be looked up twice."""
    homes = {}
    for home in (*HOMES, *WITHIN):
        package = import_module(f"anchorlab.{home}")
        for name in getattr(package, "__all__", vars(package)):
            ours = getattr(getattr(package, name), "__module__", "").startswith("anchorlab.")
            if ours and not name.startswith("_") and (home not in WITHIN or name not in homes):
                homes.setdefault(name, []).append(home)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


PLACES = {f"anchorlab{home}" for home in ("", ".interop", ".spec", *(f".{one}" for one in (*HOMES, *WITHIN)))}
PLACES.add("anchorlab.language.harness.inspect_tasks")  # it needs inspect-ai
PLACES.add("anchorlab.theory.compiled")  # handed on by `theory`, its function would hide the folder


def documents():
    notebooks = (ROOT / "docs" / "tutorial").glob("*.ipynb")
    return [*(page for page in pages() if page.name != "CHANGELOG.md"), *notebooks, *(ROOT / "examples").glob("*.py")]


@pytest.mark.parametrize("page", documents(), ids=lambda page: page.name)
def test_documents_import_names_from_their_homes(page):
    for module, text in re.findall(r"from (anchorlab[\w.]*) import (\([^)]*\)|[^\n\\\"`]*)", page.read_text("utf-8")):
        assert module in PLACES
        if "inspect_tasks" not in module:
            for name in re.findall(r"\w+", text.partition("#")[0]):
                assert hasattr(import_module(module), name), f"{module}.{name}"


def source_texts():
    """All texts in the package's source, its messages among them."""
    for path in Path(al.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_names_that_documents_and_messages_give_are_there():
    texts = [*(page.read_text("utf-8") for page in documents()), *source_texts()]
    named = {match for text in texts for match in re.findall(r"\bal\.([A-Za-z]\w*)(?:\.([A-Za-z]\w*))?", text)}
    assert ("tasks", "check_task") in named and ("look", "") in named and len(named) > 50
    for first, second in sorted(named - NO_NAMES):
        with warnings.catch_warnings(action="ignore"):
            found = getattr(al, first)
        assert not second or hasattr(found, second), f"al.{first}.{second}"


NO_NAMES = {("NAME", ""), ("probe", ""), ("PACKAGE", "NAME")}
"""What stands for any name, and the example of a name that is not on the face."""
