"""Reports: figures in one style, self-contained pages, and the attention viewer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anchorlab.report.browse import write_browser
    from anchorlab.report.figures import draw, save
    from anchorlab.report.page import write_report
    from anchorlab.report.plots import plot
    from anchorlab.report.viewing import Viewer, attention, show

_MODULES = {
    "Viewer": "viewing",
    "attention": "viewing",
    "draw": "figures",
    "plot": "plots",
    "save": "figures",
    "show": "viewing",
    "write_browser": "browse",
    "write_report": "page",
}

__all__ = ["Viewer", "attention", "draw", "plot", "save", "show", "write_browser", "write_report"]


def __getattr__(name: str) -> Any:
    """Import the module of a name on first use, so that matplotlib and jinja2 are loaded only for drawing."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"anchorlab.report.{_MODULES[name]}"), name)
