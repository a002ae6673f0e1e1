"""The layers that information needs, on depths written by hand and on short chains."""

import numpy as np
import pytest

from anchorlab.papers.retrieval.information_flow import FLOWS, STUDY, Depths, Setting, analyse
from anchorlab.studies import study
from tests.papers.hand_made_runs import values_of, verdicts_of

# up to D = 9: 4D + 1 passes 9 at D = 3 and 27 at D = 7
FREE = [2] * 2 + [3] * 4 + [4] * 3


# D = 1 without a layer and after one: three positions, of which the query comes last to know all four pieces
HELD = np.array([[[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], [[1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 1, 1]]], dtype=bool)


def depths(free=FREE, causal=(5,) * 9, one_head=(2, 2, 3) + (4,) * 6, held=HELD):
    simulated = {name: np.array([9] * 9) for name in FLOWS}  # what must not be read
    simulated |= {"no mask": np.array(free), "causal mask": np.array(causal)}
    simulated["causal mask, one head"] = np.array(one_head)
    return Depths(9, [HELD, held], simulated, simulated)


def test_values_inside_the_bands():
    assert values_of(STUDY, depths()) == {
        "bound": pytest.approx(3 - np.log(12) / np.log(3)),  # at D = 6, the largest with three layers
        "length-at-most": 1.0,  # two pieces, then four
        "factor-three": 1.0,
        "mask": 1.0,
        "three-for-three": 3.0,
    }
    assert set(verdicts_of(STUDY, depths()).values()) == {"reproduced"}
    assert STUDY.claims[0](depths()).spread == "all D to 9"


def test_exact_values_outside_the_bands_contradict():
    early = HELD.copy()
    early[0, 0] = True, True, True, False
    wrong = depths([0, 2, 2, 3, 3, 3, 4, 4, 4], [1] * 8 + [4], [2, 3, 4] + [4] * 6, held=early)
    assert values_of(STUDY, wrong) == {
        "bound": pytest.approx(-np.log(2) / np.log(3)),
        "length-at-most": 1.5,  # three pieces before the first layer
        "factor-three": pytest.approx(1 / 3),  # D = 2 alone: 2 is no 0 + 1, and 4 no 2 + 1
        "mask": 0.0,
        "three-for-three": 4.0,
    }
    assert set(verdicts_of(STUDY, wrong).values()) == {"contradicted"}


def test_a_short_study():
    """Up to D = 30: 4D + 1 passes 9 at D = 3 and 27 at D = 7, 81 at D = 21; 2D passes 3 at 2, 9 at 5, 27 at 14."""
    found = analyse([], Setting(30))
    least = [2] * 2 + [3] * 4 + [4] * 14 + [5] * 10
    bound = [1] * 1 + [2] * 3 + [3] * 9 + [4] * 17
    values = values_of(STUDY, found.seen)
    assert values["bound"] > 0 and values["factor-three"] == 1 and values["three-for-three"] == 3
    assert values["mask"] == 1  # 2D + 1 = 61 passes 32: six layers with a mask
    theorem, free, *_ = found.tables[0].rows
    assert free[3] == sum(one == two for one, two in zip(least, bound, strict=True)) / 30
    assert theorem[4:] == tuple(bound[one - 1] for one in (1, 2, 3, 4, 5, 10))
    assert free[4:] == tuple(least[one - 1] for one in (1, 2, 3, 4, 5, 10))
    assert all(row[2] == 1 for row in found.tables[0].rows)
    shared, layers = found.figures
    assert layers.lines[0].label == "Theorem 1"
    assert layers.lines[0].x == (1, 2, 4, 5, 13, 14, 30)
    assert layers.lines[0].mean == (1, 2, 2, 3, 3, 4, 4)
    (drawn,) = shared.maps[0]
    assert drawn.row_ticks == ("x₀", "x₀", "x₁", "x₁", "x₂", "x₂", "x₃", "x₃", "x₄", "x₄", "x₅")
    assert drawn.column_ticks[:4] == ("x₀", "p₁", "x₁", "p₂")
    assert drawn.values[0] == (0, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3)  # one to the right, then four, then thirteen
    assert drawn.values[1][:4] == (0, 0, 1, 2)


def test_profiles_simulate_chains_of_their_own_lengths_and_train_nothing():
    flow = study("retrieval/information-flow")
    lengths = {name: profile.setting.most_steps for name, profile in flow.profiles.items()}
    assert lengths == {"quick": 2000, "paper": 10_000, "smoke": 30}
    assert not flow.experiments_of("quick")
