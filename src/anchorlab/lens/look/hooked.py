"""Models with hook points, such as TransformerLens's `TransformerBridge`, as modules with sites."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from anchorlab.errors import SiteError
from anchorlab.lens.look.access import evaluating
from anchorlab.models.sites import Site, Sites, Tap, identity_tap

_AXES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"hook_(pattern|attn_scores)", ("batch", "head", "query", "key")),
    (r"hook_(rot_)?[qkvz]|(rot_)?[qkv]\.hook_out|o\.hook_in", ("batch", "position", "head", "head_width")),
    (r"hook_(result|[qkv]_input|attn_in)", ("batch", "position", "head", "width")),
    (r"mlp\.(hook_(pre|post|pre_linear)|(in|gate)\.hook_out|out\.hook_in)", ("batch", "position", "hidden")),
    (r"unembed\.hook_out|hook_unembed", ("batch", "position", "output")),
    (r"embed\.hook_in", ("batch", "position")),
    (r".*", ("batch", "position", "width")),
)
"""The axes of a hook point by the end of its name; the first matching pattern with the right number of axes."""

_BRANCH = ("ln2.hook_in", "mlp.hook_in")
"""Hook points to which a bridge gives the alias `hook_resid_mid`, although the residual path bypasses them."""

_PROBE = (2, 1)
"""The numbers of sequences and positions of a short pass that finds the hook points that a model visits."""


class HookedModel(nn.Module):
    """A model with hook points, wrapped as a module with `sites` and `tap`, so that the lens can open it.

    The sites are the hook points that a pass visits, under all their names. The weights have the names and shapes of
    the model's `state_dict`; tied weights have the first of their names. The model itself is left unchanged.

    In a bridge, `hook_resid_mid` lies on the feed-forward branch, after the residual path has split off. It can be
    recorded. An intervention there is an error, because the change would reach only the feed-forward branch.
    """

    foreign: ClassVar[bool] = True
    """The sites are another library's (see `Access.foreign`)."""

    model: Any
    sites: Sites

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.__dict__["model"] = model  # outside the tree of modules, because its weights have other names here
        self.paths: dict[str, list[str]] = {}
        paths = _paths(model)
        for name, weight in model.state_dict(keep_vars=True).items():
            if weight in paths:
                self.paths[name] = paths.pop(weight)
                _hold(self, name, weight)
        points: Mapping[str, Any] = model.hook_dict
        self.sites = _probe(model, points)
        self.branches = {name for name in self.sites if name.endswith("hook_resid_mid") and _off_path(name, points)}

    def forward(self, inputs: Int[Tensor, "batch position"], tap: Tap = identity_tap) -> Float[Tensor, "..."]:
        """Return the model's output for tokens, usually logits; `tap` is called at each hook point."""

        def visit(site: str, value: Tensor) -> Tensor | None:
            after = tap(site, value)
            if after is value:
                return None
            if site in self.branches:
                branch = site.replace("hook_resid_mid", "ln2.hook_in")
                raise SiteError(
                    f"site {site!r}: in a TransformerBridge the residual path does not pass through this hook, so that "
                    f"a change misses it; open the model with anchorlab.pretrained, or name the branch, {branch!r}"
                )
            return after

        weights: dict[str, Tensor] = dict(self.named_parameters(remove_duplicate=False))
        placed = {path: weights[name] for name, paths in self.paths.items() for path in paths}
        hooks = [(site, lambda value, hook, site=site: visit(site, value)) for site in self.sites]
        with evaluating(self.model), self.model.hooks(fwd_hooks=hooks):
            # One path per place: if torch resolved the ties, a place with two paths would keep the new weight.
            output: Tensor = functional_call(self.model, placed, (inputs,), tie_weights=False)
        return output


def opened(model: nn.Module) -> nn.Module:
    """Return a model with hook points as a `HookedModel`, and any other module unchanged."""
    has_hooks = isinstance(getattr(model, "hook_dict", None), Mapping) and callable(getattr(model, "hooks", None))
    return HookedModel(model) if has_hooks else model


def _paths(model: nn.Module) -> dict[Tensor, list[str]]:
    """Return the paths of each parameter, one per place; a bridge's own `named_parameters` would give other names."""
    paths: dict[Tensor, list[str]] = {}
    for prefix, module in nn.Module.named_modules(model):
        for name, weight in module._parameters.items():
            if weight is not None:
                paths.setdefault(weight, []).append(f"{prefix}.{name}" if prefix else name)
    return paths


def _hold(module: nn.Module, name: str, weight: Tensor) -> None:
    """Register a weight under a dotted name, with a nested module for each part of the name."""
    first, _, rest = name.partition(".")
    if not rest:
        module.register_parameter(first, weight)  # type: ignore[arg-type]
        return
    if first not in module._modules:
        module.add_module(first, nn.Module())
    _hold(module._modules[first], rest, weight)  # type: ignore[arg-type]


def _probe(model: Any, points: Mapping[str, Any]) -> dict[str, Site]:
    device = next(model.parameters()).device
    tokens = torch.zeros(_PROBE, dtype=torch.int64, device=device)
    with evaluating(model):
        _, cache = model.run_with_cache(tokens, return_cache_object=False)
    return {
        name: Site(name, _axes(point, points, cache[name]))
        for name, point in points.items()
        if isinstance(cache.get(name), Tensor)
    }


def _axes(point: Any, points: Mapping[str, Any], value: Tensor) -> tuple[str, ...]:
    if len(value) != _PROBE[0]:  # shared by all sequences, such as the sines of rotary positions
        return tuple(f"axis_{index}" for index in range(value.ndim))
    names = [name for name, other in points.items() if other is point]
    for pattern, axes in _AXES:
        if len(axes) == value.ndim and any(re.search(rf"(^|\.)({pattern})$", name) for name in names):
            by_head = axes[2:3] == ("head",) and getattr(point, "pos_dim", None) == 2
            return ("batch", "head", "position", *axes[3:]) if by_head else axes
    return ("batch", *(f"axis_{index}" for index in range(1, value.ndim)))


def _off_path(name: str, points: Mapping[str, Any]) -> bool:
    block = name.removesuffix("hook_resid_mid")
    return any(points.get(block + branch) is points[name] for branch in _BRANCH)
