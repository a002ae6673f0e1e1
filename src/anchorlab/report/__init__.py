"""Reports: figures in one style and self-contained pages."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anchorlab.report.figures import draw, save
    from anchorlab.report.page import write_report

__all__ = ["draw", "save", "write_report"]


def __getattr__(name: str) -> Any:
    """Imports matplotlib and jinja2 only once something is drawn or written."""
    if name in ("draw", "save"):
        from anchorlab.report import figures

        return getattr(figures, name)
    if name == "write_report":
        from anchorlab.report.page import write_report

        return write_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
