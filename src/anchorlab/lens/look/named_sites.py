"""This package's names for the sites of any module, so that detectors, patching and pages work on its attention."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from jaxtyping import Shaped
from torch import Tensor, nn

from anchorlab.errors import SpecError
from anchorlab.lens.look.access import Access, at_submodules
from anchorlab.lens.look.inputs import AnyModel, as_ensemble
from anchorlab.models.sites import Site, Sites, Tap, identity_tap
from anchorlab.training.ensemble import Ensemble

_AXES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"hook_(pattern|attn_scores.*)", ("batch", "head", "query", "key")),
    (r"hook_[qkvz]", ("batch", "position", "head", "head_width")),
    (r"mlp\.hook_(pre|post)", ("batch", "position", "hidden")),
    (r"hook_logits", ("batch", "position", "output")),
)
"""The axes of a site by the end of its name; `batch position width` elsewhere."""


class NamedSites(nn.Module):
    """A module, some of whose sites have other names.

    Fields
        own: the module's own name of each site, by the new name
    """

    foreign: ClassVar[bool] = True
    sites: Sites

    def __init__(self, module: nn.Module, own: Mapping[str, str], sites: Sites) -> None:
        super().__init__()
        self.module, self.own, self.sites = module, dict(own), sites

    def forward(self, inputs: Shaped[Tensor, "batch ..."], tap: Tap = identity_tap) -> Any:
        """Return the module's output; `tap` is called at each site with its name here."""
        names = {own: name for name, own in self.own.items()}

        def visit(site: str, value: Tensor) -> Tensor:
            return tap(names[site], value) if site in names else value

        if Access(self.module).own_sites is not None:
            return self.module(inputs, tap=visit)
        with at_submodules(self.module, names, visit):
            return self.module(inputs)


def with_sites(
    model: AnyModel, sites: Mapping[str, str], axes: Mapping[str, tuple[str, ...]] | None = None
) -> Ensemble:
    """Return a model whose sites have the given names, for every function of the lens.

        named = with_sites(module, {"layers.0.softmax": "blocks.0.attn.hook_pattern"})
        patch(named, clean, corrupted, answers, site="blocks.*.attn.hook_pattern", over="head")

    Args:
        model: as in `look`
        sites: the new name of each site, by its own name: a site that the module declares, else the name of a
            submodule, or `name[i]` for element i of what the submodule returns
        axes: axis names by the site's new name. By default they follow it: `hook_pattern` is `batch head query key`,
            `hook_q`, `hook_k`, `hook_v` and `hook_z` are `batch position head head_width`, `mlp.hook_pre` and
            `mlp.hook_post` `batch position hidden`, and any other site `batch position width`
    """
    ensemble = as_ensemble(model)
    access = Access(ensemble.template)
    own: dict[str, str] = {}
    for name, site in [(name, site) for at, name in sites.items() for site in access.resolve(at, "sites")]:
        if name in own:
            raise SpecError("sites", f"{name!r} is the name of {own[name]} and of {site}", "give each its own name")
        own[name] = site
    module = NamedSites(ensemble.template, own, {name: Site(name, (axes or {}).get(name, _axes(name))) for name in own})
    weights = {f"module.{name}": value for name, value in ensemble.weights.items()}
    return Ensemble(module, weights, tuple(f"module.{name}" for name in ensemble.trainable))


def _axes(name: str) -> tuple[str, ...]:
    found = (axes for pattern, axes in _AXES if re.search(rf"(^|\.)({pattern})$", name))
    return next(found, ("batch", "position", "width"))
