"""Values that interventions borrow from passes without interventions: means, and values of other sequences."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.look.access import Access
from anchorlab.lens.look.intervene import selected_values
from anchorlab.lens.look.interventions import Intervention
from anchorlab.rng import torch_generator

Borrowed = Mapping[str, Tensor]
"""For each intervention by name, the values that replace the selected ones in some rows of the batch."""

Borrower = Callable[[range], Borrowed]
"""A function from rows of the batch to the values that interventions borrow for these rows."""


def borrower(
    access: Access,
    weights: Mapping[str, Tensor],
    inputs: Shaped[Tensor, "batch position *feature"],
    interventions: Mapping[str, Intervention],
    patch_inputs: Tensor | None,
    batch_size: int,
) -> Borrower:
    """Return a function from rows of the batch to the values that the interventions borrow for these rows.

    Means over all sequences are computed immediately, other values when the function is called. All these passes run
    without interventions.

    Args:
        access: the module and its sites.
        weights: one member's weights, by name.
        inputs: all sequences of the look.
        interventions: the interventions by name; only the rules `mean`, `resample` and `patch` borrow values.
        patch_inputs: the sequences that `patch` takes values from, in the shape of `inputs`.
        batch_size: how many sequences run at a time.

    Errors: `SpecError` for `resample` on a single sequence, and for `patch` without fitting `patch_inputs`.
    """
    batch = len(inputs)
    everyone = torch.arange(batch)
    means = [name for name, each in interventions.items() if each.rule == "mean"]
    sources: dict[tuple[str, int | None], tuple[list[str], Tensor, Tensor]] = {}
    for name, each in interventions.items():
        key = (each.rule, each.seed)
        if each.rule == "resample":
            sources.setdefault(key, ([], inputs, _derangement(batch, each.seed, name)))[0].append(name)
        elif each.rule == "patch":
            others = _patching(patch_inputs, inputs, f"{name} ({each.describe()})")
            sources.setdefault(key, ([], others, everyone))[0].append(name)

    def taken(names: Sequence[str], source: Tensor, sequences: Int[Tensor, "sequence"]) -> dict[str, Tensor]:
        """Return the values that some interventions select, from one pass over some sequences."""
        values: dict[str, Tensor] = {}

        def keep(site: str, value: Tensor) -> Tensor:
            axes = access.axes(site, value)
            for name in names if axes[:1] == ("batch",) else ():
                if interventions[name].site == site:
                    rows = sequences.tolist()
                    values[name] = selected_values(interventions[name], value, axes, rows, batch, name)
            return value

        sites = {interventions[name].site for name in names}
        least = access.least_positions(sites, inputs)
        access.run(weights, fitting(source[sequences.to(source.device)], weights), sites, keep, least)
        return values

    sums: dict[str, Tensor] = {}
    for rows in row_ranges(batch, batch_size) if means else ():
        for name, value in taken(means, inputs, everyone[rows.start : rows.stop]).items():
            total = value.sum(dim=0, keepdim=True, dtype=torch.float64)
            sums[name] = sums[name] + total if name in sums else total

    def borrow(rows: range) -> Borrowed:
        values = {name: total / batch for name, total in sums.items()}
        for names, source, sequences in sources.values():
            values |= taken(names, source, sequences[rows.start : rows.stop])
        return values

    return borrow


def fitting(inputs: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """Return the inputs on the device of the weights, and vectors also in the precision of the weights."""
    floating = next((value for value in weights.values() if value.is_floating_point()), None)
    if floating is None:
        return inputs
    return inputs.to(floating.device, floating.dtype if inputs.is_floating_point() else inputs.dtype)


def positions_of(positions: Tensor | None, rows: range) -> Tensor | None:
    """Return the scored positions of some rows of the batch, from `[scored]` or `[batch scored]`."""
    return positions if positions is None or positions.ndim == 1 else positions[rows.start : rows.stop]


def row_ranges(batch: int, batch_size: int) -> Iterator[range]:
    """Return the rows of a batch as consecutive ranges of at most `batch_size` rows."""
    return (range(start, min(start + batch_size, batch)) for start in range(0, batch, batch_size))


def _derangement(batch: int, seed: int | None, name: str) -> Int[Tensor, "batch"]:
    """Assign another sequence to each: all sequences form a circle in random order, and each is assigned the next."""
    if batch < 2 or seed is None:
        raise SpecError(f"{name}.rule", "a single sequence has no other to take a value from", "give at least two")
    circle = torch.randperm(batch, generator=torch_generator(seed, "resample"))
    others = torch.empty_like(circle)
    others[circle] = circle.roll(-1)
    return others


def _patching(patch_inputs: Tensor | None, inputs: Tensor, what: str) -> Tensor:
    if patch_inputs is None or patch_inputs.shape != inputs.shape:
        given = "are missing" if patch_inputs is None else f"have shape {tuple(patch_inputs.shape)}"
        remedy = f"give one for each of the inputs, of shape {tuple(inputs.shape)}"
        raise SpecError("patch_inputs", f"{given}, and {what} takes values from them", remedy)
    return patch_inputs
