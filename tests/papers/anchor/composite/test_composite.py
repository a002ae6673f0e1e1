"""Learned operations, mapping sequences and when splits are learned, on outputs written by hand."""

import math
from dataclasses import replace

import pytest
import torch

from anchorlab.papers.anchor.composite import depths as of
from anchorlab.papers.anchor.composite.composite import FIGURE_6, PAPER, QUICK, STUDY, Seen, experiments
from anchorlab.papers.anchor.composite.outputs import added_by, output_tables
from anchorlab.papers.anchor.composite.outputs import read_outputs as read
from anchorlab.tasks import Batch, task
from anchorlab.training import FixedSample
from tests.papers.hand_made_outputs import hand_made_ensemble
from tests.papers.hand_made_runs import HandMadeRun, results_of, seen_by_hand, student, values_of, verdicts_of

ADDS = {1: 5, 2: 1, 3: -2, 4: -8}

# Four pairs of anchors, 1: +5, 2: +1, 3: -2 and 4: -8, twice each, by keys 40 and 50 at positions 0 and 1 of five.
ANCHORS = torch.tensor([[1, 2], [1, 2], [2, 1], [2, 1], [3, 4], [3, 4], [4, 3], [4, 3]])
INPUTS = torch.tensor(
    [
        [40, 1, 2, 60, 61], [50, 1, 2, 60, 61], [70, 40, 2, 1, 61], [71, 50, 2, 1, 61], [40, 3, 4, 60, 61],
        [50, 3, 4, 60, 61], [70, 40, 4, 3, 61], [71, 50, 4, 3, 61],
    ]
)  # fmt: skip
ANSWERS = torch.tensor([46, 56, 46, 56, 30, 40, 30, 40])
# Both operations doubled at the first anchor, as Figure 6 has it: +10, +2, -4, -16.
TIDY = torch.tensor(
    [
        [0, 50, 46, 46, 46], [0, 60, 56, 56, 56], [9, 0, 42, 46, 46], [0, 9, 52, 56, 56], [0, 36, 30, 30, 30],
        [0, 46, 40, 40, 40], [0, 0, 24, 30, 30], [0, 0, 34, 40, 40],
    ]
)  # fmt: skip


def batch(rows=slice(None)) -> Batch:
    at = torch.tensor([[0], [0], [1], [1]] * 2)
    return Batch(
        inputs=INPUTS[rows],
        targets=ANSWERS[rows, None],
        answers=ANSWERS[rows, None],
        positions=torch.tensor([4]),
        split="test on data",
        group=torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])[rows],
        groups=("1,2", "2,1", "3,4", "4,3"),
        latents={
            "anchors": ANCHORS[rows],
            "anchor_positions": torch.cat([at + 1, at + 2], dim=1)[rows],
            "key_positions": at[rows],
        },
    )


def of_depths(*depths: of.Depth, more: of.Depth | None = None) -> Seen:
    return seen_by_hand(Seen, depths=list(depths), more=more)


def read_outputs(batches, tokens):
    return read(batches, tokens, ADDS)


def changed(*changes: tuple[int, int, int]) -> torch.Tensor:
    outputs = TIDY.clone()
    for row, position, token in changes:
        outputs[row, position] = token
    return outputs


def test_the_models_are_those_of_figures_6_and_7_and_both_quick_depths_have_one_setting():
    assert added_by(task("anchor/composite")) == ADDS
    assert added_by(experiments(FIGURE_6)[10].task) == {**ADDS, 4: -5}  # the table that Figure 6 prints
    sizes = [(one.model.layers, one.model.heads, one.model.width) for one in experiments(PAPER).values()]
    assert sizes == [(4, 4, 400), (6, 5, 400), (8, 6, 400), (10, 7, 400)]
    more, shallow, deep = experiments(QUICK).values()
    assert shallow.model.replace(layers=10) == deep.model
    assert (shallow.task, shallow.recipe, shallow.members) == (deep.task, deep.recipe, deep.members)
    # more data: the same models and steps on the first seeds
    assert (more.task, more.model, more.members.seeds) == (shallow.task, shallow.model, shallow.members.seeds[:14])
    assert shallow.recipe.data.nested  # the fewer sequences are the first of the more
    assert more.recipe == shallow.recipe.replace(data=FixedSample(size=16_000, nested=True))


@pytest.mark.parametrize(("setting", "most"), [(QUICK, 20), (PAPER, 80)], ids=["quick", "paper"])
def test_evaluations_are_at_most_so_many_steps_apart(setting, most):
    for one in experiments(setting).values():
        assert one.recipe.evaluation.every * one.steps_per_unit <= most


def test_a_task_that_follows_late_by_less_than_the_claimed_ratio_differs():
    # it follows after 30 % more steps, which evaluations 20 steps apart resolve
    seen = depth(10, [TIDY, TIDY], [1.0, 1.0], [1.0, 1.0], [100.0, 100.0], [130.0] * 2)
    assert values_of(STUDY, of_depths(seen))["much-earlier"] == pytest.approx(1.3)
    assert verdicts_of(STUDY, of_depths(seen))["much-earlier"] == "differs at small scale"
    values = torch.tensor([[0.1, 0.996, 0.8, 1.0], [0.0, 0.5, 0.9, 0.994]])
    assert of.first_reached([0, 10, 20, 30], values).tolist() == [10, math.inf]
    assert of.first_reached([0, 10], torch.tensor([[0.5, 0.995]])).tolist() == [10]  # 100 % in whole percent


def test_a_tidy_model_has_one_sequence_per_pair_and_an_unsteady_input_adds_one():
    seen = read_outputs([batch()], TIDY[None])
    assert seen.sequences[0, ::2].tolist() == [[10, -4, 0, 0], [2, 4, 0, 0], [-4, -6, 0, 0], [-16, 6, 0, 0]]
    assert seen.counts.tolist() == [[1, 1, 1, 1]] and seen.most_common.tolist() == [[1, 1, 1, 1]]
    assert seen.first.tolist() == [[10, 10, 2, 2, -4, -4, -16, -16]]
    assert seen.learned_first.tolist() == [[10], [2], [-4], [-16]]
    assert seen.second.tolist() == [[6, 6, 6, 6, -10, -10, -10, -10]]
    assert seen.right.all() and seen.kept.all()
    seen = read_outputs([batch()], torch.stack([TIDY, changed((1, 3, 99))]))
    assert seen.counts.tolist() == [[1, 1, 1, 1], [2, 1, 1, 1]]
    assert seen.most_common.tolist() == [[1, 1, 1, 1], [0.5, 1, 1, 1]]
    assert seen.kept[:, :4].tolist() == [[True] * 4, [True, False, True, True]]
    assert seen.answer_kept.tolist() == [1, 7 / 8]
    assert seen.right.all()
    assert not read_outputs([batch()], changed((0, 2, 99))[None]).kept[0, 0]  # at the second anchor itself
    both = read_outputs([batch(slice(0, 4)), batch(slice(4, 8))], TIDY[None])
    assert both.counts.tolist() == [[1, 1, 1, 1]] and both.second[0, 4:].tolist() == [-10] * 4


def test_the_learned_operation_at_the_first_anchor_is_that_of_most_seeds():
    first = output_tables(read_outputs([batch()], torch.stack([TIDY, torch.full_like(TIDY, 99), TIDY])), 4)[0]
    given = zip(first.columns, *first.rows, strict=True)
    table = {name: values for name, *values in given}
    assert table["learned"] == table["given, twice"] == ["+10", "+2", "-4", "-16"]
    assert table["share of seeds"] == pytest.approx([2 / 3] * 4)


def test_wrong_answers_do_not_count_nor_accidents_and_the_unseen_pair_counts_apart():
    seen = read_outputs([batch()], changed((0, 4, 47))[None])
    assert seen.right[0, :4].tolist() == [False, True, True, True]
    assert seen.counts.tolist() == [[1, 1, 1, 1]] and seen.answer_kept.tolist() == [1]
    few = read_outputs([batch(slice(0, 2)), batch(slice(0, 1))], changed((0, 4, 47))[[0, 1, 0]][None])
    assert few.right.tolist() == [[False, True, False]] and few.counts.isnan().all()  # a third of the pair's inputs
    nothing = read_outputs([batch()], torch.zeros(1, 8, 5, dtype=torch.int64))
    assert nothing.counts.isnan().all() and nothing.answer_kept.isnan().all()
    unseen = replace(batch(slice(4, 6)), split="test on task")  # (3, 4) alone
    trained = torch.tensor([0, 1, 2, 3, 6, 7])
    tokens = torch.cat([TIDY[trained], changed((5, 3, 99))[4:6]])[None]
    seen = read_outputs([batch(trained), unseen], tokens)
    assert seen.unseen.tolist() == [False, False, True, False]
    assert seen.over_pairs(seen.counts).tolist() == [1] and seen.over_pairs(seen.counts, unseen=True).tolist() == [2]
    # 100 inputs of one pair: 60 have one sequence, 35 another, and 5 one each of their own.
    seen = read_outputs([batch(slice(0, 1))] * 100, TIDY[:1].repeat(100, 1)[None])
    seen.sequences[0, 60:95, 0] = 7
    seen.sequences[0, 95:, 0] = torch.arange(20, 25)
    assert seen.counts[0, 0] == 7 and seen.common[0, 0] == 2
    seen = read_outputs([batch(slice(0, 1))] * 100, TIDY[:1].repeat(100, 1)[None])
    seen.sequences[0, :, 0] = torch.arange(100)  # every input has its own
    assert seen.counts[0, 0] == 100 and seen.common[0, 0] == 0


@pytest.mark.parametrize("depth", [4, 10])
def test_one_depth_is_the_same_cell_as_in_the_sweep(depth):
    alone = experiments(replace(QUICK, depths=(depth,)))[depth].cell.address
    assert alone in {experiment.cell.address for experiment in experiments(QUICK).values()}


UNSTEADY = changed(
    (1, 3, 99), (3, 2, 99), (5, 3, 99), (7, 2, 99)
)  # two sequences for each pair; rows 1 and 5 waver after the second anchor
UNDOUBLED = changed((0, 1, 45), (1, 1, 55))  # the anchor 1 adds 5


def depth(layers, tokens, data, on_task, data_reached, task_reached) -> of.Depth:
    """Of the pairs (1, 2), (2, 1) and (4, 3), and of the unseen (3, 4), which comes last as in a run."""
    trained = torch.tensor([0, 1, 2, 3, 6, 7])
    batches = [batch(trained), replace(batch(slice(4, 6)), split="test on task")]
    order = [*trained.tolist(), 4, 5]
    accuracy = {of.TRAIN: torch.ones(2), of.DATA: torch.tensor(data), of.TASK: torch.tensor(on_task)}
    reached = {of.TRAIN: torch.ones(2), of.DATA: torch.tensor(data_reached), of.TASK: torch.tensor(task_reached)}
    return of.Depth(layers, 400, accuracy, reached, read_outputs(batches, torch.stack(tokens)[:, order]))


VALUES = {  # of a model as the paper has it; and of the opposite, with the task before the data
    "data": (0.97, 0.93),
    "unseen-pair": (0.99, 0.98),
    "task-below-data": (0.01, -0.05),  # of the deep one
    "data-first": (1.0, 0.25),
    # 400 / 100 and 400 / 50, which never reach it, and 200 / 200; the lower middle of 0.5, 0.5, 0.5 and 1
    "much-earlier": (4.0, 0.5),
    "one-sequence": (1.0, 1.5),
    "one-unseen-sequence": (1.0, 1.5),
    "one-common-sequence": (1.0, 0.75),
    "several-sequences": (2.0, 1.0),
    "several-unseen-sequences": (2.0, 1.0),
    "fewer-with-depth": (0.5, 1.5),
    "fewer-unseen-with-depth": (0.5, 1.5),
    "first-anchor-twice": (0.875, 1.0),  # of four and of three of four anchors
    "answer-kept": (1.0, 0.875),  # six of eight, and all
    "more-with-less-data": (None, None),  # no run on more data
}


def test_values_of_two_depths_made_by_hand():
    as_printed = [
        depth(2, [UNSTEADY, UNSTEADY], [0.98, 0.96], [0.5, 0.7], [100.0, 200.0], [math.inf, 200.0]),
        depth(10, [TIDY, UNDOUBLED], [1.0, 1.0], [1.0, 0.98], [50.0, math.inf], [math.inf, 300.0]),
    ]
    opposite = [
        depth(2, [TIDY, TIDY], [0.94, 0.94], [0.94, 0.94], [200.0, 300.0], [100.0, 150.0]),
        depth(10, [UNSTEADY, TIDY], [0.92, 0.94], [0.97, 0.99], [200.0, 100.0], [100.0, 100.0]),
    ]
    for column, seen in enumerate((as_printed, opposite)):
        expected = {name: values[column] for name, values in VALUES.items()}
        assert values_of(STUDY, of_depths(*seen)) == pytest.approx(expected)


def test_less_data_is_compared_with_more_seed_by_seed_if_both_answer_the_trained_pairs():
    """Of three members with less data the first two trained on more: two sequences for each pair by one, one by two."""
    steps = ([100.0] * 3, [100.0] * 3)
    less = depth(4, [UNSTEADY, TIDY, TIDY], [1.0] * 3, [1.0] * 3, *steps)
    more = depth(4, [TIDY, UNSTEADY], [1.0, 0.9], [0.0, 0.0], *steps)
    found = results_of(STUDY, of_depths(less, less, more=more))["more-with-less-data"]
    assert found.units == (2.0, 0.5) and found.interval == student(1.25, 2.0, 0.5)

    def unlearned(one):
        return replace(one, accuracy={split: torch.full_like(value, 0.9) for split, value in one.accuracy.items()})

    for one, other in ((unlearned(less), more), (less, unlearned(more)), (less, None)):
        assert values_of(STUDY, of_depths(one, less, more=other))["more-with-less-data"] is None
    rows = STUDY.draws[-1](seen_by_hand(Seen, depths=[less, less], more=more, setting=QUICK)).rows
    assert [(row[0], row[7]) for row in rows] == [(8000, pytest.approx(4 / 3)), (16_000, 1.5)]


def test_figure_and_tables_count_the_unseen_pair_apart():
    """Two sequences for each trained pair and one for (3, 4) in the shallow models; the other way round in the deep."""
    steps = ([100.0, 100.0], [100.0, 100.0])
    trained_wavers, unseen_wavers = changed((1, 3, 99), (3, 2, 99), (7, 2, 99)), changed((5, 3, 99))
    seen = [
        depth(4, [trained_wavers, trained_wavers], [1.0, 1.0], [1.0, 1.0], *steps),
        depth(10, [unseen_wavers, TIDY], [1.0, 1.0], [1.0, 1.0], *steps),
    ]
    drawn = {one.label: (one.x, one.mean, one.low, one.high) for one in of.sequence_figure(seen).lines}
    assert drawn == {
        "trained pairs": ((4, 10), (2, 1), (2, 1), (2, 1)),
        "the unseen pair": ((4, 10), (1, 1.5), (1, 1), (1, 2)),
    }
    table = of.sequence_table(seen)
    assert table.columns == ("pair", "trained", "4 layers", "10 layers")
    assert table.rows == (("1,2", "yes", 2, 1), ("2,1", "yes", 2, 1), ("3,4", "no", 1, 1.5), ("4,3", "yes", 2, 1))
    table = of.depth_table("Depth by depth", {"layers": [4, 10]}, seen)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    for name in ("mapping sequences", "common ones"):
        assert [(row[f"{name}, trained pairs"], row[f"{name}, the unseen pair"]) for row in rows] == [(2, 1), (1, 1.5)]
    shares = [
        tuple(row[f"share of the most common, {name}"] for name in ("trained pairs", "the unseen pair")) for row in rows
    ]
    assert shares == [(0.5, 1), (1, 0.75)]


def test_a_seed_is_one_unit_of_all_depths():
    """The first member is judged at both depths, the second at one alone."""
    seen = [
        depth(2, [TIDY, TIDY], [1.0, 1.0], [1.0, 1.0], [100.0, 200.0], [math.inf, 150.0]),
        depth(10, [TIDY, TIDY], [1.0, 1.0], [1.0, 1.0], [50.0, math.inf], [math.inf, 300.0]),
    ]
    found = results_of(STUDY, of_depths(*seen))
    assert found["data-first"].units == (1.0, 0.0)
    assert found["data-first"].value == 0.5  # and not two of three runs
    assert found["much-earlier"].units == (4.0, 0.75)  # the lower middle of 4 and 8, and 150 / 200
    assert found["much-earlier"].interval == student(4.0, 4.0, 0.75)


def test_outputs_are_judged_only_at_depths_that_learned_and_one_depth_not_against_itself():
    steps = ([100.0, 100.0], [200.0, 200.0])
    learned = depth(10, [TIDY, TIDY], [1.0, 1.0], [1.0, 1.0], *steps)
    not_yet = depth(2, [TIDY, TIDY], [0.9, 0.9], [0.0, 0.0], [math.inf] * 2, [math.inf] * 2)
    of_any = {"data", "data-first", "much-earlier"}
    of_deepest = {
        "unseen-pair",
        "one-sequence",
        "one-unseen-sequence",
        "one-common-sequence",
        "first-anchor-twice",
        "answer-kept",
    }
    of_shallowest = {"several-sequences", "several-unseen-sequences"}
    for seen, own in (([not_yet, learned], of_deepest), ([learned, not_yet], of_shallowest)):
        found = values_of(STUDY, of_depths(*seen))
        assert {name for name, value in found.items() if value is not None} == of_any | own
        assert (found["data"], found["much-earlier"]) == (pytest.approx(0.9), 2.0)
    nothing = values_of(STUDY, of_depths(not_yet, not_yet))
    assert nothing["data-first"] is None and nothing["much-earlier"] is None
    alone = values_of(STUDY, of_depths(depth(10, [TIDY, TIDY], [1.0, 1.0], [1.0, 1.0], [100.0, 100.0], [200.0, 200.0])))
    assert {name for name, value in alone.items() if value is None} == {
        "several-sequences", "several-unseen-sequences", "fewer-with-depth", "fewer-unseen-with-depth",
        "more-with-less-data",
    }  # fmt: skip


def test_trained_pairs_and_the_unseen_one_have_claims_of_their_own():
    """The shallow models waver on (3, 4) alone; of the deep ones the second answers it wrongly."""
    steps = ([100.0, 100.0], [100.0, 100.0])
    wavers, wrong = changed((5, 3, 99)), changed((4, 4, 99), (5, 4, 99))
    seen = [
        depth(4, [wavers, wavers], [1.0, 1.0], [1.0, 1.0], *steps),
        depth(10, [TIDY, wrong], [1.0, 1.0], [1.0, 0.0], *steps),
    ]
    found = values_of(STUDY, of_depths(*seen))
    assert (found["several-sequences"], found["several-unseen-sequences"]) == (1.0, 2.0)
    assert (found["fewer-with-depth"], found["fewer-unseen-with-depth"]) == (1.0, 0.5)
    turned = values_of(STUDY, of_depths(*seen[::-1]))
    assert (turned["several-unseen-sequences"], turned["fewer-unseen-with-depth"]) == (1.0, 2.0)


def tidy(inputs):
    """The key under its anchor's operation twice at the first anchor, the answer from the second on."""
    adds = torch.zeros(256, dtype=torch.int64)
    adds[torch.tensor(list(ADDS))] = torch.tensor([5, 1, -2, -8])
    rows, first = torch.arange(len(inputs)), (inputs < 5).int().argmax(dim=1)
    key, position = inputs[rows, first - 1], torch.arange(inputs.shape[1])
    before = key + 2 * adds[inputs[rows, first]]
    answer = key + adds[inputs[rows, first]] + adds[inputs[rows, first + 1]]
    return torch.where(position <= first[:, None], before[:, None], answer[:, None])


def test_accuracies_are_read_by_split_and_steps_in_their_order():
    experiment = experiments(replace(QUICK, seeds=2, depths=(4,)))[4]
    steps = [0, 800, 2500]
    values = {
        ("train", "accuracy"): [[0, 1, 1], [0.995, 1, 1]],
        ("test on data", "accuracy"): [[0, 0.998, 0.97], [0, 0.5, 0.996]],
        ("test on task", "accuracy"): [[0, 0.1, 0.996], [0, 0.2, 0.3]],
        ("test on task", "loss"): [[9, 9, 9], [9, 9, 9]],
    }
    ensemble = hand_made_ensemble([tidy, lambda inputs: inputs])
    seen = of.see(HandMadeRun(experiment, steps, values, {2500: ensemble}), 4)
    assert (seen.layers, seen.steps) == (4, 2500)
    accuracy = {split: values.tolist() for split, values in seen.accuracy.items()}
    assert accuracy == {of.TRAIN: [1, 1], of.DATA: pytest.approx([0.97, 0.996]), of.TASK: pytest.approx([0.996, 0.3])}
    reached = {split: values.tolist() for split, values in seen.reached.items()}
    assert reached == {of.TRAIN: [800, 0], of.DATA: [800, 2500], of.TASK: [2500, math.inf]}
    outputs = seen.outputs
    assert outputs.right.float().mean(dim=1).tolist()[0] == 1 and outputs.right[1].float().mean() < 0.1
    assert outputs.learned_first[:, 0].tolist() == [10, 2, -4, -16]
    assert outputs.counts[0].tolist() == [1] * 16 and outputs.answer_kept[0] == 1
