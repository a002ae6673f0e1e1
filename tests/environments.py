"""Part of the suite in other environments: under other Pythons, with the lowest dependencies and with the newest.

`python -m tests.environments versions` takes every other Python from 3.11 to 3.13 that is on this machine. The source
is compiled there, and tests run where pip finds a CPU build of torch, since the one with CUDA has gigabytes; `compile`
compiles alone. `lowest` installs the lower bound of every dependency and `newest` what pip takes within the bounds,
without the constraints; torch stays the pinned one for the same reason. `lowest` writes what passed to
requirements/lowest.txt; `changed` is `lowest` where that file names others. `released` installs the built wheel alone
with each of these two sets, and runs there what the pages say.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.documents import ROOT
from tests.extras import EXTRAS, PROJECT

VERSIONS = ("3.11", "3.12", "3.13")
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"
BUILD = ROOT / "build" / "environments"
DECLARED = [*PROJECT["dependencies"], *EXTRAS["tsne"]]
TESTERS = ("pytest", "pytest-xdist", "hypothesis", "beartype", "pyyaml")
# every dependency is called by one of these; together they take less than a minute
SMOKE = (
    "tests/test_face.py",
    "tests/findings",
    "tests/models",
    "tests/runs/test_cell.py",
    "tests/runs/test_query.py",
    "tests/runs/test_tensor_file.py",
    "tests/report/test_figures.py",
    "tests/report/test_page.py",
    "tests/tasks/anchor",
    "tests/theory",
    "tests/cli/test_commands.py",
    "tests/cli/test_bad_input.py",
    "tests/lens/vectors/test_projections.py",
    # of the extras, these environments have `tsne` alone: what needs another skips
    "tests/language",
    "tests/papers/language",
    "tests/papers/retrieval/language_models/test_language_models.py",
)
REMEDY = "set PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu to run the tests"
LEFT_OUT = "not (browser or installed or killed or language or slow or nightly)"
PASSED = CONSTRAINTS.with_name("lowest.txt")
HEAD = "# The lowest dependencies with which a part of the suite has passed. `make test-bounds` writes this file."


def lowest(requirements: Sequence[str]) -> list[str]:
    """Each requirement at its lower bound, without torch."""
    bounds = [re.match(r"([\w.-]+)>=([\d.]+)", one) for one in requirements]
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound[1] != "torch"]


def pinned(names: Sequence[str]) -> list[str]:
    """Packages, named in small letters, at the versions of the tested set."""
    lines = CONSTRAINTS.read_text("utf-8").splitlines()
    return [line for line in lines if line.partition("==")[0].lower() in names]


def interpreter(version: str) -> str | None:
    """A Python of this version that runs: on the path, or installed by pyenv."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [shutil.which(f"python{version}"), *map(str, root.glob(f"versions/{version}.*/bin/python{version}"))]
    runs = (one for one in found if one and not subprocess.run([one, "-c", ""], capture_output=True).returncode)
    return next(runs, None)


def build() -> str:
    """The requirement of torch's CPU build."""
    (torch,) = pinned(["torch"])
    return torch if sys.platform == "darwin" else f"{torch}+cpu"


def environment(
    python: str, name: str, requirements: Sequence[str], constrained: bool, folder: Path = BUILD
) -> Path | None:
    """Make an environment with torch's CPU build; None if pip cannot install that, after printing pip's last line."""
    folder = folder / name
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    tried = subprocess.run([*pip, build()], capture_output=True, text=True, check=False)
    if tried.returncode:
        print(f"pip: {(tried.stderr.strip() or f'ended with {tried.returncode}').splitlines()[-1]}")
        return None
    pins = ["-c", CONSTRAINTS] if constrained else []
    subprocess.run([*pip, *pins, *requirements, *pinned(TESTERS)], check=True)
    return folder / "bin" / "python"


def smoke(python: Path) -> int:
    """Run the part of the suite; return pytest's exit code."""
    settings = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "ANCHORLAB_NOTHING_LEFT_OUT": "0"}
    command = [python, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "-m", LEFT_OUT, *SMOKE]
    return subprocess.run(command, cwd=ROOT, env=settings, check=False).returncode


def under(version: str, tests: bool) -> int:
    """Compile the source with another Python, with warnings as errors; run the part of the suite under it, if asked."""
    python = interpreter(version)
    if python is None:
        print(f"Python {version}: left out, it is not on this machine")
        return 0
    compiled = ["-W", "error", "-m", "compileall", "-q", "-f", "src", "tests"]
    settings = {**os.environ, "PYTHONPYCACHEPREFIX": str(BUILD / "compiled")}
    if subprocess.run([python, *compiled], cwd=ROOT, env=settings, check=False).returncode:
        return 1
    print(f"Python {version}: the source compiles")
    made = environment(python, version, DECLARED, constrained=True) if tests else None
    if tests and made is None:
        print(f"Python {version}: left out, pip cannot install {build()} for it; {REMEDY}")
    return smoke(made) if made else 0


def released(which: str) -> int:
    """Run what the pages say on the built wheel, with the lowest or the newest dependencies and no source."""
    (wheel,) = (ROOT / "build" / "dist").glob("*.whl")
    declared = lowest(PROJECT["dependencies"]) if which == "lowest" else PROJECT["dependencies"]
    python = environment(sys.executable, which, [str(wheel), *declared], constrained=False, folder=ROOT / "build")
    if python is None:
        return 1
    settings = {**os.environ, "ANCHORLAB_PROGRAMS": str(python.parent)}
    command = [sys.executable, "-m", "pytest", "-n", "2", "-m", "installed"]
    return subprocess.run(command, cwd=ROOT, env=settings, check=False).returncode


def bound(which: str) -> int:
    """Run the part of the suite with the lowest or the newest dependencies; note the lowest that passed."""
    wanted = lowest(DECLARED) if which == "lowest" else DECLARED
    made = environment(sys.executable, which, wanted, constrained=False)
    if made is None:
        raise SystemExit(f"pip cannot install {build()}; {REMEDY}")
    code = smoke(made)
    if which == "lowest" and not code:
        PASSED.write_text(tried(), "utf-8")
    return code


def tried() -> str:
    """What the environment of the lowest dependencies is made of."""
    return "\n".join([HEAD, *sorted([*lowest(DECLARED), *pinned(["torch", *TESTERS])], key=str.lower), ""])


def main(which: str) -> int:
    if which == "released":
        return int(any([released("lowest"), released("newest")]))
    if which in ("versions", "compile"):
        here = "{}.{}".format(*sys.version_info)
        codes = [under(one, which == "versions") for one in VERSIONS if one != here]  # of all; below 0 for a signal
        return int(any(codes))
    if which == "changed":
        if PASSED.exists() and PASSED.read_text("utf-8") == tried():
            print(f"the lowest dependencies are those of {PASSED.relative_to(ROOT)}, with which the tests passed")
            return 0
        return bound("lowest")
    return bound(which)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
