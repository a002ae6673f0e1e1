"""Scores of rankings of two models made by hand: one with a single circuit, one with a backup."""

import math
from itertools import permutations

import pytest

from anchorlab.rankings import Rankings, means, score_rankings
from tests.rankings.hand_made import BACKUP, SINGLE, UNITS


def scored(known, *values):
    rankings = Rankings("mine", {"one": dict(zip(UNITS, values, strict=True))})
    return score_rankings(rankings, {"one": known}).row(0, named=True)


def area(values, positive):
    """The share of pairs of a positive and a negative unit in the right order."""
    pairs = [
        (values[a], values[b]) for a in range(4) for b in range(4) if UNITS[a] in positive and UNITS[b] not in positive
    ]
    return sum(first > second for first, second in pairs) / len(pairs)


def test_a_right_ranking_scores_1_and_its_reverse_0():
    found = scored(SINGLE, 4, 1, 3, 2)
    assert (found["area"], found["recovered"], found["size"]) == (1, 1, 2)
    found = scored(SINGLE, 1, 4, 2, 3)
    assert (found["area"], found["recovered"], found["size"]) == (0, 0, 2)
    assert scored(SINGLE, 1, 1, 1, 1)["area"] == 0.5


def test_the_size_of_a_score_counts():
    assert scored(SINGLE, -4, 1, 3, -2) == scored(SINGLE, 4, 1, 3, 2)


@pytest.mark.parametrize("values", [(1, 4, 3, 2), (4, 1, 3, 2)])
def test_any_of_several_circuits_is_right(values):
    found = scored(BACKUP, *values)
    assert (found["area"], found["recovered"]) == (1, 1)


def test_every_ranking_of_a_model_with_a_backup():
    sets = ({"0.0", "1.0"}, {"0.1", "1.0"})
    for values in permutations((1, 2, 3, 4)):
        assert scored(BACKUP, *values)["area"] == max(area(values, one) for one in sets)


def test_chance_is_the_mean_over_all_rankings():
    every = [*permutations((1, 2, 3, 4))]
    both = sum(max(area(one, {"0.0", "1.0"}), area(one, {"0.1", "1.0"})) for one in every) / len(every)
    assert both > 0.6
    # 2000 draws of areas in [0, 1], so an error below 4 * 0.5 / sqrt(2000)
    assert scored(BACKUP, 4, 3, 2, 1)["area_by_chance"] == pytest.approx(both, abs=0.045)
    assert scored(SINGLE, 4, 3, 2, 1)["area_by_chance"] == pytest.approx(0.5, abs=0.045)


def test_correlation_with_shapley_values():
    """They are 8/3 for 1.0, 2/3 for each of 0.0 and 0.1, and 0 for 1.1; ranks 4, 2.5, 2.5, 1."""
    assert scored(BACKUP, 3, 2, 4, 1)["correlation"] == pytest.approx(4.5 / math.sqrt(5 * 4.5))
    assert scored(BACKUP, 2, 3, 1, 4)["correlation"] == pytest.approx(-4.5 / math.sqrt(5 * 4.5))
    assert math.isnan(scored(BACKUP, 1, 1, 1, 1)["correlation"])


def test_means_over_models():
    known = {"a": SINGLE, "b": SINGLE, "c": SINGLE, "d": SINGLE}
    right, wrong, equal = (
        dict(zip(UNITS, values, strict=True)) for values in ((4, 1, 3, 2), (1, 4, 2, 3), (1, 1, 1, 1))
    )
    frame = score_rankings(Rankings("mine", {"a": right, "b": wrong, "c": right, "d": equal}), known)
    assert frame["model"].to_list() == ["a", "b", "c", "d"]
    mean, low, high = means(frame)["area"]
    assert mean == (1 + 0 + 1 + 0.5) / 4 and 0 <= low < 0.5 and mean < high <= 1
    # of equal scores the correlation is unknown; those of `right` and `wrong` are +0.894 and -0.894
    assert means(frame)["correlation"][0] == pytest.approx(2 / math.sqrt(5) / 3)
    same = means(score_rankings(Rankings("mine", dict.fromkeys(known, right)), known))
    assert same["area"] == (1, 1, 1)
    assert means(frame.head(1))["area"] == (1, None, None)
