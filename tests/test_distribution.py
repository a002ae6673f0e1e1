"""What is built holds all that an installation needs; the suite's other environments are those that are declared."""

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests import environments
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


def test_the_lowest_dependencies_are_the_declared_bounds():
    assert lowest(["torch>=2.6,<3", "numpy>=2.0,<3", "scikit-learn>=1.5", "huggingface-hub>=1.31"]) == [
        "numpy==2.0",
        "scikit-learn==1.5",
        "huggingface-hub==1.31",
    ]
    assert len(lowest(PROJECT["dependencies"])) == len(PROJECT["dependencies"]) - 1


def test_the_smoke_part_is_there_and_its_tools_are_pinned():
    assert [path for path in SMOKE if not (ROOT / path).exists()] == []
    assert [line.partition("==")[0] for line in pinned(["torch", "beartype"])] == ["beartype", "torch"]


@pytest.mark.parametrize("codes", [(-11, 0), (0, -11), (1, 0), (0, 2)])
def test_a_crash_under_one_python_is_red_and_every_python_has_its_turn(monkeypatch, codes):
    asked = []
    others = [version for version in environments.VERSIONS if version != "{}.{}".format(*sys.version_info)]
    found = dict(zip(others, codes, strict=False))

    def under(version, tests):
        asked.append((version, tests))
        return found.get(version, 0)

    monkeypatch.setattr(environments, "under", under)
    assert environments.main("versions") > 0 and asked == [(version, True) for version in others]
    assert environments.main("compile") > 0 and asked[2:] == [(version, False) for version in others]
    found.clear()
    assert environments.main("versions") == environments.main("compile") == 0


def test_source_that_another_python_refuses_is_red(monkeypatch, tmp_path):
    """The interpreter of the tests stands for another one."""
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    monkeypatch.setattr(environments, "BUILD", tmp_path / "build")
    monkeypatch.setattr(environments, "interpreter", lambda version: sys.executable)
    for folder in ("src", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "src" / "a.py").write_text("x = 1\n")
    assert environments.under("3.0", tests=False) == 0
    (tmp_path / "tests" / "b.py").write_text("x = '\\d'\n")  # a warning
    assert environments.under("3.0", tests=False) != 0


def test_every_tester_is_pinned():
    assert sorted(line.partition("==")[0].lower() for line in pinned(TESTERS)) == sorted(TESTERS)


@pytest.mark.parametrize(("which", "numpy"), [("lowest", "numpy==2.0"), ("newest", "numpy>=2.0,<3")])
def test_neither_bound_is_held_by_the_constraints(monkeypatch, which, numpy):
    asked = []
    monkeypatch.setattr(environments, "environment", lambda *given, **named: asked.append((given, named)) or ROOT)
    monkeypatch.setattr(environments, "smoke", lambda python: 5)
    assert environments.main(which) == 5
    (((_, name, requirements), constrained),) = asked
    assert name == which and numpy in requirements and constrained == {"constrained": False}


def test_the_lowest_run_again_where_they_changed_and_are_noted_where_they_passed(monkeypatch, tmp_path):
    ran, codes = [], [1, 0]
    monkeypatch.setattr(environments, "PASSED", tmp_path / "requirements" / "lowest.txt")
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    (tmp_path / "requirements").mkdir()
    monkeypatch.setattr(environments, "environment", lambda *given, **named: ran.append(given[1]) or ROOT)
    monkeypatch.setattr(environments, "smoke", lambda python: codes.pop(0))
    assert environments.main("changed") == 1 and not environments.PASSED.exists()
    assert environments.main("changed") == 0 and ran == ["lowest"] * 2
    assert "numpy==2.0\n" in environments.PASSED.read_text() and environments.main("changed") == 0 and len(ran) == 2
    monkeypatch.setattr(environments, "DECLARED", ["numpy>=2.1"])
    codes[:] = [3]
    assert environments.main("changed") == 3 and len(ran) == 3


def test_why_pip_failed_is_said(tmp_path, monkeypatch, capsys):
    def run(command, **_):
        failed = "install" in command
        return subprocess.CompletedProcess(command, int(failed), "", "a warning\nERROR: the disk is full\n")

    monkeypatch.setattr(environments.subprocess, "run", run)
    monkeypatch.setattr(environments, "BUILD", tmp_path)
    with pytest.raises(SystemExit, match=r"^pip cannot install torch==.*; set PIP_EXTRA_INDEX_URL="):
        environments.main("lowest")
    assert capsys.readouterr().out == "pip: ERROR: the disk is full\n"
