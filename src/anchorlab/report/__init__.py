"""Reports: figures in one style, self-contained pages, and the attention viewer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anchorlab.report.figures import draw, save
    from anchorlab.report.page import write_report
    from anchorlab.report.viewing import Viewer, show, view_patterns, view_run

_MODULES = {
    "Viewer": "viewing",
    "draw": "figures",
    "save": "figures",
    "show": "viewing",
    "view_patterns": "viewing",
    "view_run": "viewing",
    "write_report": "page",
}

__all__ = ["Viewer", "draw", "save", "show", "view_patterns", "view_run", "write_report"]


def __getattr__(name: str) -> Any:
    """Imports matplotlib and jinja2 only once something is drawn or written."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"anchorlab.report.{_MODULES[name]}"), name)
