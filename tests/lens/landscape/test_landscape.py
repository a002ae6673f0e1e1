"""What follows from a table of losses: on games whose minimal sets are known, and by enumeration."""

from itertools import combinations, permutations

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens.landscape import subsets
from anchorlab.lens.landscape.subsets import minimal, most_disjoint, shapley_interactions, shapley_values, sizes
from anchorlab.lens.landscape.units import role_map
from anchorlab.tasks import task
from tests.lens.landscape.hand_made import UNITS, made, parallel, two_of_three


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


def test_shapley_values_of_additive_worths_one_unit_and_none():
    worths = [3.0, -1.0, 0.5, 2.0]
    table = game(4, lambda units: 7 + sum(worths[unit] for unit in units))
    assert shapley_values(table).tolist() == pytest.approx(worths, abs=1e-12)
    assert shapley_interactions(table).abs().max() < 1e-12
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
def test_minimal_sets_contain_no_other(share):
    for table in (tables := random_families(6, share)):
        sets = sets_of(table)
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
    for found, table, wide in zip(subsets.exchangeable(tables, enough), tables, enough, strict=True):
        for unit, other in permutations(range(4), 2):
            expected = any(
                unit in one and other not in one and one - {unit} | {other} in sets_of(wide) for one in sets_of(table)
            )
            assert found[unit, other].item() == expected
        assert not found.diagonal().any()


# The roles of positions, from roles written by hand.
IDENTITY = task("anchor/identity", length=6)


def with_roles(monkeypatch, **roles):
    """The map of three sequences of six positions, of which the last is scored, with these roles."""
    named = {name.replace("_", " "): torch.tensor(places) for name, places in roles.items()}
    monkeypatch.setattr(type(IDENTITY), "roles", lambda self, batch: named)
    return role_map(IDENTITY, IDENTITY.sample("test", 3, 0))


def test_a_position_has_its_first_role(monkeypatch):
    """Roles with several positions, with fewer in some sequences, shared by two roles, and without any."""
    found = with_roles(
        monkeypatch, asked=[[5], [5], [-1]], x0_of_pair_1=[[0, 3], [5, 1], [-1, 5]], key=[[3], [2], [0]],
        absent=[[-1], [5], [-1]],
    )  # fmt: skip
    assert found.names == ("asked", "x0-of-pair-1", "key", "absent", "other")
    assert found.cells.tolist() == [[1, 4, 4, 1, 4, 0], [4, 1, 2, 4, 4, 0], [2, 4, 4, 4, 4, 1]]
    assert found.scored.tolist() == [[0], [0], [1]]
    none = r"^task: has no roles that tell positions apart; "
    for roles, message in (
        ({}, none + r"define `roles` on it, or choose units='heads'$"),
        ({"asked": [[*range(6)]] * 3, "key": [[2]] * 3}, none),
        ({"other": [[2]] * 3}, r"^task.roles: 'other' has a meaning of its own; call the role something else$"),
    ):
        with pytest.raises(SpecError, match=message):
            with_roles(monkeypatch, **roles)


# What follows from a table of losses, on games whose minimal sets are known.
def majority(kept):
    """Any three of the five."""
    return len(kept) >= 3


def harmed(kept):
    """Head 0.0 suffices alone, but 1.2 spoils it unless 1.1 repairs."""
    return "0.0" in kept and ("1.2" not in kept or "1.1" in kept)


FOUND = made(majority, two_of_three, harmed, parallel)


def test_minimal_and_necessary_sets():
    every, pairs, alone, ways = FOUND.minimal()
    assert len(every) == 10 and {len(one) for one in every} == {3} and len({*every}) == 10
    assert pairs == (("0.1", "1.0", "1.1"), ("0.1", "1.0", "1.2"), ("0.1", "1.1", "1.2"))
    assert alone == (("0.0",),)
    assert ways == (("1.2",), ("0.0", "1.0"), ("0.1", "1.1"))
    every, pairs, harm, ways = FOUND.necessary()
    assert len(every) == 10 and {len(one) for one in every} == {3}
    assert pairs == (("0.1",), ("1.0", "1.1"), ("1.0", "1.2"), ("1.1", "1.2"))
    assert harm == (("0.0",), ("1.1",))  # without 1.1, 1.2 spoils it
    assert {frozenset(one) for one in ways} == {
        frozenset({"1.2", one, other}) for one in ("0.0", "1.0") for other in ("0.1", "1.1")
    }


def test_redundancy_and_backups():
    assert FOUND.redundancy().tolist() == [1, 1, 1, 3]
    backups = FOUND.backups()
    assert torch.equal(backups[0], ~torch.eye(5, dtype=torch.bool))
    in_layer_1 = torch.zeros(5, 5, dtype=torch.bool)
    in_layer_1[2:, 2:] = ~torch.eye(3, dtype=torch.bool)
    assert torch.equal(backups[1], in_layer_1)
    assert not backups[2].any()
    # 1.2 alone suffices, and no other unit alone; the others suffice only with their partner, or with 1.2
    assert backups[3].nonzero().tolist() == [[0, 4], [1, 4], [2, 4], [3, 4]]


def test_the_threshold_is_a_share_of_the_effect():
    """Worths 0.5, 0.3, 0.15, 0.05 and 0: losing a tenth allows only 1.1 and 1.2 to go, losing a quarter also 1.0."""
    worths = dict(zip(UNITS, (0.5, 0.3, 0.15, 0.05, 0), strict=True))
    found = made(lambda kept: sum(worths[name] for name in kept))
    assert found.effect.tolist() == pytest.approx([1])
    assert found.threshold(0.1).tolist() == pytest.approx([0.1])
    assert found.minimal(0.1) == ((("0.0", "0.1", "1.0"),),)
    assert found.minimal(0.25) == ((("0.0", "0.1"),),)
    assert found.minimal(0.36) == ((("0.0", "0.1"), ("0.0", "1.0")),)
    assert found.shapley[0].tolist() == pytest.approx(list(worths.values()), abs=1e-12)
    assert found.interactions.abs().max() < 1e-12
    assert found.best_loss[0].tolist() == pytest.approx([1, 0.5, 0.2, 0.05, 0, 0], abs=1e-12)


def test_sets_of_one_size_come_by_their_loss():
    worths = {frozenset({"0.0"}): 0.92, frozenset({"1.2"}): 0.97}
    found = made(lambda kept: max([worth for one, worth in worths.items() if one <= kept] + [len(kept) == 5]))
    assert found.minimal(0.1)[0] == (("1.2",), ("0.0",))


def test_units_that_do_nothing_or_harm_are_not_needed():
    found = made(lambda kept: 0, lambda kept: -len(kept))
    assert found.minimal() == (((),), ((),))
    assert found.redundancy().tolist() == [0, 0]
    assert found.necessary()[0] == ()
    assert found.summary()["smallest"].to_list() == ["", ""]


def test_tables_names_and_numbers_of_subsets():
    table = FOUND.table
    assert table.columns == ["member", "subset", "size", "units", "loss", "accuracy"] and len(table) == 4 * 32
    assert table.row(32 + 0b01110) == (1, 14, 3, "0.1 1.0 1.1", 0.0, 1.0)
    summary = FOUND.summary().rows(named=True)
    assert [row["minimal_sets"] for row in summary] == [10, 3, 1, 3]
    assert [row["disjoint"] for row in summary] == [1, 1, 1, 3]
    assert [row["indispensable"] for row in summary] == ["", "0.1", "0.0 1.1", ""]
    assert [row["smallest"] for row in summary][1:] == ["0.1 1.0 1.1", "0.0", "1.2"]
    assert summary[1]["without"] == 1 and summary[1]["loss"] == 0 and summary[1]["threshold"] == pytest.approx(0.1)
    assert "member 3: loss 0, without units 1; minimal sets: 3, 3 of them disjoint" in str(FOUND)
    assert FOUND.subset("1.0", "0.0") == 0b00101 and FOUND.names(0b00101) == ("0.0", "1.0")
    assert FOUND.subset() == 0
    with pytest.raises(SpecError, match=r"^units: unknown unit '1.3'; did you mean"):
        FOUND.subset("1.3")


@pytest.mark.parametrize(
    ("share", "message"),
    [
        (-0.2, r"^share: no set of member 0 reaches a loss of -0.2; the lowest is 0; give a larger one$"),
        (1, r"^share: 1 lets all of the effect be lost; give less than 1$"),
        (float("nan"), r"^share: nan "),
    ],
)
@pytest.mark.parametrize("method", ["sufficient", "minimal", "necessary", "redundancy", "backups", "summary"])
def test_a_threshold_that_no_set_reaches(method, share, message):
    with pytest.raises(SpecError, match=message):
        getattr(FOUND, method)(share)


def test_thresholds_below_the_models_loss():
    """Each unit raises the loss by 1 from 1, to 6: the effect is -5, and a tenth of it is gained, not lost."""
    found = made(lambda kept: -len(kept))
    assert found.effect.tolist() == [-5]
    assert found.threshold(0.1).tolist() == [5.5] and found.threshold(0.5).tolist() == [3.5]
    # head 1.2 harms by 0.1: without it the loss is lower than the model's, as a negative share asks for
    found = made(lambda kept: ("0.0" in kept) - 0.1 * ("1.2" in kept))
    assert found.minimal(-0.05) == ((("0.0",),),)
