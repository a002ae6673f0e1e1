"""Check that a module reads the values that its submodules return."""

from collections.abc import Mapping

import torch
from torch import Tensor

from anchorlab.errors import SiteError
from anchorlab.lens.look.access import Access, evaluating
from anchorlab.lens.look.sources import fitting


def check_read(access: Access, weights: Mapping[str, Tensor], inputs: Tensor, named: Mapping[str, str]) -> None:
    """Raise `SiteError` for a site that the module does not read, so that its value has no effect on the output.

    A submodule may return an unused value, such as the attention weights in Hugging Face's attention. To find out, each
    site is filled with NaN in a pass over the first sequence: if the value is read, the output changes. A module's own
    sites lie on the path of its computation and are not tried, unless another library declares them. Values that are
    not floating-point numbers are not tried either.

    Args:
        access: the module and its sites.
        weights: one member's weights, by name.
        inputs: all sequences; the first is run.
        named: the site of each intervention, by the name that errors give it.
    """
    if not access.foreign:
        return
    with evaluating(access.module):
        one = fitting(inputs[:1], weights)
        plain = access.run(weights, one, (), lambda _, value: value) if named else None
        for site in dict.fromkeys(named.values()):
            if plain is not None and not _reaches(access, weights, one, site, plain):
                where = ", ".join(name for name, other in named.items() if other == site)
                remedy = "intervene where the value is used, or set may_do_nothing"
                raise SiteError(f"{where}: the model does not read the value at {site!r}; {remedy}")


def _reaches(access: Access, weights: Mapping[str, Tensor], one: Tensor, site: str, plain: Tensor) -> bool:
    """Return whether NaN at a site changes the output; True for a site that is not visited or holds no float values."""
    filled: list[str] = []

    def fill(name: str, value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value
        filled.append(name)
        return torch.full_like(value, torch.nan)

    output = access.run(weights, one, (site,), fill)
    return not filled or not torch.equal(output, plain)
