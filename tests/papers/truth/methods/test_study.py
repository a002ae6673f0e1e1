"""The measures of the study on rankings and landscapes made by hand."""

from dataclasses import replace

import pytest
import torch

from anchorlab.lens import Landscape, Passes, Scores
from anchorlab.papers.truth.methods.drawing import early_weight
from anchorlab.papers.truth.methods.ranking import (
    ABLATION,
    EDGES,
    INTEGRATED,
    INTEGRATED_EDGES,
    METHODS,
    RANDOM,
    WRONG,
    Ranked,
)
from anchorlab.papers.truth.methods.scored import ALL, Scored, half_way
from anchorlab.papers.truth.methods.study import QUICK, STUDY, distance, experiments, sorted_by_size
from tests.papers.hand_made_runs import HandMadeRun, values_of, verdicts_of

UNITS = ("0.0", "0.1", "1.0", "1.1")


def truth(members=2):
    """Either head of layer 0 with head 1.0 suffices; head 1.1 does nothing.

    The minimal circuits are {0.0, 1.0} and {0.1, 1.0}; the Shapley values are 1/6, 1/6, 2/3 and 0.
    """
    loss = [0.0 if subset & 4 and subset & 3 else 1.0 for subset in range(16)]
    rows = torch.tensor([loss] * members).double()
    return Landscape(UNITS, rows, torch.full_like(rows, torch.nan))


GOOD, BAD = (2.0, 1.0, 3.0, 0.0), (2.0, 1.0, 0.0, 3.0)  # the first holds {0.0, 1.0} highest, the second 1.1 and 0.0
MIDDLE = (3.0, 1.0, 0.0, 2.0)


def ranking(values=None, members=2, ablation=(0.0, 0.0, 1.0, 0.0)):
    """Return a `Ranked` in which every method is good but the named ones; random has the middle, a wrong circuit."""
    given = (
        dict.fromkeys(ALL, GOOD) | {ABLATION: ablation, RANDOM: MIDDLE, WRONG: (0.0, 1.0, 0.0, 3.0)} | (values or {})
    )
    return Ranked(
        truth(members),
        {
            name: Scores(name, UNITS, torch.tensor([row] * members).double(), Passes(1, 0))
            for name, row in given.items()
        },
    )


def seen(trained=None, written=None, early=(0.9, 0.9), accuracy=(1.0, 1.0)):
    one = ranking() if trained is None else trained
    other = ranking(members=1) if written is None else written
    return Scored(
        ("one", "two"),
        (one, one),
        (("identity", "backup"), ("identity", "distractor")),
        (other, other),
        torch.tensor([early, early]).double(),
        torch.tensor([accuracy, accuracy]).double(),
    )


def skill(area):
    """Of the nearest of both circuits; its chance was enumerated over the 24 rankings: 5 / 8."""
    return (area - 0.625) / 0.375


def test_chance_of_the_hand_made_truth():
    assert ranking().column("area_by_chance")[0, 0] == pytest.approx(chance(), abs=0.02)
    assert ranking().column("area")[0, ALL.index(INTEGRATED)] == 1.0


def chance():
    """Enumerate the rankings: the mean of the larger area against {0, 2} and {1, 2}."""
    from itertools import permutations

    total = 0.0
    for order in permutations(range(4)):
        place = {unit: at for at, unit in enumerate(order)}
        areas = [
            sum((place[p] > place[n]) for p in own for n in range(4) if n not in own) / 4 for own in ({0, 2}, {1, 2})
        ]
        total += max(areas) / 24
    return total


def test_values_of_rankings_made_by_hand():
    found = values_of(STUDY, seen())
    assert found["integrated-gradients"] == pytest.approx(0.0)
    assert found["backups-missed"] == 0.0
    assert found["backups-missed-when-trained"] == 0.0
    assert found["there-when-learned"] == pytest.approx(0.9)
    assert found["learns"] == 1.0
    assert found["seeds-differ"] == pytest.approx(-mean_distance())
    assert found["wrong-fails"] < 0 and found["worse-when-trained"] == pytest.approx(0.0, abs=0.02)


def mean_distance():
    """Eight methods say (2, 1, 3, 0) / 6 and ablation (0, 0, 1, 0): eight of 36 pairs are half apart."""
    assert len(METHODS) == 9
    return 8 / 36 * 0.5


def test_integrated_gradients_are_compared_with_plain_ones_in_units_and_in_edges():
    worse = ranking({"attribution patching": BAD, EDGES: BAD})
    better = values_of(STUDY, seen(worse))["integrated-gradients"]
    half = values_of(STUDY, seen(ranking({EDGES: BAD})))["integrated-gradients"]
    # BAD has 1.0 below all and one of 0.0, 0.1 above one of two others: an area of 1 / 4 against {0.0, 1.0}
    assert better == pytest.approx((1 - 0.25) / (1 - chance()), abs=0.1) and half == pytest.approx(better / 2)
    assert values_of(STUDY, seen(ranking({INTEGRATED: BAD, INTEGRATED_EDGES: BAD})))["integrated-gradients"] < 0


def test_backups():
    """Units 0.0 and 0.1 stand in for each other; 1.0 has Shapley value 2/3 and 0.0 and 0.1 have 1/6 each."""
    one = ranking(ablation=(0.1, 0.2, 1.0, 0.0))
    small = ranking(members=1, ablation=(0.25, 0.15, 1.0, 0.0))
    found = values_of(STUDY, seen(one, small))
    assert found["backups-missed-when-trained"] == pytest.approx((0.3 / (1 / 3)) / (1.0 / (2 / 3)))
    assert found["backups-missed"] == pytest.approx(0.2)
    assert verdicts_of(STUDY, seen(one, small))["backups-missed"] != "supported"


def test_trained_models_on_which_one_method_is_better_than_on_compiled_ones():
    written = ranking({"ACDC": BAD}, members=1)
    found = values_of(STUDY, seen(written=written))["worse-when-trained"]
    assert found == pytest.approx((0.25 - 1) / (1 - chance()), abs=0.1)


def test_seeds_are_compared_with_heads_matched_by_size():
    """The second seed has the heads of layer 0 exchanged and puts half of what 1.0 had on head 0.0."""
    found = sorted_by_size(torch.tensor([[0.1, 0.3, 0.6, 0.0], [0.3, 0.1, 0.0, 0.6]]), UNITS)
    assert found.tolist() == torch.tensor([[0.3, 0.1, 0.6, 0.0]] * 2).tolist()
    kept = sorted_by_size(torch.tensor([[0.1, 0.3, 0.2, 0.4]]), ("0.0", "0.1", "0.mlp", "1.0"))
    assert kept.tolist() == torch.tensor([[0.3, 0.1, 0.2, 0.4]]).tolist()
    assert distance(torch.tensor([[0.5, 0.5, 0.0]]), torch.tensor([[0.0, 0.25, 0.75]])).item() == 0.75


def test_weight_of_early_layers():
    one = ranking({"ACDC": (1.0, 0.0, 3.0, 0.0)})
    assert early_weight(one, "ACDC").tolist() == pytest.approx([0.25 - 1 / 3] * 2)
    assert early_weight(one, "direct attribution").tolist() == pytest.approx([0.5 - 1 / 3] * 2)


def test_half_way():
    experiment = replace(experiments(QUICK)[0], members=experiments(QUICK)[0].members.take(range(2)))
    losses = [[6.0, 5.0, 3.1, 2.9, 0.0], [6.0, 1.0, 4.0, 1.0, 1.0]]
    run = HandMadeRun(experiment, (0, 10, 20, 30, 40), {("test", "loss"): losses}, dict.fromkeys((0, 20, 30, 40)))
    assert half_way(run) == [30, 20]  # at 10 no weights were kept


def test_members_that_did_not_learn_do_not_count():
    assert values_of(STUDY, seen(accuracy=(0.9, 1.0)))["learns"] == pytest.approx(0.9)  # the lowest task
    assert values_of(STUDY, seen(early=(0.2, 0.6)))["there-when-learned"] == pytest.approx(0.4)
