"""The measures of the study on rankings and landscapes made by hand."""

from dataclasses import replace

import pytest
import torch

from anchorlab.lens import Landscape, Passes, Scores
from anchorlab.training.ensemble import initialise
from anchorlab.truth import SELECTIVE
from anchorlab.truth import ranked as of
from anchorlab.truth.drawing import early_weight, shape_table, truth_table
from anchorlab.truth.methods import QUICK, STUDY, TASKS, distance, experiments, sorted_by_size
from anchorlab.truth.seen import ALL, Population, Seen, half_way
from tests.papers.hand_made_runs import HandMadeRun, seen_by_hand, values_of, verdicts_of

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


def ranking(values=None, members=2, ablation=(0.0, 0.0, 1.0, 0.0), methods=ALL):
    """Return a `Ranked` in which every method is good but the named ones; random has the middle, a wrong circuit."""
    given = (
        dict.fromkeys(methods, GOOD)
        | {of.ABLATION: ablation, of.RANDOM: MIDDLE, of.WRONG: (0.0, 1.0, 0.0, 3.0)}
        | (values or {})
    )
    return of.Ranked(
        truth(members),
        {
            name: Scores(name, UNITS, torch.tensor([row] * members).double(), Passes(1, 0))
            for name, row in given.items()
        },
    )


def on_heads(detectors=GOOD, members=2):
    return ranking({of.DETECTORS: detectors}, members, methods=(*ALL, *of.OF_HEADS))


def seen(
    trained=None, written=None, early=(0.9, 0.9), accuracy=(1.0, 1.0), deep=None, resampled=None, heads=None, **others
):
    """Two populations on one task, of two layers and of three."""
    one = ranking() if trained is None else trained
    other = ranking(members=1) if written is None else written
    given = {
        "populations": (Population(TASKS["identity"], 2, 4), Population(TASKS["identity"], 3, 2)),
        "trained": (one, deep or one),
        "resampled": (resampled or one,) * 2,
        "heads": (heads or on_heads(),) * 2,
        "models": (("identity", "backup"), ("identity", "distractor")),
        "written": (other, other),
        "written_heads": (on_heads(members=1),) * 2,
        "early": torch.tensor([early, early]).double(),
        "accuracy": torch.tensor([accuracy, accuracy]).double(),
    }
    return seen_by_hand(Seen, **given | others)


def skill(area):
    """Return the skill of an area against the nearest of both circuits."""
    return (area - chance()) / (1 - chance())


def test_values_of_rankings_made_by_hand_and_their_chance():
    assert ranking().column("area_by_chance")[0, 0] == pytest.approx(chance(), abs=0.02)
    assert ranking().column("area")[0, ALL.index(of.INTEGRATED)] == 1.0
    found = values_of(STUDY, seen())
    assert found["integrated-gradients"] == pytest.approx(0.0)
    assert found["backups-missed"] == 0.0
    assert found["backups-missed-when-trained"] == 0.0
    assert found["there-when-learned"] == pytest.approx(0.9)
    assert found["learns"] == 1.0
    assert found["seeds-differ"] == pytest.approx(-mean_distance())
    assert found["wrong-fails"] < 0 and found["worse-when-trained"] == pytest.approx(0.0, abs=0.02)


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


def mean_distance():
    """Ten methods say (2, 1, 3, 0) / 6 and ablation (0, 0, 1, 0): ten of 55 pairs are half apart."""
    assert len(of.METHODS) == 11
    return 10 / 55 * 0.5


def test_integrated_gradients_and_paths_are_compared_with_plain_ones():
    worse = ranking({"attribution patching": BAD, of.EDGES: BAD})
    better = values_of(STUDY, seen(worse))["integrated-gradients"]
    half = values_of(STUDY, seen(ranking({of.EDGES: BAD})))["integrated-gradients"]
    # BAD has 1.0 below all and one of 0.0, 0.1 above one of two others: an area of 1 / 4 against {0.0, 1.0}
    assert better == pytest.approx((1 - 0.25) / (1 - chance()), abs=0.1) and half == pytest.approx(better / 2)
    assert values_of(STUDY, seen(ranking({of.INTEGRATED: BAD, of.INTEGRATED_EDGES: BAD})))["integrated-gradients"] < 0
    found = values_of(STUDY, seen(ranking({of.EDGES: BAD})))["exact-paths"]
    assert found == pytest.approx(loss_of_bad(), abs=0.1)
    assert values_of(STUDY, seen(ranking({of.PATHS: BAD})))["exact-paths"] == pytest.approx(-found)


def test_weights_of_early_layers_half_way_and_backups():
    # units 0.0 and 0.1 stand in for each other; 1.0 has Shapley value 2/3 and 0.0 and 0.1 have 1/6 each
    one = ranking(ablation=(0.1, 0.2, 1.0, 0.0))
    small = ranking(members=1, ablation=(0.25, 0.15, 1.0, 0.0))
    found = values_of(STUDY, seen(one, small))
    assert found["backups-missed-when-trained"] == pytest.approx((0.3 / (1 / 3)) / (1.0 / (2 / 3)))
    assert found["backups-missed"] == pytest.approx(0.2)
    assert verdicts_of(STUDY, seen(one, small))["backups-missed"] != "supported"
    one = ranking({"ACDC": (1.0, 0.0, 3.0, 0.0)})
    assert early_weight(one, "ACDC").tolist() == pytest.approx([0.25 - 1 / 3] * 2)
    assert early_weight(one, "direct attribution").tolist() == pytest.approx([0.5 - 1 / 3] * 2)
    experiment = experiments(QUICK)["identity, 2 x 4"].take(range(2))
    losses = [[6.0, 5.0, 3.1, 2.9, 0.0], [6.0, 1.0, 4.0, 1.0, 1.0]]
    run = HandMadeRun(experiment, (0, 10, 20, 30, 40), {("test", "loss"): losses}, dict.fromkeys((0, 20, 30, 40)))
    assert half_way(run) == [30, 20]  # at 10 no weights were kept


def loss_of_bad():
    """By how much the skill of BAD, with an area of 1 / 4, is below the best."""
    return 1 - skill(0.25)


def test_ablation_leads_less_if_the_truth_is_resampled_and_members_that_learned_count():
    # by the mean, integrated gradients are all wrong and ablation ties 0.0 with 1.1: an area of 3 / 4
    by_mean = ranking({of.INTEGRATED: BAD})
    same = values_of(STUDY, seen(by_mean, resampled=by_mean))["shared-replacement"]
    gone = values_of(STUDY, seen(by_mean, resampled=ranking()))["shared-replacement"]
    assert same == pytest.approx(0.0)
    assert gone == pytest.approx(loss_of_bad(), abs=0.1)  # the skill of ablation is the same in both
    turned = values_of(STUDY, seen(ranking(), resampled=by_mean))["shared-replacement"]
    assert turned == pytest.approx(-gone)
    assert verdicts_of(STUDY, seen(by_mean, resampled=by_mean))["shared-replacement"] == "differs at small scale"
    assert values_of(STUDY, seen(accuracy=(0.9, 1.0)))["learns"] == pytest.approx(0.9)  # the lowest task
    assert values_of(STUDY, seen(early=(0.2, 0.6)))["there-when-learned"] == pytest.approx(0.4)


def test_three_layers_are_compared_with_two_on_one_task():
    """One of eleven methods is wrong on three layers."""
    found = values_of(STUDY, seen(deep=ranking({of.EDGES: BAD})))["worse-when-deeper"]
    assert found == pytest.approx(loss_of_bad() / 11, abs=0.01)
    assert values_of(STUDY, seen(ranking({of.EDGES: BAD}), deep=ranking()))["worse-when-deeper"] == pytest.approx(
        -found
    )
    apart = seen(populations=(Population(TASKS["brackets"], 2, 4), Population(TASKS["identity"], 3, 2)))
    assert values_of(STUDY, apart)["worse-when-deeper"] is None
    first = seen(populations=tuple(Population(TASKS["identity"], *shape) for shape in ((2, 4), (2, 2), (3, 2))))
    first.trained = (ranking(), ranking({of.EDGES: BAD}), ranking({of.EDGES: BAD}))
    assert values_of(STUDY, first)["worse-when-deeper"] == pytest.approx(found)  # with the first of two layers


def test_detectors_are_judged_on_heads_and_seeds_by_heads_matched_by_size():
    assert values_of(STUDY, seen())["recognised"] == pytest.approx(1.0)
    found = values_of(STUDY, seen(heads=on_heads(BAD)))["recognised"]
    assert found == pytest.approx(1 - loss_of_bad(), abs=0.1)
    assert verdicts_of(STUDY, seen(heads=on_heads(BAD)))["recognised"] == "differs at small scale"
    # the second seed has the heads of layer 0 exchanged and puts half of what 1.0 had on head 0.0
    found = sorted_by_size(torch.tensor([[0.1, 0.3, 0.6, 0.0], [0.3, 0.1, 0.0, 0.6]]), UNITS)
    assert found.tolist() == torch.tensor([[0.3, 0.1, 0.6, 0.0]] * 2).tolist()
    kept = sorted_by_size(torch.tensor([[0.1, 0.3, 0.2, 0.4]]), ("0.0", "0.1", "0.mlp", "1.0"))
    assert kept.tolist() == torch.tensor([[0.3, 0.1, 0.2, 0.4]]).tolist()
    assert distance(torch.tensor([[0.5, 0.5, 0.0]]), torch.tensor([[0.0, 0.25, 0.75]])).item() == 0.75


def test_shapes_of_the_trained_models_and_where_one_method_is_better():
    given = experiments(QUICK)
    assert len(given) == len(QUICK.populations) == 13 and len({one.task for one in given.values()}) == 8
    deep = given["identity, 3 x 2"].model
    assert (deep.layers, deep.heads, deep.head_width) == (3, 2, 16)
    assert {(one.model.layers, one.model.heads) for one in given.values()} == {(2, 4), (3, 2), (2, 3), (2, 2)}
    assert {one.members.seeds for one in given.values()} == {tuple(range(1100, 1108))}
    written = ranking({"ACDC": BAD}, members=1)
    found = values_of(STUDY, seen(written=written))["worse-when-trained"]
    assert found == pytest.approx((0.25 - 1) / (1 - chance()), abs=0.1)


@pytest.mark.slow
def test_what_is_read_of_runs_and_of_compiled_models():
    """Each truth is where it belongs, and the first head of a layer is not in a minimal set by its place alone."""
    smoke = STUDY.profile("smoke").setting
    setting = replace(smoke, populations=(Population(TASKS["identity"], 2, 2),), variants=SELECTIVE)
    (experiment,) = experiments(setting).values()
    seeds = experiment.members.seeds
    ensembles = {
        step: initialise(experiment.model, experiment.task.shape, [seed + step for seed in seeds]) for step in (0, 20)
    }
    values = {("test", "loss"): [[6.0, 2.0]] * 2, ("test", "accuracy"): [[0.0, 0.25], [0.0, 0.75]]}
    found = STUDY.see([HandMadeRun(experiment, (0, 20), values, ensembles)], setting)
    assert [one.truth.replace for one in (*found.trained, *found.resampled)] == ["mean", "resample"]
    assert found.heads[0].truth.units == UNITS and found.trained[0].truth.units[2] == "0.mlp"
    assert found.accuracy.tolist() == [[0.25], [0.75]]
    assert [variant for _, variant in found.models] == list(SELECTIVE) and len(found.written) == len(SELECTIVE)
    assert [one.truth.units for one in found.written_heads] == [one.truth.units for one in found.written]
    assert (*found.written_heads[0].scores,)[-1] == "find_circuit"
    needed = [{unit for own in one.truth.minimal()[0] for unit in own} for one in found.written]
    assert not all("1.0" in one for one in needed) and not all("0.0" in one for one in needed)


def test_tables_have_a_row_for_each_ranking():
    """Detectors and find_circuit have a skill on heads alone; a shape has the mean of its populations."""
    found = seen(ranking({of.EDGES: BAD}), deep=ranking(), heads=on_heads(BAD), resampled=ranking({of.EDGES: MIDDLE}))
    rows = {row[0]: row[1:] for row in truth_table(found).rows}
    assert list(rows) == [*ALL, *of.OF_HEADS]
    assert rows[of.DETECTORS][:6] == (None,) * 6 and rows["find_circuit"][6] == pytest.approx(1.0)
    assert rows[of.DETECTORS][6] == pytest.approx(1 - loss_of_bad(), abs=0.1) and rows[of.DETECTORS][
        9
    ] == pytest.approx(1.0)
    assert rows[of.EDGES][0] == pytest.approx(1 - loss_of_bad() / 2, abs=0.1)  # the mean of both populations
    assert rows[of.EDGES][3] == pytest.approx(skill(0.5), abs=0.1)
    shapes = {row[0]: row[1:] for row in shape_table(found).rows}
    assert shape_table(found).columns == ("ranking", "2 x 4", "3 x 2")
    assert shapes[of.EDGES] == pytest.approx((1 - loss_of_bad(), 1.0), abs=0.1)
