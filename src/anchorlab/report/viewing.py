"""Show the attention viewer alone, in a notebook or as a page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from anchorlab.errors import SpecError
from anchorlab.language import LanguageModel
from anchorlab.report.page import environment, write_page
from anchorlab.training import TrainedRun
from anchorlab.viewer import AttentionView, read_texts, view_patterns, view_run

_HEIGHT = 900  # initial height in pixels of the notebook frame; the page then sets its own


@dataclass(frozen=True, repr=False)
class Viewer:
    """An attention view that a notebook displays and that can be saved as a page."""

    view: AttentionView

    def __repr__(self) -> str:
        view = self.view
        heads = f"{view.layers} layers of {view.heads} heads"
        return f"Viewer({view.title!r}, {heads}, {len(view.members)} members, {len(view.steps)} checkpoints)"

    def _repr_html_(self) -> str:
        """Return a frame that contains the whole page and grows to its height."""
        style = f"width: 100%; height: {_HEIGHT}px; border: 0"
        title = escape(self.view.title)
        return f'<iframe srcdoc="{escape(self.html)}" title="{title}" style="{style}"></iframe>'

    @property
    def html(self) -> str:
        """The page as text; it loads nothing from the network."""
        return environment().get_template("viewer.html.jinja").render(title=self.view.title, view=self.view)

    def save(self, path: Path | str) -> Path:
        """Write the page and return its path. Errors: `SpecError` if its folder does not exist."""
        return write_page(self.html, path)


def show(what: AttentionView | TrainedRun | LanguageModel, texts: str | Sequence[str] = ()) -> Viewer:
    """Return the viewer of an attention view, of a trained run, or of a language model on texts.

        show(run)  # with the defaults of `view_run`
        show(al.pretrained("smollm2"), ["The capital of France is"])

    Errors: `SpecError` for a language model without texts, and for texts without a language model.
    """
    if isinstance(what, LanguageModel):
        return Viewer(read_texts(what, texts).view)
    if len(texts):
        raise SpecError("texts", f"no {type(what).__name__} reads any", "leave them out")
    return Viewer(what if isinstance(what, AttentionView) else view_run(what))


def attention(
    patterns: Iterable[Any],
    tokens: Sequence[str] | Sequence[Sequence[str]],
    *,
    title: str = "Attention",
    roles: Sequence[str] | Sequence[Sequence[str]] | None = None,
) -> Viewer:
    """Return the viewer of attention patterns from any model; no run is needed.

        al.attention(patterns, ["The", " cat", " sat"])  # in a notebook; patterns [layer head query key]
        al.attention(patterns, tokens).save("attention.html")

    Arguments and errors: as for `anchorlab.viewer.view_patterns`.
    """
    return Viewer(view_patterns(patterns, tokens, title=title, roles=roles))
