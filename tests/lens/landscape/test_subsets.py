"""Tables over subsets: games with closed forms, and random tables against enumeration with Python sets."""

from itertools import combinations, permutations

import pytest
import torch

from anchorlab.lens.landscape.subsets import (
    closed_upwards,
    exchangeable,
    minimal,
    most_disjoint,
    shapley_interactions,
    shapley_values,
    sizes,
)


def members(subset):
    return frozenset(unit for unit in range(20) if subset >> unit & 1)


def number(units):
    return sum(1 << unit for unit in units)


def game(units, worth):
    """The table of a game, whose subsets are sets of units."""
    return torch.tensor([float(worth(members(subset))) for subset in range(2**units)], dtype=torch.float64)


def family(units, *sets):
    table = torch.zeros(2**units, dtype=torch.bool)
    table[[number(one) for one in sets]] = True
    return table


def sets_of(table):
    return {members(subset) for subset in table.nonzero().flatten().tolist()}


def test_sizes_count_the_bits():
    assert sizes(3).tolist() == [0, 1, 1, 2, 1, 2, 2, 3]
    assert sizes(0).tolist() == [0]


class TestGames:
    """Closed forms of Shapley values and interactions."""

    def test_additive(self):
        worths = [3.0, -1.0, 0.5, 2.0]
        table = game(4, lambda units: 7 + sum(worths[unit] for unit in units))
        assert shapley_values(table).tolist() == pytest.approx(worths, abs=1e-12)
        assert shapley_interactions(table).abs().max() < 1e-12

    def test_unanimity(self):
        """All of 0, 2 and 3 are needed: each has a third; pairs of them interact by 1 / (3 - 1)."""
        needed = {0, 2, 3}
        table = game(5, lambda units: needed <= units)
        assert shapley_values(table).tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3, 0], abs=1e-12)
        expected = torch.zeros(5, 5, dtype=torch.float64)
        for one, other in permutations(needed, 2):
            expected[one, other] = 1 / 2
        assert torch.allclose(shapley_interactions(table), expected, atol=1e-12)

    @pytest.mark.parametrize(("quota", "interaction"), [(1, -1 / 4), (2, 0), (3, 0), (4, 0), (5, 1 / 4)])
    def test_quota(self, quota, interaction):
        """Any `quota` of five suffice: equal shares; a pair interacts only if one suffices, or all are needed."""
        table = game(5, lambda units: len(units) >= quota)
        assert shapley_values(table).tolist() == pytest.approx([1 / 5] * 5, abs=1e-12)
        expected = interaction * (1 - torch.eye(5, dtype=torch.float64))
        assert torch.allclose(shapley_interactions(table), expected, atol=1e-12)

    def test_backup_pair(self):
        """Either of 0 and 1 is worth 6, and unit 2 is worth 1 alone: the pair shares its worth, and interacts by -6."""
        table = game(3, lambda units: 6 * bool(units & {0, 1}) + (2 in units))
        assert shapley_values(table).tolist() == pytest.approx([3, 3, 1], abs=1e-12)
        expected = [[0, -6, 0], [-6, 0, 0], [0, 0, 0]]
        assert torch.allclose(shapley_interactions(table), torch.tensor(expected, dtype=torch.float64), atol=1e-12)

    def test_one_unit_and_none(self):
        assert shapley_values(torch.tensor([[1.0, 4.0]])).tolist() == [[3.0]]
        assert shapley_interactions(torch.tensor([1.0, 4.0])).tolist() == [[0.0]]
        assert shapley_values(torch.tensor([5.0])).shape == (0,)


def random_tables(units, count=3, seed=0):
    return torch.randn(count, 2**units, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def random_families(units, share, count=6, seed=0):
    return torch.rand(count, 2**units, generator=torch.Generator().manual_seed(seed)) < share


def test_shapley_values_are_means_over_all_orders():
    tables = random_tables(4)
    orders = list(permutations(range(4)))
    for table, found in zip(tables, shapley_values(tables), strict=True):
        expected = [0.0] * 4
        for order in orders:
            for place, unit in enumerate(order):
                before = number(order[:place])
                expected[unit] += float(table[before | 1 << unit] - table[before]) / len(orders)
        assert found.tolist() == pytest.approx(expected, abs=1e-12)
    assert torch.allclose(shapley_values(tables).sum(1), tables[:, -1] - tables[:, 0], atol=1e-12, rtol=0)


def test_interactions_are_values_of_a_pair_as_one_minus_values_of_each_alone():
    """The recursion by which Grabisch and Roubens define them, section 3: merge the pair, or leave one of it out."""
    units = 4
    for table in random_tables(units):
        found = shapley_interactions(table)
        assert torch.equal(found, found.T) or torch.allclose(found, found.T, atol=1e-12)
        for one, other in combinations(range(units), 2):
            rest = [unit for unit in range(units) if unit not in (one, other)]

            def last_value(*joined, rest=rest, table=table):
                """The Shapley value of units that join as one, without the pair's other units."""
                sets = [number([rest[place] for place in members(subset)]) for subset in range(2 ** len(rest))]
                small = torch.stack([table[[one | number(joined) * last for one in sets]] for last in (0, 1)]).flatten()
                return shapley_values(small)[-1]

            expected = last_value(one, other) - last_value(one) - last_value(other)
            assert found[one, other].item() == pytest.approx(expected.item(), abs=1e-12)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.4])
def test_closure_and_minimal_sets(share):
    for table in (tables := random_families(6, share)):
        sets = sets_of(table)
        assert sets_of(closed_upwards(table)) == {
            members(n) for n in range(64) if any(one <= members(n) for one in sets)
        }
        assert sets_of(minimal(table)) == {one for one in sets if not any(other < one for other in sets)}
    assert torch.equal(minimal(tables)[4], minimal(tables[4]))


def most_by_trial(sets):
    """The largest number of pairwise disjoint sets, by trial of every combination."""
    return max(
        (
            count
            for count in range(1, 7)
            for chosen in combinations(sets, count)
            if sum(map(len, chosen)) == len(frozenset().union(*chosen))
        ),
        default=0,
    )


@pytest.mark.parametrize("share", [0.0, 0.05, 0.15])
def test_disjoint_sets(share):
    tables = random_families(6, share, seed=3)
    expected = [most_by_trial(sets_of(table) - {frozenset()}) for table in tables]
    assert most_disjoint(tables).tolist() == expected
    assert share == 0 or len(set(expected)) > 1


def test_disjoint_sets_of_many_units():
    """Of sixteen units any three suffice: five times, and one unit is left."""
    assert most_disjoint(sizes(16) == 3).item() == 5
    assert most_disjoint(family(3, ())).item() == 0


def test_exchangeable_units():
    tables, enough = random_families(4, 0.15, seed=5), random_families(4, 0.3, seed=6)
    for found, table, wide in zip(exchangeable(tables, enough), tables, enough, strict=True):
        for unit, other in permutations(range(4), 2):
            expected = any(
                unit in one and other not in one and one - {unit} | {other} in sets_of(wide) for one in sets_of(table)
            )
            assert found[unit, other].item() == expected
        assert not found.diagonal().any()
