"""No file names a higher floor in a string: what is imported by its name is an arrow that the import contracts miss."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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


def test_every_package_has_a_floor():
    packages = {
        f"anchorlab.{path.stem}" for path in (SOURCE / "anchorlab").iterdir() if path.suffix == ".py" or path.is_dir()
    }
    assert packages - {"anchorlab.__init__", "anchorlab.__main__", "anchorlab.__pycache__", "anchorlab.py"} == {*HEIGHT}


def test_no_file_names_a_higher_floor():
    found = {}
    for path in (SOURCE / "anchorlab").rglob("*.py"):
        own = height(".".join(path.relative_to(SOURCE).with_suffix("").parts))
        if own is not None:
            found[str(path)] = [*upward(path.read_text("utf-8"), own)]
    assert len(found) > 400 and not {name: names for name, names in found.items() if names}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('import_module("anchorlab.report.plots")', ["anchorlab.report.plots"]),
        ('import_module(f"anchorlab.papers.{name}")', ["anchorlab.papers."]),
        ('files("anchorlab.tasks.recall.tables")', []),
        ('"""See `anchorlab.report`."""', []),
    ],
)
def test_a_name_in_a_string_is_found(code, found):
    assert [*upward(code, HEIGHT["anchorlab.findings"])] == found
