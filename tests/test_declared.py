"""What the source imports is declared, and what is declared is imported: a plain install lacks nothing."""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping

import pytest

from tests.documents import ROOT
from tests.extras import EXTRAS, PROJECT, packages

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
