"""The measures of the study on rankings and landscapes made by hand."""

from dataclasses import replace

import pytest
import torch

from anchorlab.lens import Landscape, Passes, Scores
from anchorlab.training.ensemble import initialise
from anchorlab.truth import SELECTIVE
from anchorlab.truth import ranked as of
from anchorlab.truth.drawing import early_weight, method_table, metric_table, shape_table, truth_table
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


def bad(*families, baselines=("pair", "mean", "zero"), by=("", ", loss")):
    """Methods that are bad with these baselines; activation patching also if it is denoising."""
    forms = {f"{family}, {one}{metric}": BAD for family in families for one in baselines for metric in by}
    forms = {name: one for name, one in forms.items() if name in ALL}  # some have none by the loss
    return forms | ({of.DENOISING: BAD} if of.PATCHING in families and len(baselines) == 3 else {})


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
    assert ranking().chance[0] == pytest.approx(chance(), abs=0.02)
    assert ranking().columns["area"][0, ALL.index(f"{of.INTEGRATED}, pair")] == 1.0
    assert ranking().columns["area"][0, ALL.index(of.RANDOM)] == 0.5
    found = values_of(STUDY, seen())
    alike = ("integrated-gradients", "pair-misleads", "loss-finds-more", "shared-replacement", "exact-paths")
    for same in (*alike, "worse-when-trained"):
        assert found[same] == pytest.approx(0.0), same
    assert found["backups-missed-when-trained"] == 0.0
    assert found["there-when-learned"] == pytest.approx(0.9)
    assert found["learns"] == 1.0
    assert found["seeds-differ"] == 0.0
    one = ranking({f"{of.PATHS}, mean": (0.0, 0.0, 1.0, 0.0), of.ABLATION: BAD, f"{of.PATHS}, pair": BAD})
    assert values_of(STUDY, seen(one))["seeds-differ"] == pytest.approx(-mean_distance())


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
    """With the mean six methods say (2, 1, 3, 0) / 6 and one (0, 0, 1, 0): six of 21 pairs are half apart."""
    assert len(of.BY_BASELINE) == 7
    return 6 / 21 * 0.5


def test_integrated_gradients_and_paths_are_compared_with_plain_ones():
    better = values_of(STUDY, seen(ranking(bad(of.PLAIN, of.EDGES))))["integrated-gradients"]
    half = values_of(STUDY, seen(ranking(bad(of.EDGES))))["integrated-gradients"]
    # BAD has 1.0 below all and one of 0.0, 0.1 above one of two others: an area of 1 / 4 against {0.0, 1.0}
    assert better == pytest.approx((1 - 0.25) / (1 - chance()), abs=0.1) and half == pytest.approx(better / 2)
    worse = ranking(bad(of.INTEGRATED, of.INTEGRATED_EDGES))
    assert values_of(STUDY, seen(worse))["integrated-gradients"] == pytest.approx(-better)
    found = values_of(STUDY, seen(ranking(bad(of.EDGES))))["exact-paths"]
    assert found == pytest.approx(loss_of_bad(), abs=0.1)
    assert values_of(STUDY, seen(ranking(bad(of.PATHS))))["exact-paths"] == pytest.approx(-found)


@pytest.mark.parametrize("good", ["pair", "mean", "zero"])
def test_no_method_is_judged_by_a_baseline_that_does_not_suit_it(good):
    """With one good baseline a method is good, in every claim that compares methods."""
    others = [one for one in ("pair", "mean", "zero") if one != good]
    names = [name for name in of.BY_BASELINE if f"{name}, {good}" in ALL]
    one = ranking(bad(*names, baselines=others))
    found = values_of(STUDY, seen(one, written=ranking(members=1), deep=ranking()))
    for claim in ("integrated-gradients", "exact-paths", "worse-when-trained", "worse-when-deeper"):
        assert found[claim] == pytest.approx(0.0), claim
    whole = ranking(bad(of.PLAIN))
    assert values_of(STUDY, seen(whole, written=ranking(members=1)))["worse-when-trained"] == pytest.approx(0.0)
    every = ranking(bad(*of.BY_BASELINE) | {of.DIRECT: BAD})
    found = values_of(STUDY, seen(every, written=ranking(members=1)))
    assert found["worse-when-trained"] == pytest.approx(loss_of_bad(), abs=0.1)


def test_a_pair_misleads_if_the_mean_and_zero_do_not():
    pair, both = (ranking(bad(of.PLAIN, baselines=one, by=("",))) for one in (("pair",), ("pair", "zero")))
    none = ranking(bad(of.PLAIN, baselines=("mean", "zero")))
    found = [values_of(STUDY, seen(one))["pair-misleads"] for one in (pair, both, none)]
    assert found == pytest.approx([loss_of_bad(), loss_of_bad() / 2, -loss_of_bad()], abs=0.1)


def test_the_loss_finds_more_if_logits_do_not_with_any_baseline():
    logits = ranking(bad(*of.BY_BASELINE, by=("",)))
    loss = ranking(bad(of.EDGES, by=(", loss",)))  # one of five methods
    some = ranking(bad(of.EDGES, baselines=("pair", "mean"), by=("",)))
    found = [values_of(STUDY, seen(one))["loss-finds-more"] for one in (logits, loss, some)]
    assert found == pytest.approx([loss_of_bad(), -loss_of_bad() / 5, 0.0], abs=0.1)


def test_weights_of_early_layers_half_way_and_backups():
    # units 0.0 and 0.1 stand in for each other; 1.0 has Shapley value 2/3 and 0.0 and 0.1 have 1/6 each
    one = ranking(ablation=(0.1, 0.2, 1.0, 0.0))
    found = values_of(STUDY, seen(one))
    assert found["backups-missed-when-trained"] == pytest.approx((0.3 / (1 / 3)) / (1.0 / (2 / 3)))
    one = ranking({"ACDC, mean": (1.0, 0.0, 3.0, 0.0)})
    assert early_weight(one, "ACDC, mean").tolist() == pytest.approx([0.25 - 1 / 3] * 2)
    assert early_weight(one, "direct attribution").tolist() == pytest.approx([0.5 - 1 / 3] * 2)
    experiment = experiments(QUICK)["identity, 2 x 4"].take(range(2))
    losses = [[6.0, 5.0, 3.1, 2.9, 0.0], [6.0, 1.0, 4.0, 1.0, 1.0]]
    run = HandMadeRun(experiment, (0, 10, 20, 30, 40), {("test", "loss"): losses}, dict.fromkeys((0, 20, 30, 40)))
    assert half_way(run) == [30, 20]  # at 10 no weights were kept


def loss_of_bad():
    """By how much the skill of BAD, with an area of 1 / 4, is below the best."""
    return 1 - skill(0.25)


def test_a_replacement_as_in_the_truth_gains_and_members_that_learned_count():
    of_mean = ranking(bad(*of.BY_BASELINE, baselines=("pair",)))
    same = values_of(STUDY, seen(of_mean, resampled=of_mean))["shared-replacement"]
    gone = values_of(STUDY, seen(of_mean, resampled=ranking()))["shared-replacement"]
    assert same == pytest.approx(0.0)
    assert gone == pytest.approx(loss_of_bad(), abs=0.1)
    one = ranking(bad(of.PATHS, baselines=("pair",)))  # one method of seven
    assert values_of(STUDY, seen(one, resampled=ranking()))["shared-replacement"] == pytest.approx(gone / 7)
    turned = values_of(STUDY, seen(ranking(), resampled=of_mean))["shared-replacement"]
    assert turned == pytest.approx(-gone)
    assert verdicts_of(STUDY, seen(of_mean, resampled=of_mean))["shared-replacement"] == "differs at small scale"
    assert values_of(STUDY, seen(accuracy=(0.9, 1.0)))["learns"] == pytest.approx(0.9)  # the lowest task
    assert values_of(STUDY, seen(early=(0.2, 0.6)))["there-when-learned"] == pytest.approx(0.4)


def test_three_layers_are_compared_with_two_on_one_task():
    """One of eight methods is wrong on three layers."""
    assert len(of.FAMILIES) == 8
    worse = ranking(bad(of.EDGES))
    found = values_of(STUDY, seen(deep=worse))["worse-when-deeper"]
    assert found == pytest.approx(loss_of_bad() / 8, abs=0.01)
    assert values_of(STUDY, seen(worse, deep=ranking()))["worse-when-deeper"] == pytest.approx(-found)
    apart = seen(populations=(Population(TASKS["brackets"], 2, 4), Population(TASKS["identity"], 3, 2)))
    assert values_of(STUDY, apart)["worse-when-deeper"] is None
    first = seen(populations=tuple(Population(TASKS["identity"], *shape) for shape in ((2, 4), (2, 2), (3, 2))))
    first.trained = (ranking(), worse, worse)
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
    assert {one.members.seeds for one in given.values()} == {tuple(range(1200, 1208))}
    written = ranking(bad(of.ACDC), members=1)
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
    edges = f"{of.EDGES}, mean"
    found = seen(ranking({edges: BAD}), deep=ranking(), heads=on_heads(BAD), resampled=ranking({edges: MIDDLE}))
    by_name = {row[0]: row[1:] for row in truth_table(found).rows}
    shown = [name for name in ALL if not name.endswith(", loss")]
    assert list(by_name) == [*shown, *of.OF_HEADS, "minimal circuits", "area by chance"]
    assert by_name[of.DETECTORS][:7] == (None,) * 7 and by_name["find_circuit"][7] == pytest.approx(1.0)
    assert by_name[of.DETECTORS][7] == pytest.approx(1 - loss_of_bad(), abs=0.1)
    assert by_name[of.DETECTORS][10] == pytest.approx(1.0)
    assert by_name[edges][0] == pytest.approx(1 - loss_of_bad() / 2, abs=0.1)  # the mean of both populations
    assert by_name[edges][3] == pytest.approx(skill(0.5), abs=0.1)
    assert [by_name["minimal circuits"][at] for at in (0, 3, 7, 10)] == [2.0] * 4
    assert by_name["area by chance"][0] == pytest.approx(chance(), abs=0.02)
    shapes = {row[0]: row[1:] for row in shape_table(found).rows}
    assert shape_table(found).columns == ("ranking", "2 x 4", "3 x 2")
    assert shapes[edges] == pytest.approx((1 - loss_of_bad(), 1.0), abs=0.1)
    assert shapes["minimal circuits"] == (2.0, 2.0)
    (row,) = [row for row in method_table(found).rows if row[0] == edges]
    assert row[7] == pytest.approx((0.25 + 1.0) / 2) and row[8] == 1.0  # areas without a scale
    rows = {row[0]: row[1:] for row in metric_table(found).rows}
    assert len(rows) == 3 * 5
    assert [rows[edges][at] for at in (0, 3, 6, 9)] == pytest.approx([1 - loss_of_bad() / 2, 1, skill(0.5), 1], abs=0.1)


def test_scores_beside_chance():
    """By the interval over seeds, which takes two that differ."""
    values = torch.tensor([[GOOD, GOOD], [GOOD, BAD]]).double()
    methods = dict(zip(("ACDC, pair", "ACDC, mean"), values, strict=True))
    one = ranking()
    given = {name: replace(one.scores[name], values=each) for name, each in methods.items()}
    found = seen(resampled=replace(one, scores={**one.scores, **given}))
    rows = {row[0]: row[4:8] for row in truth_table(found).rows}
    assert rows["ACDC, pair"][3] is None  # equal seeds have no interval
    assert rows["ACDC, mean"][3] == "at chance"
    assert rows["ACDC, mean"][1] < 0 < rows["ACDC, mean"][2]
