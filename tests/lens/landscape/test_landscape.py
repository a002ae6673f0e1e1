"""What follows from a table of losses, on games whose minimal sets are known."""

import pytest
import torch

from anchorlab.errors import SpecError
from tests.lens.landscape.hand_made import UNITS, made, parallel, two_of_three


def majority(kept):
    """Any three of the five."""
    return len(kept) >= 3


def harmed(kept):
    """Head 0.0 suffices alone, but 1.2 spoils it unless 1.1 repairs."""
    return "0.0" in kept and ("1.2" not in kept or "1.1" in kept)


FOUND = made(majority, two_of_three, harmed, parallel)


def test_minimal_sets():
    every, pairs, alone, ways = FOUND.minimal()
    assert len(every) == 10 and {len(one) for one in every} == {3} and len({*every}) == 10
    assert pairs == (("0.1", "1.0", "1.1"), ("0.1", "1.0", "1.2"), ("0.1", "1.1", "1.2"))
    assert alone == (("0.0",),)
    assert ways == (("1.2",), ("0.0", "1.0"), ("0.1", "1.1"))


def test_necessary_sets():
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


def test_shapley_values_of_the_layers():
    """0.1 joins after a pair of layer 1 in half of the orders of four; the rest is shared by three."""
    # of the orders of 0.1 and three heads, 0.1 completes the set if two or three of them came before
    assert FOUND.shapley[1].tolist() == pytest.approx([0, 1 / 2, 1 / 6, 1 / 6, 1 / 6], abs=1e-12)
    assert FOUND.interactions[1, 1, 2].item() > 0


def test_units_that_do_nothing_or_harm_are_not_needed():
    found = made(lambda kept: 0, lambda kept: -len(kept))
    assert found.minimal() == (((),), ((),))
    assert found.redundancy().tolist() == [0, 0]
    assert found.necessary()[0] == ()
    assert found.summary()["smallest"].to_list() == ["", ""]


def test_names_and_numbers_of_subsets():
    assert FOUND.subset("1.0", "0.0") == 0b00101 and FOUND.names(0b00101) == ("0.0", "1.0")
    assert FOUND.subset() == 0
    with pytest.raises(SpecError, match=r"^units: unknown unit '1.3'; did you mean"):
        FOUND.subset("1.3")


def test_tables():
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


def test_a_negative_share_asks_for_less_than_the_models_loss():
    """Head 1.2 harms by 0.1: without it the loss is lower than the model's."""
    found = made(lambda kept: ("0.0" in kept) - 0.1 * ("1.2" in kept))
    assert found.minimal(-0.05) == ((("0.0",),),)


def test_the_threshold_of_units_that_harm_lies_below_the_models_loss():
    """Each unit raises the loss by 1 from 1, to 6: the effect is -5, and a tenth of it is gained, not lost."""
    found = made(lambda kept: -len(kept))
    assert found.effect.tolist() == [-5]
    assert found.threshold(0.1).tolist() == [5.5] and found.threshold(0.5).tolist() == [3.5]
