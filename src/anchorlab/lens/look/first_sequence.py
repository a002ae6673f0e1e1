"""Short passes over the first sequence, to see whether values are read and how many sequences fit into memory."""

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens.look.access import OUTPUT, evaluating
from anchorlab.lens.look.inputs import Subject, fitting, positions_of
from anchorlab.models.sites import Tap

WORKING_BYTES = 512 * 2**20
"""The memory for the sequences of one pass, in bytes, in addition to the weights and the record."""

_COPIES = 4  # memory of a pass in units of its largest value: it holds scores, masked scores and pattern at once
_MOST = 512  # maximum number of sequences at a time; more are not faster


def check_read(subject: Subject, named: Mapping[str, str]) -> None:
    """Raise `SiteError` for a site that the module does not read, so that its value has no effect on the output.

    A submodule may return an unused value, such as the attention weights in Hugging Face's attention. To find out, each
    site is filled with NaN: if the value is read, the output changes. A module's own sites lie on the path of its
    computation and are not tried, unless another library declares them. Values that are not floating-point numbers are
    not tried either. `named` are the sites of the interventions, by the interventions' names in errors.
    """
    access, weights = subject.access, subject.ensemble.member_weights(0)
    if not access.foreign or not named:
        return
    filled: set[str] = set()

    def fill(site: str, value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value
        filled.add(site)
        return torch.full_like(value, torch.nan)

    with evaluating(access.module):
        one = fitting(subject.inputs[:1], weights)
        plain = access.run(weights, one, (), fill)
        for site in dict.fromkeys(named.values()):
            output = access.run(weights, one, (site,), fill)
            if site in filled and torch.equal(output, plain):
                where = ", ".join(name for name, other in named.items() if other == site)
                remedy = "intervene where the value is used, or set may_do_nothing"
                raise SiteError(f"{where}: the model does not read the value at {site!r}; {remedy}")


def sequences_at_a_time(
    subject: Subject,
    positions: Int[Tensor, "*batch scored"] | None = None,
    *,
    given: int | None = None,
    kept: Collection[str] = (),
    copies: int = 1,
    passes: int = 1,
    most: int = _MOST,
) -> int:
    """Return how many sequences may run at a time: `given`, or an estimate from the sizes of the values in one pass.

    A sequence is estimated to take four times its largest value, in each of the concurrent `passes`, plus `copies` of
    the values at the sites that are `kept` in memory until these sequences are done, such as one for each member.
    """
    if given is not None:
        if given < 1:
            raise SpecError("batch_size", f"{given} is not a number of sequences", "give at least 1")
        return given
    if len(subject.inputs) == 1 or most == 1:
        return 1
    sizes = _sizes(subject, positions_of(positions, range(1)))
    one = passes * _COPIES * max(sizes.values()) + copies * sum(sizes.get(site, 0) for site in kept)
    return max(1, min(most, WORKING_BYTES // one))


def _sizes(subject: Subject, positions: Tensor | None) -> dict[str, int]:
    """Return the size in bytes of the value at each site, and of the output."""
    access, weights = subject.access, subject.ensemble.member_weights(0)
    found: dict[str, int] = {}

    def visit(site: str, value: Tensor) -> Tensor:
        found[site] = max(found.get(site, 0), value.nbytes)
        return value

    with evaluating(access.module), ExitStack() as hooks:
        if access.own_sites is None:
            for name, part in access.module.named_modules():
                hooks.callback(part.register_forward_hook(partial(_measure, name, visit)).remove)
        targets = access.names if access.own_sites is not None else ()
        output = access.run(weights, fitting(subject.inputs[:1], weights), targets, visit, positions)
    return {**found, OUTPUT: output.nbytes}


def _measure(name: str, visit: Tap, module: nn.Module, arguments: Any, output: Any) -> None:
    elements = enumerate(output) if isinstance(output, tuple | list) else ()
    for site, value in [(name, output), *((f"{name}[{place}]", element) for place, element in elements)]:
        if isinstance(value, Tensor):
            visit(site, value)
