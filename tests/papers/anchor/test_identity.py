"""The identity study, on runs made by hand."""

from dataclasses import replace

import pytest
import torch

from anchorlab.papers.anchor import identity
from tests.papers.hand_made_models import two_layers
from tests.papers.hand_made_runs import judged, run_ending, seen_by_hand, values_of, verdicts_of

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
    assert values_of(identity.STUDY, identity.STUDY.see(runs(), SIZES)) == {
        "enough-data": pytest.approx(0.95),
        "little-data": pytest.approx(0.2),
        "fits": pytest.approx(0.985),
        "shift-by-one": 0.5,  # a head that attends to its own position shifts by 0
        "shift-mass": pytest.approx(0.5),
        "broadcast-from-key": 0.5,  # one that reads the anchor broadcasts from 0
        "broadcast-mass": pytest.approx(0.5),
    }
    heads = identity.STUDY.see(runs(), SIZES).heads
    assert heads.shift_by.tolist() == [1, 0]
    assert heads.shift_mass.tolist() == pytest.approx([1.0, 0.0])
    assert heads.broadcast_from.tolist() == [1, 0]
    assert heads.to_last.tolist() == pytest.approx([1.0, 0.0])
    assert heads.broadcast_mass.tolist() == pytest.approx([1.0, 0.0])
    assert heads.shift_head.tolist() == heads.broadcast_head.tolist() == [0, 0]


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


def seen(test, train, by, mass, source, to_last, sizes=(200, 600)):
    none = torch.zeros(2, dtype=torch.int64)
    return seen_by_hand(
        identity.Seen,
        curve=identity.Curve(sizes, torch.tensor(test), torch.tensor(train)),
        heads=identity.Heads(
            shift_head=none,
            shift_by=torch.tensor(by),
            shift_mass=torch.tensor(mass),
            broadcast_head=none,
            broadcast_from=torch.tensor(source),
            to_last=torch.tensor(to_last),
            broadcast_mass=torch.full((2,), 9.0),
        ),
    )


def test_verdicts_inside_and_outside_the_bands_where_little_data_are_fitted():
    inside = seen([[0.4, 0.58], [0.9, 0.92]], [[0.991, 1.0], [1.0, 1.0]], [1, 1], [0.6, 0.82], [1, 1], [0.85, 0.97])
    assert set(verdicts_of(identity.STUDY, inside).values()) == {"agrees at small scale"}
    outside = seen([[0.5, 0.52], [0.78, 1.0]], [[0.99, 1.0], [1.0, 0.989]], [1, 2], [0.68, 0.7], [1, 0], [0.8, 0.98])
    assert set(verdicts_of(identity.STUDY, outside).values()) == {"differs at small scale"}
    unfitted = seen([[0.1, 0.1], [1.0, 1.0]], [[0.98, 0.99], [1.0, 1.0]], [1, 1], [1.0, 1.0], [1, 1], [1.0, 1.0])
    assert judged(identity.STUDY, unfitted)["little-data"] is None
    assert values_of(identity.STUDY, unfitted)["little-data"] == pytest.approx(
        0.1
    )  # what untrained members give is shown
    other = values_of(
        identity.STUDY, seen_by_hand(identity.Seen, heads=None, curve=replace(unfitted.curve, sizes=(300, 700)))
    )
    assert other["little-data"] is other["enough-data"] is None


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
