"""Sites: the named places in a model where a value can be read or changed, and the `tap` that visits them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from jaxtyping import Int, Shaped
from torch import Tensor

Tap = Callable[[str, Shaped[Tensor, "*axes"]], Shaped[Tensor, "*axes"]]
"""A function that a model calls at each site with its name and value; the model continues with the returned value."""

Positions = Int[Tensor, "*batch scored"] | None
"""The positions at which a model is asked, `[scored]` or `[batch scored]`; None asks everywhere."""


def identity_tap(site: str, value: Shaped[Tensor, "*axes"]) -> Shaped[Tensor, "*axes"]:
    """Return the value unchanged."""
    return value


@dataclass(frozen=True)
class Site:
    """A named place in a model, and the axes of its value.

    For example, an attention pattern `blocks.0.attn.hook_pattern` has the axes `("batch", "head", "query", "key")`.
    Names follow TransformerLens if it has such a site.
    """

    name: str
    axes: tuple[str, ...]


Sites = Mapping[str, Site]
"""The sites of a model by name, in the order of visits."""

STREAM = ("batch", "position", "width")
HIDDEN = ("batch", "position", "hidden")
LOGITS = Site("hook_logits", ("batch", "position", "output"))


def by_name(sites: Iterable[Site]) -> Sites:
    """Return sites by their names."""
    return {site.name: site for site in sites}
