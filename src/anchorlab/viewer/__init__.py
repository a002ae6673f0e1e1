"""The attention viewer: views for a page, made from runs or attention patterns, and the scripts that draw them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anchorlab.viewer.live import can_run, live_model
    from anchorlab.viewer.make import view_patterns, view_run
    from anchorlab.viewer.oracle import page_oracle
    from anchorlab.viewer.page_data import view_json, viewer_script, viewer_style
    from anchorlab.viewer.texts import TextHeads, read_texts
    from anchorlab.viewer.view import AttentionView, LiveModel, ViewExample, ViewPath, ViewScores

_MODULES = {
    "AttentionView": "view",
    "LiveModel": "view",
    "TextHeads": "texts",
    "ViewExample": "view",
    "ViewPath": "view",
    "ViewScores": "view",
    "can_run": "live",
    "live_model": "live",
    "page_oracle": "oracle",
    "read_texts": "texts",
    "view_json": "page_data",
    "view_patterns": "make",
    "view_run": "make",
    "viewer_script": "page_data",
    "viewer_style": "page_data",
}

__all__ = [
    "AttentionView",
    "LiveModel",
    "TextHeads",
    "ViewExample",
    "ViewPath",
    "ViewScores",
    "can_run",
    "live_model",
    "page_oracle",
    "read_texts",
    "view_json",
    "view_patterns",
    "view_run",
    "viewer_script",
    "viewer_style",
]


def __getattr__(name: str) -> Any:
    """Import the module of a name on first use, so that reading findings imports `view` but not torch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"anchorlab.viewer.{_MODULES[name]}"), name)
