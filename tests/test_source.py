"""What holds for the whole source: layers, one home for every public name, and axes of tensors."""

import ast
import re
import tomllib
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import jaxtyping
import pytest

import anchorlab
import anchorlab as al
from tests.documents import ROOT, pages

SOURCE = ROOT / "src"
LAYERS = next(
    contract["layers"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    if contract["type"] == "layers"
)
HEIGHT = {module.strip(): len(LAYERS) - place for place, modules in enumerate(LAYERS) for module in modules.split("|")}
"""The height of every package: imports go down or stay level."""

NAMED = re.compile(r"(anchorlab\.\w+)[\w.]*")


def height(module: str) -> int | None:
    """Return the height of a module's package; None for the package's own `__init__`, which is above all."""
    found = NAMED.match(module)
    return HEIGHT.get(found[1]) if found else None


def upward(code: str, own: int) -> Iterator[str]:
    """Yield the strings of a file at a height that are names of modules on a higher floor."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAMED.fullmatch(node.value.rstrip(".")):
            there = height(node.value)
            if there is not None and there > own:
                yield node.value


def test_every_package_has_a_floor_and_no_file_names_a_higher_one():
    packages = {
        f"anchorlab.{path.stem}" for path in (SOURCE / "anchorlab").iterdir() if path.suffix == ".py" or path.is_dir()
    }
    assert packages - {"anchorlab.__init__", "anchorlab.__main__", "anchorlab.__pycache__", "anchorlab.py"} == {*HEIGHT}
    found = {}
    for path in (SOURCE / "anchorlab").rglob("*.py"):
        own = height(".".join(path.relative_to(SOURCE).with_suffix("").parts))
        if own is not None:
            found[str(path)] = [*upward(path.read_text("utf-8"), own)]
    assert len(found) > 400 and not {name: names for name, names in found.items() if names}


def bare(node):
    """Return whether an annotation, or one below the node, holds a tensor without axes."""
    match node:
        case ast.Constant(value=str(text)):
            return "Tensor" in text and bare(ast.parse(text, mode="eval"))
        case ast.Name(id="Tensor") | ast.Attribute(attr="Tensor"):
            return True
        case ast.Subscript(value=ast.Name(id=name)) if hasattr(jaxtyping, name):
            return False
    return any(map(bare, ast.iter_child_nodes(node)))


def without_axes(nodes):
    """Yield the names of public functions and aliases of types with a tensor that has no axes."""
    for node in nodes:
        name = getattr(node, "name", "")
        if name.startswith("_") and not name.endswith("__"):
            continue
        if isinstance(node, ast.ClassDef):
            yield from without_axes(node.body)
        elif isinstance(node, ast.FunctionDef) and (bare(node.args) or (node.returns and bare(node.returns))):
            yield name
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp) and bare(node.value):
            yield ast.unparse(node.targets[0])


def test_public_functions_name_the_axes_of_their_tensors():
    source = Path(anchorlab.__file__).parent
    files = {path.relative_to(source): ast.parse(path.read_text("utf-8")) for path in source.rglob("*.py")}
    found = [f"{path.as_posix()}: {name}" for path, tree in files.items() for name in without_axes(tree.body)]
    assert found == []


HOMES = (
    *("tasks", "models", "training", "trained", "runs", "engine", "lens", "language", "theory"),
    *("findings", "viewer", "studies", "truth", "report", "errors"),
)
WITHIN = ("lens.circuits", "language.asking", "language.endpoint", "theory.compiled")
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
