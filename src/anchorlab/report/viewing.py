"""The attention viewer by itself: drawn in a notebook, or written as a page of its own."""

from dataclasses import dataclass
from html import escape
from pathlib import Path

from anchorlab.report.page import environment, write_page
from anchorlab.training import TrainedRun
from anchorlab.viewer.make import view_patterns, view_run
from anchorlab.viewer.view import AttentionView

__all__ = ["Viewer", "show", "view_patterns", "view_run"]

_HEIGHT = 900  # pixels of a notebook's frame until its page says how high it is


@dataclass(frozen=True, repr=False)
class Viewer:
    """An attention view that draws itself in a notebook and can be kept as a page."""

    view: AttentionView

    def __repr__(self) -> str:
        view = self.view
        heads = f"{view.layers} layers of {view.heads} heads"
        return f"Viewer({view.title!r}, {heads}, {len(view.members)} members, {len(view.steps)} checkpoints)"

    def _repr_html_(self) -> str:
        """A frame that holds the whole page and grows to its height."""
        style = f"width: 100%; height: {_HEIGHT}px; border: 0"
        title = escape(self.view.title)
        return f'<iframe srcdoc="{escape(self.html)}" title="{title}" style="{style}"></iframe>'

    @property
    def html(self) -> str:
        """The page, which asks the network for nothing."""
        return environment().get_template("viewer.html.jinja").render(title=self.view.title, view=self.view)

    def save(self, path: Path | str) -> Path:
        """Writes the page, to be opened as a file, and returns its path; missing folders are made."""
        return write_page(self.html, path)


def show(what: AttentionView | TrainedRun) -> Viewer:
    """The viewer of an attention view, or of a trained run as `view_run` views it by default."""
    return Viewer(what if isinstance(what, AttentionView) else view_run(what))
