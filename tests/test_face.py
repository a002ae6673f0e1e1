"""The curated face of the package: every name is importable, says what it is, and costs nothing before it is used."""

import ast
import json
import pydoc
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import anchorlab as al

NAMES = [name for name in al.__all__ if name != "__version__"]


def test_the_face_is_curated():
    assert 20 <= len(NAMES) <= 51
    assert len(set(al.__all__)) == len(al.__all__)
    assert dir(al) == sorted(al.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_documented_and_its_floor_s_own(name):
    found = getattr(al, name)
    assert found.__doc__ and len(found.__doc__.splitlines()[0]) > 20
    assert found.__module__.startswith("anchorlab.")
    package, there = import_module(f"anchorlab.{al._FACE[name]}"), al._SPELLED.get(name, name)
    assert getattr(package, there) is found
    assert there in getattr(package, "__all__", dir(package))


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(al.__file__).read_text())
    branches = [node for node in tree.body if isinstance(node, ast.If)]
    (block,) = [node for node in branches if ast.unparse(node.test) == "TYPE_CHECKING"]
    assert {alias.asname or alias.name for node in block.body for alias in node.names} == set(NAMES)


def subpackages():
    return sorted(path.parent.name for path in Path(al.__file__).parent.glob("*/__init__.py"))


@pytest.mark.slow
def test_subpackages_are_there_before_anything_in_them_was_used():
    """In a process of its own, since an import of anything else would bring its package along."""
    line = f"import anchorlab as al; print([getattr(al, package).__name__ for package in {subpackages()}])"
    said = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str([f"anchorlab.{package}" for package in subpackages()])


def test_help_begins_with_the_fields():
    def shown(spec):
        return pydoc.plain(pydoc.render_doc(spec)).splitlines()[3]

    tasks = al.tasks
    assert shown(tasks.CompositeAnchor) == " |  CompositeAnchor(*, unseen, seen=None, covering=True)"
    assert shown(tasks.Combined) == " |  Combined(*, parts, covering=True)"
    rule = "modulus=None, position='anchor', residues=(0,), by_position={}, covering=True"
    assert shown(al.ModularResidue) == f" |  ModularResidue(*, {rule})"
    anchor = shown(al.AnchorFunction)
    for field in al.AnchorFunction.model_fields:
        assert (f"{field}=" in anchor) == (field != "family")
    assert len(anchor) < 250


def test_docstrings_of_tasks_explain_every_field_first():
    tasks = al.tasks
    for spec in (al.AnchorFunction, tasks.Combined, tasks.CompositeAnchor, tasks.AnchorBased):
        lines = spec.__doc__.split("\n\n")[1].splitlines()
        explained = {line.strip().partition(":")[0] for line in lines if ": " in line}
        assert explained == {*spec.model_fields} - {"family", "rule", "covering"}, spec


@pytest.mark.parametrize(
    ("name", "told"), [("tsak", "has no attribute 'tsak'"), ("CompositeAnchor", "write al.tasks.CompositeAnchor"),
                       ("probe", "write al.lens.probe"), ("draw", "write al.report.draw"),
                       ("agreement", "write al.truth.agreement")]
)  # fmt: skip
def test_an_unknown_name_and_one_of_another_home(name, told):
    with pytest.raises(AttributeError, match=f"{told}$"):
        getattr(al, name)


def test_the_former_name_works():
    assert al.rankings is al.truth


HEAVY = ("torch", "numpy", "polars", "pyarrow", "scipy", "pydantic")
LATE = ("matplotlib", "jinja2", "sklearn", "cyclopts", "rich")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "late"),
    [
        ("import anchorlab", (*HEAVY, *LATE)),
        ("import anchorlab; anchorlab.task", ("polars", "pyarrow", *LATE)),
        ("import anchorlab; anchorlab.train", LATE),
        ("import anchorlab; anchorlab.run_study", LATE),
    ],
)
def test_heavy_imports_come_late(line, late):
    text = f"{line}\nimport json, sys\nprint(json.dumps([name for name in {late} if name in sys.modules]))"
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == []


def test_windows_is_told_of_wsl_in_one_line():
    text = "import sys; sys.platform = 'win32'; import anchorlab"
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert said.stderr.splitlines()[-1] == (
        "ImportError: anchorlab runs on Linux and macOS; on Windows, install it in WSL (run wsl --install first)"
    )
