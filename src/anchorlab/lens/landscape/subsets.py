"""Tables over all subsets of n units, with 2^n entries: the number of a subset has bit i set if it holds unit i.

Every function takes tables with any leading axes, and loops over units, never over subsets.
"""

from itertools import permutations
from math import comb

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor


def unit_count(table: Shaped[Tensor, "*lead subset"]) -> int:
    """Return the number of units of a table."""
    return int(table.shape[-1]).bit_length() - 1


def membership(units: int) -> Bool[Tensor, "unit subset"]:
    """Return whether each subset holds each unit."""
    numbers = torch.arange(2**units)
    return torch.stack([(numbers >> unit) & 1 == 1 for unit in range(units)]) if units else torch.ones(0, 1).bool()


def sizes(units: int) -> Int[Tensor, "subset"]:
    """Return the number of units in each subset."""
    return membership(units).sum(dim=0)


def minimal(sets: Bool[Tensor, "*lead subset"]) -> Bool[Tensor, "*lead subset"]:
    """Return the sets that contain no other of the sets."""
    return sets & (_sums(sets.long(), 1) == 1)  # each set contains itself


def shapley_values(values: Float[Tensor, "*lead subset"]) -> Float[Tensor, "*lead unit"]:
    """Return the Shapley value of each unit: its mean gain over all orders in which the units may join.

    The values of all units add up to the value of all minus the value of none.
    Source: Shapley, A value for n-person games (1953).
    """
    units = unit_count(values)
    found = values.new_zeros(*values.shape[:-1], units)
    if units:
        # a set of this size precedes the unit in a share 1 / (n C(n - 1, size)) of all orders
        weights = torch.tensor([1 / (units * comb(units - 1, size)) for size in range(units)], dtype=values.dtype)
        weight = weights[sizes(units - 1)].to(values.device)
        for unit in range(units):
            found[..., unit] = gains(values, unit) @ weight
    return found


def shapley_interactions(values: Float[Tensor, "*lead subset"]) -> Float[Tensor, "*lead unit other"]:
    """Return the Shapley interaction index of each pair of units, with 0 on the diagonal.

    It is the Shapley value of one unit with the other unit's gains as values: negative if one can stand in for the
    other, positive if one needs the other.
    Source: Grabisch and Roubens, An axiomatic approach to the concept of interaction among players (1999).
    """
    units = unit_count(values)
    found = values.new_zeros(*values.shape[:-1], units, units)
    for unit in range(units):
        others = [other for other in range(units) if other != unit]
        found[..., unit, others] = shapley_values(gains(values, unit))
    return found


def gains(values: Float[Tensor, "*lead subset"], unit: int) -> Float[Tensor, "*lead others"]:
    """Return what a unit adds to the value of each subset of the other units."""
    without, with_unit = _halves(values, unit)
    return (with_unit - without).flatten(-2)


def most_disjoint(sets: Bool[Tensor, "*lead subset"]) -> Int[Tensor, "*lead"]:
    """Return the largest number of pairwise disjoint sets among the given ones, without the empty set.

    Unions of k disjoint sets follow from unions of k - 1 by subset convolution.
    Source: Björklund et al., Fourier meets Möbius: fast subset convolution (2007).
    """
    sets = sets.clone()
    sets[..., 0] = False
    unions, found = sets, torch.zeros(sets.shape[:-1], dtype=torch.int64, device=sets.device)
    while bool(unions.any()):
        found += unions.any(dim=-1)
        unions = _disjoint_unions(unions, sets)
    return found


def exchangeable(
    sets: Bool[Tensor, "*lead subset"], enough: Bool[Tensor, "*lead subset"]
) -> Bool[Tensor, "*lead unit other"]:
    """Return whether any of the sets holds the unit and not the other, and is `enough` after exchanging the two."""
    units = unit_count(sets)
    holds, numbers = membership(units).to(sets.device), torch.arange(2**units, device=sets.device)
    found = torch.zeros(*sets.shape[:-1], units, units, dtype=torch.bool, device=sets.device)
    for unit, other in permutations(range(units), 2):
        # flipping both bits of a set that holds `unit` and not `other` exchanges the two
        exchanged = enough[..., numbers ^ (1 << unit) ^ (1 << other)]
        found[..., unit, other] = (sets & holds[unit] & ~holds[other] & exchanged).any(dim=-1)
    return found


def _halves(table: Tensor, unit: int) -> tuple[Tensor, Tensor]:
    """Return views of a table's subsets without and with a unit, `[... above below]`."""
    split = table.view(*table.shape[:-1], -1, 2, 2**unit)
    return split[..., 0, :], split[..., 1, :]


def _disjoint_unions(left: Tensor, right: Tensor) -> Tensor:
    units = unit_count(left)
    # count pairs by the size of both sets: two sets are disjoint exactly if their sizes add up to the size of their
    # union. `one` and `two` hold, for each size and each set, the number of its subsets in `left` and `right`
    ranks = sizes(units).to(left.device) == torch.arange(units + 1, device=left.device).unsqueeze(-1)
    one, two = (_sums((sets.unsqueeze(-2) & ranks).long(), 1) for sets in (left, right))
    products = torch.zeros_like(one)
    # multiply as polynomials in the size: pairs within each set, by the sum of their sizes
    for rank in range(units + 1):
        products[..., rank:, :] += one[..., : units + 1 - rank, :] * two[..., [rank], :]
    counts = _sums(products, -1)  # pairs of disjoint sets with this union, at the rank of its size
    return ((counts > 0) & ranks).any(dim=-2)


def _sums(table: Tensor, sign: int) -> Tensor:
    """Return the sums over all subsets of each subset (zeta transform); with sign -1, the inverse (Möbius)."""
    found = table.clone()
    # one unit at a time: the sets with the unit take over the sums of the sets without it
    for unit in range(unit_count(table)):
        without, with_unit = _halves(found, unit)
        with_unit += sign * without
    return found
