"""What is built holds all that an installation needs; the suite's other environments are those that are declared."""

import os
import tarfile
import tomllib
import zipfile
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
