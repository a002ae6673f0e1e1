"""What is built, and what is declared, is all that an installation needs: no import is left out, and none too many."""

import ast
import os
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.documents import ROOT
from tests.environments import SMOKE, TESTERS, lowest, pinned
from tests.extras import EXTRAS, PROJECT, packages

SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
CONSTRAINTS = {name: (ROOT / "requirements" / name).read_bytes() for name in ("constraints.txt", "extras.txt")}
SOURCE = ROOT / "src" / "anchorlab"


@pytest.fixture
def built():
    """The folder of the built files, beside the installation that `make test-wheel` tests."""
    named = os.environ.get("ANCHORLAB_PROGRAMS")
    if named is None:
        pytest.skip("needs the built files: make test-wheel")
    return Path(named).parents[1] / "dist"


@pytest.mark.installed
def test_the_wheel_has_every_file_of_the_package_and_the_constraints(built):
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        pins = {name.rpartition("/")[2]: name for name in names if "/share/anchorlab/" in name}
        assert {file: wheel.read(name) for file, name in pins.items()} == CONSTRAINTS
    files = [one for one in SOURCE.rglob("*") if one.is_file() and "__pycache__" not in one.parts]
    files = {f"anchorlab/{one.relative_to(SOURCE).as_posix()}" for one in files}
    assert len(files) > 300 and files <= names
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]


@pytest.mark.installed
def test_the_source_distribution_has_the_constraints_where_the_pages_name_them(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as source:
        for file, pins in CONSTRAINTS.items():
            (name,) = (one for one in source.getnames() if one.endswith(f"/requirements/{file}"))
            assert source.extractfile(name).read() == pins


def test_the_installation_is_that_of_the_programs(installation):
    """Not the sources beside the tests, where another installation is named."""
    where = Path(installation.run("python", "-c", "import anchorlab; print(anchorlab.__file__)").strip())
    if os.environ.get("ANCHORLAB_PROGRAMS"):
        assert installation.programs.parent in where.parents and SOURCE not in where.parents
        share = installation.programs.parent / "share" / "anchorlab"
        assert {one.name: one.read_bytes() for one in share.iterdir()} == CONSTRAINTS
    else:
        assert where.parent == SOURCE


def test_every_data_file_is_declared():
    """What is no module is in the wheel only if a pattern names it."""
    patterns = SETUPTOOLS["package-data"]["anchorlab"]
    named = {one for pattern in patterns for one in SOURCE.glob(pattern)}
    data = {one for one in SOURCE.rglob("*") if one.is_file() and one.suffix not in (".py", ".pyc")}
    assert len(data) > 20 and data - named == set()
    assert [pattern for pattern in patterns if not list(SOURCE.glob(pattern))] == []


def test_the_constraints_of_extras_are_apart_and_every_declared_package_is_in_one():
    core, extras = (
        [line for line in pins.decode().splitlines() if not line.startswith("#")] for pins in CONSTRAINTS.values()
    )
    assert extras.pop(0) == "-c constraints.txt"
    assert all("==" in line for line in (*core, *extras)) and not packages(core) & packages(extras)
    assert "boto3" in packages(extras)
    for extra, needed in {"": PROJECT["dependencies"], **EXTRAS}.items():
        lines = core if extra in ("", "dev", "tsne") else core + extras
        assert packages(needed) - packages(lines) == set(), extra


def test_the_lowest_dependencies_are_the_declared_bounds_and_what_tests_them_is_pinned():
    assert lowest(["torch>=2.6,<3", "numpy>=2.0,<3", "scikit-learn>=1.5", "huggingface-hub>=1.31"]) == [
        "numpy==2.0", "scikit-learn==1.5", "huggingface-hub==1.31",
    ]  # fmt: skip
    assert len(lowest(PROJECT["dependencies"])) == len(PROJECT["dependencies"]) - 1
    assert [path for path in SMOKE if not (ROOT / path).exists()] == []
    assert [line.partition("==")[0] for line in pinned(["torch", "beartype"])] == ["beartype", "torch"]
    assert sorted(line.partition("==")[0].lower() for line in pinned(TESTERS)) == sorted(TESTERS)


FOR_PEOPLE = ("inspect", "interop", "language", "lm-eval", "ray", "slurm", "tsne")  # the others build anchorlab
# these stand upon an extra: a harness imports them by anchorlab's entry point, or a function once the extra is there
LOADED_LATE = ("interop/bridge.py", "language/harness/inspect_tasks.py", "language/harness/inspect_protocol.py")
USED_BY_OTHERS = {
    "accelerate": "transformers places large models with it",
    "gguf": "transformers reads GGUF with it",
    "lm_eval": "a program that reads what we export",
}

OURS = {"anchorlab", "tests", "docs"}
Import = tuple[str, str]  # a module's name, and when: "at once", "late" or "typing"


def imports(source: str) -> Iterator[Import]:
    """Every module that a module imports, by its full name, but those of Python and those named relatively."""

    def below(node: ast.AST, when: str) -> Iterator[Import]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and when == "at once":
            when = "late"
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for one in node.body:
                yield from below(one, "typing")
            for one in node.orelse:
                yield from below(one, when)
            return
        named = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        named += [str(node.module)] if isinstance(node, ast.ImportFrom) and not node.level else []
        for name in named:
            if name.split(".")[0] not in sys.stdlib_module_names:
                yield name, when
        for child in ast.iter_child_nodes(node):
            yield from below(child, when)

    return below(ast.parse(source), "at once")


def undeclared(sources: Mapping[str, str], base: Iterable[str], extras: Iterable[str]) -> set[tuple[str, str]]:
    """The file and the name of every import that a plain install, or one with the extras, would not find."""
    base, extras = packages(base), packages(extras)
    return {
        (file, name)
        for file, source in sources.items()
        for name, when in ((module.split(".")[0], when) for module, when in imports(source))
        if name not in base | OURS and (name not in extras or (when == "at once" and file not in LOADED_LATE))
    }


def files(folder: str) -> dict[str, str]:
    return {str(one.relative_to(ROOT / folder)): one.read_text("utf-8") for one in (ROOT / folder).rglob("*.py")}


def of(*names: str) -> list[str]:
    return [requirement for name in names for requirement in EXTRAS[name]]


def test_every_import_is_declared_and_those_upon_an_extra_are_late():
    assert undeclared(files("src/anchorlab"), PROJECT["dependencies"], of(*FOR_PEOPLE)) == set()
    modules = {f"anchorlab.{file.removesuffix('.py').replace('/', '.')}" for file in LOADED_LATE}
    for file, source in files("src/anchorlab").items():
        if file not in LOADED_LATE:
            assert not {module for module, when in imports(source) if when == "at once"} & modules, file
    # Those of the extras are late, or stand below a line that skips the file.
    declared = [*PROJECT["dependencies"], *of(*EXTRAS)]
    assert undeclared(files("tests"), declared, []) == set()


@pytest.mark.slow
@pytest.mark.parametrize("extra", [None, *FOR_PEOPLE])
def test_every_declared_package_is_imported(extra):
    sources = files("src/anchorlab").values()
    used = {name.split(".")[0] for source in sources for name, when in imports(source) if when != "typing"}
    assert packages(of(extra) if extra else PROJECT["dependencies"]) - used - set(USED_BY_OTHERS) == set()
