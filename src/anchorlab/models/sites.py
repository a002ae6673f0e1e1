"""Sites: the named places of a model where a value can be read or changed, and the `tap` that visits them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

Tap = Callable[[str, Tensor], Tensor]
"""Called by a model at each site with the site's name and value; what it returns is used from there on."""


def identity_tap(site: str, value: Tensor) -> Tensor:
    """The tap that only lets values pass."""
    return value


@dataclass(frozen=True)
class Site:
    """One named place of a model.

    `axes` names the axes of the value there, such as `("batch", "head", "query", "key")` for an attention pattern.
    Names follow TransformerLens wherever it has one: `blocks.0.attn.hook_pattern`.
    """

    name: str
    axes: tuple[str, ...]


Sites = Mapping[str, Site]
