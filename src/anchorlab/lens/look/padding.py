"""Sequences padded on the right to one length: which tokens are their own, and how to leave out the padding."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.look.interventions import BORROWING, Intervention
from anchorlab.models.input_checks import lengths_of_mask, numbers_text, whole

PLACES = ("position", "query", "key")
"""The axes whose indices are places in a sequence."""

_AGREE = 1e-4  # largest change of an output, relative to its size, that counts as rounding


def stated_lengths(
    given: Any, sequences: Shaped[Tensor, "batch position *feature"], field: str
) -> Int[Tensor, "batch"] | None:
    """Return how many tokens of each sequence are its own, `[batch]`; None if no lengths are given.

    The lengths come with the value, as in `TokenisedTexts`, or from the `attention_mask` of transformers.
    """
    if isinstance(given, Mapping):
        mask = given.get("attention_mask")
        found = None if mask is None else lengths_of_mask(mask, sequences, f"{field}.attention_mask")
    else:
        found = getattr(given, "lengths", None)
    if found is None:
        return None
    lengths = torch.as_tensor(found)
    if not whole(lengths) or lengths.shape != sequences.shape[:1]:
        problem = f"are {numbers_text(lengths)} of shape {tuple(lengths.shape)}"
        raise SpecError(f"{field}.lengths", problem, f"give {len(sequences)} integers")
    if not bool(((lengths >= 1) & (lengths <= sequences.shape[1])).all()):
        problem = f"are {int(lengths.min())} to {int(lengths.max())} for sequences of {sequences.shape[1]}"
        raise SpecError(f"{field}.lengths", problem, "give the number of tokens of each sequence")
    return lengths.long().cpu()


def own_places(lengths: Int[Tensor, "batch"], width: int) -> Bool[Tensor, "batch position"]:
    """Return which positions of each sequence hold a token of its own rather than padding."""
    return torch.arange(width) < lengths.unsqueeze(1)


def last_places(
    sequences: Shaped[Tensor, "batch position *feature"], lengths: Int[Tensor, "batch"] | None
) -> Int[Tensor, "*batch 1"]:
    """Return the last position, `[1]`, or the position of each sequence's own last token, `[batch 1]`."""
    return torch.tensor([sequences.shape[1] - 1]) if lengths is None else lengths.unsqueeze(1) - 1


def check_unread(
    lengths: Int[Tensor, "batch"], sequences: Shaped[Tensor, "batch position *feature"], run: Any, field: str
) -> None:
    """Raise `SpecError` if a model's outputs for the shortest sequence depend on its padding, as without a causal mask.

    `run` returns the outputs for one sequence.
    """
    row = int(lengths.argmin())
    length = int(lengths[row])
    given = sequences[row : row + 1]
    other = given.clone()
    padding = given[:, length:]
    other[:, length:] = padding + 1 if padding.is_floating_point() else (padding == 0).to(padding)
    outputs = [run(each) for each in (given, other)]
    if outputs[0].ndim > 2 and outputs[0].shape[1] == sequences.shape[1]:
        outputs = [each[:, :length] for each in outputs]
    before, after = (each.double() for each in outputs)
    finite = before[before.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    if not torch.allclose(before, after, rtol=0.0, atol=_AGREE * scale, equal_nan=True):
        problem = "have different lengths, and the model's outputs for one depend on the padding behind it"
        raise SpecError(field, problem, "give sequences of one length")


def counted_from_own_ends(intervention: Intervention, lengths: Int[Tensor, "batch"] | None, name: str) -> Intervention:
    """Return an intervention whose negative places in `where` count from each sequence's own end."""
    if lengths is None:
        return intervention
    sizes = lengths.tolist()
    for axis, rows in intervention.at.items():
        if axis in PLACES and len(rows) == len(sizes):
            for row, (places, size) in enumerate(zip(rows, sizes, strict=True)):
                if max(places) >= size:
                    problem = f"sequence {row} has {size} tokens, and no place {max(places)}"
                    raise SpecError(f"{name}.at.{axis}", problem, "give places before its padding")
    where, at = dict(intervention.where), dict(intervention.at)
    for axis in [axis for axis, places in where.items() if axis in PLACES and min(places) < 0]:
        places = where.pop(axis)
        beyond = min(sizes) if intervention.rule in BORROWING else max(sizes)  # no value is borrowed from the padding
        wrong = [place for place in places if not -min(sizes) <= place < beyond]
        if wrong:
            problem = f"index {wrong[0]} is out of range"
            raise SpecError(f"{name}.where.{axis}", problem, f"the shortest sequence has {min(sizes)} tokens")
        at[axis] = tuple(tuple(place if place >= 0 else size + place for place in places) for size in sizes)
    return intervention if at.keys() == intervention.at.keys() else intervention.replace(where=where, at=at)


def selected_places(
    intervention: Intervention, axes: Sequence[str], sizes: Sequence[int], name: str
) -> tuple[int, Int[Tensor, "place"]] | None:
    """Return the axis of places among a site's axes, and the places in a sequence that an intervention selects there.

    The result is None if the site has no such axis, and for places of `at`, which are never padding. At a site of
    attention the places are the queries: a query before the padding attends to no key in it.
    """
    axis = next((axis for axis in PLACES if axis in axes), None)
    if axis is None and any(other.startswith("axis_") for other in axes):
        problem = f"site {intervention.site!r} has axes without names, and sequences of different lengths have padding"
        raise SpecError(f"{name}.rule", problem, "name the axes, or give sequences of one length")
    if axis is None or axis in intervention.at:
        return None
    dim = axes.index(axis)
    places = intervention.where.get(axis, range(sizes[dim]))
    return dim, torch.tensor([place % sizes[dim] for place in places])


def donors(circle: Int[Tensor, "batch"], lengths: Int[Tensor, "batch"], width: int) -> Int[Tensor, "batch position"]:
    """Return, for each sequence and position, the next sequence in circular order with a token of its own there.

    The result is the sequence itself where no other has one.
    """
    own = own_places(lengths, width)
    found = torch.arange(len(lengths)).unsqueeze(1).repeat(1, width)
    for step in range(len(circle) - 1, 0, -1):  # the nearest last
        others = torch.empty_like(circle)
        others[circle] = circle.roll(-step)
        found = torch.where(own[others], others.unsqueeze(1), found)
    return found
