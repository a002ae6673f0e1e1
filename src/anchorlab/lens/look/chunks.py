"""Choose how many sequences to run at a time within bounded memory."""

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn

from anchorlab.errors import SpecError
from anchorlab.lens.look.access import OUTPUT, Access, evaluating
from anchorlab.lens.look.sources import fitting, positions_of

WORKING_BYTES = 512 * 2**20
"""The memory for the sequences of one pass, in bytes, in addition to the weights and the record."""

_COPIES = 4  # memory of a pass in units of its largest value: it holds scores, masked scores and pattern at once
_MOST = 512  # maximum number of sequences at a time; more are not faster


def sequences_at_a_time(
    access: Access,
    weights: Mapping[str, Tensor],
    inputs: Tensor,
    positions: Tensor | None = None,
    *,
    kept: Collection[str] = (),
    copies: int = 1,
    passes: int = 1,
    most: int = _MOST,
) -> int:
    """Return how many sequences may run at a time, from the sizes of the values in one pass over the first sequence.

    A sequence is estimated to take four times its largest value, plus the values at the sites that are kept.

    Args:
        access: the module and its sites.
        weights: one member's weights, by name.
        inputs: all sequences; the first is run.
        positions: the positions for `Access.run`, `[scored]` or `[batch scored]`.
        kept: the sites whose values stay in memory until these sequences are done; may include `"output"`.
        copies: the number of copies of these values, such as the number of members.
        passes: the number of concurrent passes.
        most: the maximum number of sequences at a time.
    """
    if len(inputs) == 1 or most == 1:
        return 1
    sizes = _sizes(access, weights, inputs[:1], positions_of(positions, range(1)))
    one = passes * _COPIES * max(sizes.values()) + copies * sum(sizes.get(site, 0) for site in kept)
    return max(1, min(most, WORKING_BYTES // one))


def checked_size(batch_size: int) -> int:
    """Return a batch size unchanged. Errors: `SpecError` below 1."""
    if batch_size < 1:
        raise SpecError("batch_size", f"{batch_size} is not a number of sequences", "give at least 1")
    return batch_size


def _sizes(access: Access, weights: Mapping[str, Tensor], inputs: Tensor, positions: Tensor | None) -> dict[str, int]:
    """Return the size in bytes of the value at each site, and of the output."""
    found: dict[str, int] = {}

    def visit(site: str, value: Tensor) -> Tensor:
        found[site] = max(found.get(site, 0), value.nbytes)
        return value

    with evaluating(access.module), ExitStack() as hooks:
        if access.own_sites is None:
            for name, part in access.module.named_modules():
                hooks.callback(part.register_forward_hook(_measure(name, visit)).remove)
        targets = access.names if access.own_sites is not None else ()
        output = access.run(weights, fitting(inputs, weights), targets, visit, positions)
    return {**found, OUTPUT: output.nbytes}


def _measure(name: str, visit: Callable[[str, Tensor], Tensor]) -> Callable[[nn.Module, Any, Any], None]:
    def hook(module: nn.Module, arguments: Any, output: Any) -> None:
        elements = enumerate(output) if isinstance(output, tuple | list) else ()
        for site, value in [(name, output), *((f"{name}[{place}]", element) for place, element in elements)]:
            if isinstance(value, Tensor):
                visit(site, value)

    return hook
