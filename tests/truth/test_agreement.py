"""Agreement of scores with a landscape, on rankings and sets whose scores can be counted by hand."""

import pytest
import torch
from torch import tensor

from anchorlab.errors import SpecError
from anchorlab.lens import Landscape, Passes, Scores
from anchorlab.truth import agreement, area_under_curve, recovered_at


def chosen(*sets, units=4):
    """Sets by their units' numbers, as membership."""
    return torch.tensor([[unit in one for unit in range(units)] for one in sets])


def test_area_is_the_share_of_pairs_in_order():
    scores = tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0], [2.0, 2.0, 2.0, 2.0], [4.0, 1.0, 3.0, 3.0]])
    positive = chosen({0, 2}).expand(4, 4)
    # pairs (0 or 2, 1 or 3): of four, the first ranking has 0>1, 0>3, 2>3; the last 0>1, 0>3, 2>1 and a tie
    assert area_under_curve(scores, positive).tolist() == [0.75, 0.25, 0.5, 0.875]
    assert area_under_curve(scores[:2], chosen(set(), {0, 1, 2, 3})).isnan().all()  # it needs both kinds


def test_recovered_is_the_effect_of_the_highest_units():
    """Unit 0 lowers the loss by 4, unit 1 by 2, unit 2 raises it by 1."""
    loss = tensor([[10.0 - 4 * (subset & 1) - 2 * (subset >> 1 & 1) + (subset >> 2 & 1) for subset in range(8)]])
    scores = tensor([[3.0, 1.0, 2.0]])
    for size, share in enumerate([0.0, 4 / 5, 3 / 5, 1.0]):
        assert recovered_at(scores, loss, tensor([size])).item() == pytest.approx(share)
    assert recovered_at(tensor([[2.0, 1.0, 0.0]]), loss, tensor([2])).item() == pytest.approx(6 / 5)


UNITS = ("0.0", "0.1", "0.mlp", "1.0")


def pair_and_one():
    """Two members: either of the first two units together with 1.0 removes a loss of 4; and 0.mlp alone one of 2."""
    first = [4.0 - 4 * bool(subset & 8 and subset & 3) for subset in range(16)]
    second = [2.0 - 2 * bool(subset & 4) for subset in range(16)]
    loss = torch.tensor([first, second], dtype=torch.float64)
    return Landscape(UNITS, loss, torch.full_like(loss, torch.nan))


def said(*rows):
    """Scores with a unit that the landscape lacks, and the units in another order."""
    order = ("1.0", "embed", "0.0", "0.1", "0.mlp")
    given = torch.tensor([[row.get(unit, 0.0) for unit in order] for row in rows])
    return Scores("mine", order, given, Passes(3, 1))


def test_a_method_that_finds_one_of_two_circuits_agrees():
    """The Shapley values of the pair are 4/6 each and that of 1.0 is 4 * 2/3, so that only the pair is tied."""
    scores = said({"1.0": -3.0, "0.0": 2.0, "0.1": 1.0, "embed": 9.0}, {"0.0": 3.0, "0.1": 2.0, "0.mlp": 1.0})
    found = agreement(scores, pair_and_one())
    first, second = found.rows(named=True)
    assert (first["method"], first["member"], first["forward"], first["backward"]) == ("mine", 0, 3, 1)
    assert (first["area"], first["size"], first["recovered"]) == (1.0, 2, pytest.approx(1.0))
    # ranks of the scores 3, 2, 1, 4 and of the values 2.5, 2.5, 1, 4: covariance 4.5, variances 5 and 4.5
    assert first["correlation"] == pytest.approx(4.5 / (5 * 4.5) ** 0.5)
    # 0.mlp is below two of the three others
    assert (second["area"], second["size"], second["recovered"]) == (pytest.approx(1 / 3), 1, 0.0)
    assert second["area_by_chance"] == pytest.approx(0.5, abs=0.03) and 0.6 < first["area_by_chance"] < 0.8


def test_a_unit_without_a_score_is_named():
    with pytest.raises(SpecError, match=r"unknown unit .0\.1."):
        agreement(Scores("mine", ("0.0",), torch.ones(2, 1), Passes(1, 0)), pair_and_one())
    units = pair_and_one().units
    with pytest.raises(SpecError, match=r"^scores: have 3 members, the landscape 2; score its own members$"):
        agreement(Scores("mine", units, torch.ones(3, len(units)), Passes(1, 0)), pair_and_one())
