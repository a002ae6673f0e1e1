"""The sites of a module: its own, visited by `tap`, or its submodules, visited by hooks."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn
from torch.func import functional_call

from anchorlab.errors import SiteError, SpecError
from anchorlab.models.model import Weights, accepts
from anchorlab.models.sites import Sites, Tap
from anchorlab.patterns import matches, matching

OUTPUT = "output"
"""The name of a model's output in a record; no site has this name."""

_ELEMENT = re.compile(r"(?P<module>.*)\[(?P<element>\d+)\]")
_USUAL_AXES = {1: ("batch",), 2: ("batch", "width"), 3: ("batch", "position", "width")}


@dataclass(frozen=True)
class Access:
    """The sites of one module, and a way to visit them.

    If the module declares `sites` and its forward takes `tap`, sites are visited through `tap`. In any other module
    every submodule is a site, named as in `named_modules`. The value of such a site is the submodule's output;
    `name[i]` is element i of a tuple. `given_axes` names the axes of these sites by pattern. A site that matches no
    pattern has the axes `batch width` or `batch position width`, according to its number of axes.
    """

    module: nn.Module
    given_axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def own_sites(self) -> Sites | None:
        """The sites that the module declares; None if its submodules are the sites."""
        sites = getattr(self.module, "sites", None)
        return sites if isinstance(sites, Mapping) and accepts(self.module, "tap") else None

    @property
    def foreign(self) -> bool:
        """Whether the module's code is not ours: it may ignore the value at a site, and `vmap` may not support it."""
        return self.own_sites is None or getattr(self.module, "foreign", False)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all sites, in the module's order."""
        if self.own_sites is not None:
            return tuple(self.own_sites)
        return tuple(name for name, _ in self.module.named_modules() if name not in ("", OUTPUT))

    def resolve(self, pattern: str, where: str) -> list[str]:
        """Return the sites that match a name or a pattern (see `anchorlab.patterns`)."""
        stem, element = pattern, ""
        if self.own_sites is None and (split := _ELEMENT.fullmatch(pattern)):
            stem, element = split["module"], f"[{split['element']}]"
        try:
            return [name + element for name in matching(stem, self.names, where, "site")]
        except SpecError as error:
            raise SiteError(str(error)) from None

    def axes(self, site: str, value: Shaped[Tensor, "..."]) -> tuple[str, ...]:
        """Return the axis names of a site's value."""
        if self.own_sites is not None:
            axes = self.own_sites[site].axes
        else:
            given = (names for pattern, names in self.given_axes.items() if matches(pattern, site))
            other = ("batch", *(f"axis_{index}" for index in range(1, value.ndim)))
            axes = tuple(next(given, _USUAL_AXES.get(value.ndim, other)))
        if len(axes) != value.ndim:
            raise SiteError(f"site {site!r} has shape {tuple(value.shape)}, which does not fit its axes {axes}")
        if "batch" in axes[1:]:
            raise SiteError(f"site {site!r} has axes {axes}; a batch axis must come first")
        return axes

    def hands_on_positions(self, targets: Iterable[str]) -> bool:
        """Return whether `positions` can restrict the module's output without changing the values at the targets."""
        if not accepts(self.module, "positions") or getattr(self.module, "predicts_last_alone", False):
            return False
        if getattr(self.module, "positions_narrow_sites", True) or self.own_sites is None:
            return not set(targets)
        return not any("output" in self.own_sites[site].axes for site in targets)

    def least_positions(
        self, targets: Iterable[str], inputs: Shaped[Tensor, "batch position *feature"]
    ) -> Int[Tensor, "last"] | None:
        """Return the positions for a pass whose output is not needed: the last, or None if it cannot be restricted."""
        return torch.tensor([inputs.shape[1] - 1]) if self.hands_on_positions(targets) else None

    def run(
        self,
        weights: Weights,
        inputs: Shaped[Tensor, "batch position *feature"],
        targets: Iterable[str],
        visit: Tap,
        positions: Int[Tensor, "*batch scored"] | None = None,
    ) -> Shaped[Tensor, "..."]:
        """Run the module with one member's weights, call `visit` at each target site, and return the output.

        `positions` are passed to the module if given; check `hands_on_positions` before. To begin at a block, see
        `replay`.
        """
        wanted = frozenset(targets)
        arguments: dict[str, Any] = {} if positions is None else {"positions": positions.to(inputs.device)}
        if self.own_sites is not None:

            def tap(site: str, value: Tensor) -> Tensor:
                return visit(site, value) if site in wanted else value

            output = functional_call(self.module, dict(weights), (inputs,), {**arguments, "tap": tap})
        else:
            with at_submodules(self.module, wanted, visit):
                output = functional_call(self.module, dict(weights), (inputs,), arguments)
        if not isinstance(output, Tensor):
            kind = type(output).__name__
            raise SpecError("model", f"returns a {kind}, not a tensor", "wrap it to return its predictions")
        return output


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Within `with`, put a module in evaluation mode without gradients; then restore the mode of each submodule."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


@contextmanager
def at_submodules(module: nn.Module, targets: Iterable[str], visit: Tap) -> Iterator[None]:
    """Within `with`, call `visit` with the output of each of some submodules, or with an element of it."""
    elements: dict[str, list[int | None]] = {}
    for site in sorted(targets):
        split = _ELEMENT.fullmatch(site)
        name, element = (split["module"], int(split["element"])) if split else (site, None)
        elements.setdefault(name, []).append(element)
    with ExitStack() as hooks:
        for name, chosen in elements.items():
            hook = partial(_hook, name, chosen, visit)
            hooks.callback(module.get_submodule(name).register_forward_hook(hook).remove)
        yield


def _hook(name: str, chosen: list[int | None], visit: Tap, module: nn.Module, arguments: Any, output: Any) -> Any:
    for element in chosen:
        if element is None:
            if not isinstance(output, Tensor):
                kind = type(output).__name__
                raise SiteError(f"site {name!r} returns a {kind}, not a tensor; name one element, {name + '[0]'!r}")
            output = visit(name, output)
        else:
            site = f"{name}[{element}]"
            if not isinstance(output, tuple | list) or element >= len(output):
                raise SiteError(f"site {site!r}: what {name!r} returns has no element {element}")
            if not isinstance(output[element], Tensor):
                raise SiteError(f"site {site!r} holds a {type(output[element]).__name__}, not a tensor")
            parts = list(output)
            parts[element] = visit(site, parts[element])
            output = type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)
    return output
