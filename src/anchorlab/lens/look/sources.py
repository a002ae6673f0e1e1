"""Values that interventions borrow from passes without interventions: means, and values of other sequences."""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.look.inputs import Subject, fitting, row_ranges
from anchorlab.lens.look.intervene import selected_values
from anchorlab.lens.look.interventions import Intervention
from anchorlab.lens.look.padding import donors, selected_places
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
    is called. All these passes run one member's weights without interventions. Values of padding are neither averaged
    nor handed to another sequence.
    """
    access, inputs, batch, lengths = subject.access, subject.inputs, len(subject.inputs), subject.lengths
    everyone = torch.arange(batch)
    means = [name for name, each in interventions.items() if each.rule == "mean"]
    sources: dict[tuple[str, int | None], tuple[list[str], Tensor, Tensor]] = {}
    for name, each in interventions.items():
        # interventions with the same source share a pass: the same permutation for `resample`, the inputs for `patch`
        key = (each.rule, each.seed)
        if each.rule == "resample":
            others = _derangement(batch, each.seed, name, lengths, inputs.shape[1])
            sources.setdefault(key, ([], inputs, others))[0].append(name)
        elif each.rule == "patch":
            sources.setdefault(key, ([], _patching(subject, f"{name} ({each.describe()})"), everyone))[0].append(name)
    places: dict[str, tuple[int, Tensor] | None] = {}

    def taken(names: Sequence[str], source: Tensor, sequences: Int[Tensor, "sequence"]) -> dict[str, Tensor]:
        """Return the values that some interventions select, from one pass over some sequences."""
        values: dict[str, Tensor] = {}

        def keep(site: str, value: Tensor) -> Tensor:
            axes = access.axes(site, value)
            for name in names if axes[:1] == ("batch",) else ():
                if interventions[name].site == site:
                    rows = sequences.tolist()
                    values[name] = selected_values(interventions[name], value, axes, rows, batch, name)
                    if lengths is not None:
                        places[name] = selected_places(interventions[name], axes, value.shape, name)
            return value

        sites = {interventions[name].site for name in names}
        least = access.least_positions(sites, inputs)
        access.run(weights, fitting(source[sequences.to(source.device)], weights), sites, keep, least)
        return values

    sums: dict[str, Tensor] = {}
    counts: dict[str, Tensor] = {}
    for rows in row_ranges(range(batch), batch_size) if means else ():
        here = everyone[rows.start : rows.stop]
        for name, value in taken(means, inputs, here).items():
            # sum in float64, and only over tokens that are not padding; each place has its own count
            own = _own(places.get(name), here, lengths, value)
            total = value.where(own, 0).sum(dim=0, keepdim=True, dtype=torch.float64)
            sums[name] = sums[name] + total if name in sums else total
            counts[name] = counts.get(name, 0) + own.sum(dim=0, keepdim=True)

    def resampled(names: Sequence[str], donors: Int[Tensor, "batch position"], rows: range) -> dict[str, Tensor]:
        """Return the values of the next sequence that has a token of its own at each place."""
        here = donors[rows.start : rows.stop]
        # run each donor once, even if it gives values at several places of several sequences
        needed, at = torch.unique(here, return_inverse=True)
        values = taken(names, inputs, needed)
        for name, value in values.items():
            selected = places[name]
            if selected is None or lengths is None:
                values[name] = value[at[:, 0].to(value.device)]  # every sequence has a token at place 0
                continue
            dim, chosen = selected
            own = chosen < lengths[rows.start : rows.stop].unsqueeze(1)
            alone = own & (here[:, chosen] == torch.tensor(rows).unsqueeze(1))
            if bool(alone.any()):
                problem = f"a single sequence has a token at place {int(chosen[alone.any(dim=0)][0])}, and so no other"
                remedy = "select places that two sequences have, or give sequences of one length"
                raise SpecError(f"{name}.rule", f"{problem} to take a value from", remedy)
            # take for each row and place the value of its donor, along the axis of places of this site
            index = at[:, chosen].reshape(len(rows), *(1,) * (dim - 1), -1, *(1,) * (value.ndim - dim - 1))
            values[name] = value.gather(0, index.expand(-1, *value.shape[1:]).to(value.device))
        return values

    def borrow(rows: range) -> Borrowed:
        values = {name: total / counts[name].clamp_min(1) for name, total in sums.items()}
        for names, source, sequences in sources.values():
            if sequences.ndim == 2:
                values |= resampled(names, sequences, rows)
            else:
                values |= taken(names, source, sequences[rows.start : rows.stop])
        return values

    return borrow


def _own(
    selected: tuple[int, Tensor] | None, sequences: Int[Tensor, "sequence"], lengths: Tensor | None, value: Tensor
) -> Bool[Tensor, "*selected"]:
    """Return which values belong to tokens rather than padding; axes on which this does not depend have size 1."""
    shape = [len(sequences), *[1] * (value.ndim - 1)]
    if selected is None or lengths is None:
        return torch.ones(shape, dtype=torch.bool, device=value.device)
    dim, places = selected
    shape[dim] = len(places)
    return (places < lengths[sequences].unsqueeze(1)).reshape(shape).to(value.device)


def _derangement(
    batch: int, seed: int | None, name: str, lengths: Int[Tensor, "batch"] | None, width: int
) -> Int[Tensor, "batch *position"]:
    """Assign the next sequence of a random circle to each; if lengths differ, at each place the next with a token."""
    if batch < 2 or seed is None:
        raise SpecError(f"{name}.rule", "a single sequence has no other to take a value from", "give at least two")
    circle = torch.randperm(batch, generator=torch_generator(seed, "resample"))
    if lengths is not None:
        return donors(circle, lengths, width)
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
