"""Values that interventions borrow from passes without interventions: means, and values of other sequences."""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.look.inputs import Subject, fitting, row_ranges
from anchorlab.lens.look.intervene import selected_values
from anchorlab.lens.look.interventions import Intervention
from anchorlab.models.model import Weights
from anchorlab.rng import torch_generator

Borrowed = Mapping[str, Shaped[Tensor, "*selected"]]
"""For each intervention by name, the values that replace the selected ones in some rows of the batch."""

Borrower = Callable[[range], Borrowed]
"""A function from rows of the batch to the values that interventions borrow for these rows."""


def borrower(
    subject: Subject, weights: Weights, interventions: Mapping[str, Intervention], batch_size: int
) -> Borrower:
    """Return a function from rows of the batch to the values that the interventions borrow for these rows.

    Means over all sequences are computed immediately, `batch_size` sequences at a time, other values when the function
    is called. All these passes run one member's weights without interventions.

    Errors: `SpecError` for `resample` on a single sequence, and for `patch` without fitting `patch_inputs`.
    """
    access, inputs, batch = subject.access, subject.inputs, len(subject.inputs)
    everyone = torch.arange(batch)
    means = [name for name, each in interventions.items() if each.rule == "mean"]
    sources: dict[tuple[str, int | None], tuple[list[str], Tensor, Tensor]] = {}
    for name, each in interventions.items():
        key = (each.rule, each.seed)
        if each.rule == "resample":
            sources.setdefault(key, ([], inputs, _derangement(batch, each.seed, name)))[0].append(name)
        elif each.rule == "patch":
            others = _patching(subject, f"{name} ({each.describe()})")
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
    for rows in row_ranges(range(batch), batch_size) if means else ():
        for name, value in taken(means, inputs, everyone[rows.start : rows.stop]).items():
            total = value.sum(dim=0, keepdim=True, dtype=torch.float64)
            sums[name] = sums[name] + total if name in sums else total

    def borrow(rows: range) -> Borrowed:
        values = {name: total / batch for name, total in sums.items()}
        for names, source, sequences in sources.values():
            values |= taken(names, source, sequences[rows.start : rows.stop])
        return values

    return borrow


def _derangement(batch: int, seed: int | None, name: str) -> Int[Tensor, "batch"]:
    """Assign another sequence to each: all sequences form a circle in random order, and each is assigned the next."""
    if batch < 2 or seed is None:
        raise SpecError(f"{name}.rule", "a single sequence has no other to take a value from", "give at least two")
    circle = torch.randperm(batch, generator=torch_generator(seed, "resample"))
    others = torch.empty_like(circle)
    others[circle] = circle.roll(-1)
    return others


def _patching(subject: Subject, what: str) -> Tensor:
    given, inputs = subject.patch_inputs, subject.inputs
    if given is None or given.shape != inputs.shape:
        problem = "are missing" if given is None else f"have shape {tuple(given.shape)}"
        remedy = f"give one for each of the inputs, of shape {tuple(inputs.shape)}"
        raise SpecError("patch_inputs", f"{problem}, and {what} takes values from them", remedy)
    return given
