"""Pages written before each build from the package itself: its public names, the command line and the claims."""

import re
from importlib import import_module
from inspect import isclass, isfunction
from pathlib import Path
from types import ModuleType

from claims_page import claims_page
from sphinx.application import Sphinx
from sphinx.errors import ConfigError

PACKAGES = (
    "tasks",
    "models",
    "training",
    "trained",
    "runs",
    "lens",
    "lens.circuits",
    "language",
    "language.asking",
    "language.endpoint",
    "theory",
    "theory.compiled",
    "interop",
    "engine",
    "findings",
    "viewer",
    "studies",
    "truth",
    "report",
    "errors",
)
FACE = "anchorlab"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the pages. Sphinx calls this; an error is shown without a traceback."""
    check_gallery(Path(app.srcdir) / "gallery")
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True}


def write_pages(app: Sphinx) -> None:
    """Write the pages that changed, so that Sphinx reads only those again."""
    folder = Path(app.srcdir) / "api" / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    pages = {name: package_page(name) for name in PACKAGES} | {
        "face": face_page(),
        "cli": cli_page(),
        "claims": claims_page(),
    }
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def check_gallery(gallery: Path) -> None:
    """Check that every published study has its results. Errors: `ConfigError` naming the missing ones."""
    from anchorlab.studies import STUDIES

    missing = [name for name in STUDIES if not (gallery / name.replace("/", "-") / "claims.md").exists()]
    if missing:
        raise ConfigError(f"docs/gallery has no results of {', '.join(missing)}; `make gallery` writes them")


def public_names(package: ModuleType) -> list[str]:
    """Return the classes and functions of a package's face, in the order of its `__init__`."""
    names = getattr(package, "__all__", None) or [name for name in vars(package) if not name.startswith("_")]
    return [name for name in names if _is_ours(getattr(package, name))]


def _is_ours(value: object) -> bool:
    return (isclass(value) or isfunction(value)) and value.__module__.startswith("anchorlab.")


def package_page(name: str) -> str:
    """Return the page of one package."""
    package = import_module(f"anchorlab.{name}")
    above = import_module(f"anchorlab.{name.rpartition('.')[0]}") if "." in name else None
    lines = [f"# anchorlab.{name}", "", (package.__doc__ or "").strip().splitlines()[0], ""]
    for public in public_names(package):
        value = getattr(package, public)
        lines += ["```{eval-rst}", f".. auto{'class' if isclass(value) else 'function'}:: anchorlab.{name}.{public}"]
        if isclass(value):
            lines += ["   :members:", "   :exclude-members: model_config, model_post_init"]
        if getattr(above, public, None) is value:  # the page of the package above has it in the index
            lines.append("   :no-index:")
        lines += ["```", ""]
    return "\n".join(lines)


def face_page() -> str:
    """Return a table of the names of `import anchorlab as al`, each with a link to its page."""
    face = import_module(FACE)
    lines = ["| name | what it is |", "|---|---|"]
    for name in face.__all__:
        value = getattr(face, name)
        if name.startswith("_"):
            continue
        package, there = face._FACE[name], face._SPELLED.get(name, name)
        summary = (value.__doc__ or "").strip().splitlines()[0].replace("|", "\\|")
        lines.append(f"| {{py:obj}}`al.{name} <anchorlab.{package}.{there}>` | {summary} |")
    return "\n".join(lines) + "\n"


def cli_page() -> str:
    """Return every command with its options, as `--help` shows them."""
    from anchorlab.cli.main import app, commands, explain, runs

    for words in [[name] for name in commands] + [["runs", name] for name in runs if not name.startswith("-")]:
        explain(app, words)
    text = app.generate_docs(heading_level=1, usage_name="anchorlab")
    text = text[text.index("## anchorlab tasks") :]
    text = re.sub(r"\[(`[^`]+`)\]\(#[^)]*\)", r"\1", text)
    return re.sub(r"(?m)^(#+) anchorlab (.+)$", r"\1 `anchorlab \2`", text)
