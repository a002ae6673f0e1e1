"""The identity study, and those of its attention and splits, on runs made by hand."""

from dataclasses import replace

import pytest
import torch

from anchorlab.papers.anchor import attention, identity, range_split
from anchorlab.papers.anchor.attention import EQUAL, IN_0, IN_1, LINEAR, SOFTMAX
from anchorlab.papers.anchor.range_split import RANGE, RESIDUE
from tests.papers.hand_made_models import two_layers
from tests.papers.hand_made_runs import judged, run_ending, seen_by_hand, values_of

SIZES = replace(
    identity.QUICK,
    transformer=replace(identity.QUICK.transformer, seeds=2),
    sizes=(200, 600),
    two_layers=replace(identity.TWO_LAYERS, seeds=2),
)
TEST = {200: (0.1, 0.3), 600: (0.9, 1.0), 2000: (1.0, 0.96)}
TRAIN = {200: (1.0, 0.99), 600: (0.985, 1.0), 2000: (1.0, 1.0)}
# the first member is the paper's; the second does not shift, and reads the anchor
TRAINED, BEFORE = two_layers((1, 1), (0, 0)), two_layers((2, 0), (2, 0))


def runs(setting=SIZES, test=TEST, train=TRAIN):
    return [
        run_ending(experiment, test[size], train[size], {0: BEFORE, 600: TRAINED})
        for experiment, size in zip(identity.experiments(setting).values(), test, strict=True)
    ]


def test_values_and_heads_of_runs_made_by_hand():
    seen = identity.STUDY.see(runs(), SIZES)
    of_heads = (
        "shift-by-one",
        "shift-mass",
        "broadcast-from-key",
        "broadcast-mass",
    )  # none of which the second member has
    expected = {"enough-data": 0.95, "little-data": 0.2, "fits": 0.985} | dict.fromkeys(of_heads, 0.5)
    assert values_of(identity.STUDY, seen) == pytest.approx(expected)
    heads = seen.heads
    assert heads.shift_by.tolist() == [1, 0]
    assert heads.shift_mass.tolist() == pytest.approx([1.0, 0.0])
    assert heads.broadcast_from.tolist() == [1, 0]
    assert heads.to_last.tolist() == pytest.approx([1.0, 0.0])
    assert heads.broadcast_mass.tolist() == pytest.approx([1.0, 0.0])
    assert heads.shift_head.tolist() == heads.broadcast_head.tolist() == [0, 0]


def test_a_curve_takes_the_first_members_of_a_run_that_has_more():
    few, _, many = identity.experiments(replace(SIZES, two_layers=replace(identity.TWO_LAYERS, seeds=3))).values()
    ended = [run_ending(few, (0.1, 0.3), (1.0, 0.9)), run_ending(many, (0.8, 0.9, 0.2), (1.0, 0.95, 1.0))]
    assert identity.read_curve(ended).test.tolist() == [pytest.approx([0.1, 0.3]), pytest.approx([0.8, 0.9])]
    assert identity.read_curve(ended).train.tolist() == [pytest.approx([1.0, 0.9]), pytest.approx([1.0, 0.95])]


def test_other_models_are_no_points_of_the_curve_which_alone_measures_no_heads():
    two = replace(identity.PAPER.two_layers, seeds=2)
    of_paper = runs(
        setting := replace(
            identity.PAPER, transformer=replace(identity.PAPER.transformer, seeds=2), sizes=(200, 600), two_layers=two
        )
    )
    assert of_paper[-1].experiment.model == identity.FIGURE_13
    seen = identity.STUDY.see(of_paper, setting)
    assert seen.curve.sizes == (200, 600)
    assert seen.curve.test.tolist() == [pytest.approx([0.1, 0.3]), pytest.approx([0.9, 1.0])]
    assert seen.heads.shift_by.tolist() == [1, 0]
    transformer = replace(identity.PAPER.transformer, seeds=2)
    setting = replace(identity.PAPER, transformer=transformer, sizes=(200, 600), two_layers=None)
    found = identity.STUDY.analysis(runs(setting, test={size: TEST[size] for size in (200, 600)}), setting)
    values = values_of(identity.STUDY, found.seen)
    assert values["enough-data"] == pytest.approx(0.95)
    assert {name for name, value in values.items() if value is None} == {
        "shift-by-one", "shift-mass", "broadcast-from-key", "broadcast-mass",
    }  # fmt: skip
    assert len(found.tables) == 1 and not found.views


def test_little_data_are_judged_where_they_are_fitted():
    test, train = torch.tensor([[0.1, 0.1], [1.0, 1.0]]), torch.tensor([[0.98, 0.99], [1.0, 1.0]])
    curve, ones, nine = identity.Curve((200, 600), test, train), torch.ones(2), torch.full((2,), 9.0)
    heads = identity.Heads(*(ones.long(), ones.long(), ones) * 2, nine)
    unfitted = seen_by_hand(identity.Seen, curve=curve, heads=heads)
    assert judged(identity.STUDY, unfitted)["little-data"] is None
    shown = values_of(identity.STUDY, unfitted)  # and of untrained members
    assert shown["little-data"] == pytest.approx(0.1)
    other = seen_by_hand(identity.Seen, heads=None, curve=replace(curve, sizes=(300, 700)))
    assert values_of(identity.STUDY, other)["little-data"] is values_of(identity.STUDY, other)["enough-data"] is None


def test_tables_and_figures_of_runs_made_by_hand():
    made = identity.STUDY.analysis(runs(), SIZES)
    sizes, heads = made.tables
    assert sizes.rows[0] == (200, *map(pytest.approx, (0.2, 0.1, 0.3, 0.995)))
    assert heads.rows[1] == (1001, 0, 0, pytest.approx(0), 0, 0, pytest.approx(0), pytest.approx(0))
    against_size, along, maps = made.figures
    assert against_size.lines[0].x == (200, 600, 2000)
    assert against_size.lines[0].mean == pytest.approx((0.2, 0.95, 0.98))
    assert [(one.label, one.mean) for one in along.lines[:1]] == [("200", pytest.approx((0.0, 0.2)))]
    first, second = maps.maps[0]
    assert (first.title, second.title) == ("layer 0", "layer 1")
    assert first.values[5][4] == pytest.approx(1)  # layer 0 shifts by one
    assert second.values[8][5] == pytest.approx(1)  # the anchor is at 4, the key at 5


SETTING = replace(identity.TWO_LAYERS, seeds=2)
OF_MODELS = {SOFTMAX: (1, 1), LINEAR: (0.9, 0.3), EQUAL: (0.1, 0.2), IN_0: (1, 0.9), IN_1: (0.1, 0.6)}
FITTED = {SOFTMAX: (1, 1), LINEAR: (0.96, 0.5), EQUAL: (0.98, 0.94), IN_0: (1, 1), IN_1: (1, 0.97)}


def of_attention(train):
    test, trained = ({name: torch.tensor(row).float() for name, row in rows.items()} for rows in (OF_MODELS, train))
    until = {SOFTMAX: torch.tensor([100.0, 150.0]), LINEAR: torch.tensor([200.0, 600.0])}
    return seen_by_hand(attention.Seen, train=trained, test=test, until=until)


def test_values_of_attention_by_hand():
    values = {
        "attention-needed": 0.15, "layer-0-alone-fails": 0.35, "layer-1-alone-suffices": 0.95,
        "softmax-not-needed": 0.9, "softmax-sooner": 0.375,
    }  # fmt: skip
    assert values_of(attention.STUDY, of_attention(FITTED)) == pytest.approx({"fits": 0.96, **values})
    none_fits = values_of(attention.STUDY, of_attention({**FITTED, LINEAR: (0.94, 0.5)}))
    assert none_fits == pytest.approx({"fits": 0.96, **values, "softmax-not-needed": None})
    unfit = judged(attention.STUDY, of_attention({**FITTED, IN_1: (0.9, 0.97)}))
    assert unfit == {"fits": pytest.approx(0.935), **dict.fromkeys(values)}


def test_learning_lasts_until_the_accuracy_is_reached_or_to_the_end():
    one = attention.experiments(SETTING)[LINEAR]
    found = attention.Seen.until.read(run_ending(one, [1.0, 0.89], [1.0, 1.0], before=(0.0, 0.8)))
    half, whole = one.steps / 2, one.steps
    assert found.tolist() == pytest.approx([half + (whole - half) / 2, whole])


def test_models_differ_in_attention_alone_and_the_first_is_the_identity_study_s():
    found = attention.experiments(SETTING)
    assert found[SOFTMAX].cell == identity.experiment(SETTING).cell
    kinds = [one.model.attention for one in found.values()]
    assert kinds == ["softmax", "linear", "uniform", ("uniform", "softmax"), ("softmax", "uniform")]
    assert {replace(one, model=SETTING.model).cell for one in found.values()} == {found[SOFTMAX].cell}


def of_splits(test, train=((1.0, 0.96), (1.0, 1.0)), in_range=(0.0, 0.02)):
    both = {name: dict(zip((RANGE, RESIDUE), map(torch.tensor, rows), strict=True)) for name, rows in test.items()}
    trained = dict(zip((RANGE, RESIDUE), map(torch.tensor, train), strict=True))
    answers = {RANGE: torch.tensor(in_range), RESIDUE: torch.full((2,), 9.0)}
    return seen_by_hand(range_split.Seen, train=trained, test=both["test"], in_range=answers)


def test_values_of_splits_by_hand():
    values = values_of(range_split.STUDY, of_splits({"test": ((0.0, 0.1), (1.0, 0.9))}))
    assert values == pytest.approx({"fits": 0.98, "range-fails": 0.05, "residue-works": 0.9, "never-said": 0.01})
    unfit = judged(range_split.STUDY, of_splits({"test": ((0.0, 0.1), (1.0, 0.9))}, train=((1.0, 1.0), (0.9, 0.94))))
    assert unfit == {"fits": pytest.approx(0.92), "range-fails": None, "residue-works": None, "never-said": None}


def test_the_splits_hold_out_a_range_at_every_place_or_one_residue_of_eight_and_the_second_is_the_identity_study_s():
    by_range, by_residue = range_split.experiments(SETTING).values()
    assert by_residue.cell == identity.experiment(SETTING).cell
    for split, inside in (("train", False), ("test", True)):
        batch = by_range.task.sample(split, 500, seed=0)
        keys = batch.inputs.gather(1, batch.latents["key_positions"][:, :1])
        assert ((keys >= 91) & (keys <= 100)).all() if inside else (keys <= 90).all()
        assert len(batch.latents["key_positions"][:, 0].unique()) == 8


@pytest.mark.untyped  # a hand-made run
def test_answers_are_counted_at_the_last_position_of_the_test_of_each_member(monkeypatch):
    said = torch.tensor([[91, 100, 90, 101], [5, 95, 20, 99]])  # [member sequence]
    output = torch.zeros(2, 4, 9, 201)
    output[:, :, :-1, 95] = 2.0  # before the last position, which is not scored
    output[:, :, -1].scatter_(-1, said.unsqueeze(-1), 1.0)
    monkeypatch.setattr(range_split, "look", lambda ensemble, inputs: {"output": output})

    class Run:
        experiment = range_split.experiments(SETTING)[RANGE]

        def ensemble(self):
            return None

    assert range_split.answers_in_range(Run()).tolist() == [0.5, 0.5]
