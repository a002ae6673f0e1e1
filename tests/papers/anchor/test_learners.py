"""How much data each learner needs, on runs and curves made by hand."""

from dataclasses import replace

import pytest
import torch

from anchorlab.papers.anchor import identity
from anchorlab.papers.anchor.identity import Curve
from anchorlab.papers.anchor.learners import QUICK, STUDY, Learners, Seen, experiments, needed
from anchorlab.papers.anchor.settings import paper_recipe
from tests.papers.hand_made_runs import judged, results_of, run_ending, seen_by_hand, student, values_of

SIZES = (200, 600, 1000)
FITTED = [[1.0, 1.0]] * 3


def made(test, train=FITTED, sizes=SIZES) -> Curve:
    return Curve(sizes, torch.tensor(test), torch.tensor(train))


def three(**changes: Curve) -> Seen:
    by_hand = {
        "decoder": made([[0.1, 0.3], [0.92, 1.0], [1.0, 1.0]]),
        "lstm": made([[0.1, 0.1], [0.8, 0.9], [0.9, 1.0]]),
        "fnn": made([[0.0, 0.0], [0.0, 0.04], [0.01, 0.01]]),
    }
    return seen_by_hand(Seen, whole=by_hand | changes, start=None)


def start(test, train=FITTED) -> Seen:
    return seen_by_hand(Seen, whole={}, start=made(test, train))


def test_a_learner_needs_the_smallest_size_whose_mean_is_enough_if_it_learned():
    assert needed(SIZES, torch.tensor([[0.0, 0.0], [0.8, 1.0], [1.0, 1.0]])) == 600
    assert needed(SIZES, torch.tensor([[0.0, 0.0], [0.8, 0.9], [1.0, 1.0]])) == 1000
    assert needed(SIZES, torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.5, 0.5]])) is None
    never = made([[0.0, 0.0]] * 3)
    assert values_of(STUDY, three(lstm=never))["lstm-needs-more"] is None
    assert values_of(STUDY, three(decoder=never))["lstm-needs-more"] is None
    unfitted = three(fnn=made([[0.0, 0.0]] * 3, train=[[1.0, 1.0], [1.0, 0.9], [1.0, 1.0]]))
    assert judged(STUDY, unfitted)["fnn-never"] is None
    assert values_of(STUDY, unfitted)["fits"] == pytest.approx(0.95)


@pytest.mark.slow
def test_values_of_three_learners_made_by_hand():
    # the feed-forward network at the size with the highest mean
    expected = {"lstm-enough": 0.95, "lstm-needs-more": 1000 / 600, "fnn-never": 0.02, "fits": 1.0}
    assert values_of(STUDY, three()) == pytest.approx({"start-enough": None} | expected)
    unfitted = [[1.0, 1.0], [1.0, 0.97], [1.0, 1.0]]
    outside = three(
        decoder=made([[0.5, 0.5], [0.78, 1.0], [1.0, 1.0]]),
        lstm=made([[0.1, 0.1], [1.0, 1.0], [0.78, 1.0]], unfitted),
        fnn=made([[0.1, 0.12], [0.0, 0.04], [0.01, 0.01]]),
    )
    found = values_of(STUDY, outside)
    expected = {"lstm-enough": 0.89, "lstm-needs-more": 600 / 1000, "fnn-never": 0.11, "fits": 0.985}
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_a_seed_is_one_unit_and_the_ratio_is_of_the_seeds_that_both_have():
    found = results_of(
        STUDY, three(decoder=made([[0.1, 0.3, 0.0], [0.92, 1.0, 0.9], [1.0, 1.0, 1.0]], [[1.0] * 3] * 3))
    )
    assert found["lstm-needs-more"].value == pytest.approx(1000 / 600)
    assert found["lstm-needs-more"].units == pytest.approx((1000 / 600, 600 / 600))  # of the seeds that both have
    assert found["lstm-needs-more"].interval == student(1000 / 600, 1000 / 600, 1)
    # eight more seeds of the transformer, which fail at 600, would make it need 1000, and the ratio 1
    alone = made([[0.1] * 10, [0.92, 1.0, *[0.1] * 8], [1.0] * 10], [[1.0] * 10] * 3)
    found = results_of(STUDY, three(decoder=alone))["lstm-needs-more"]
    assert found.value == pytest.approx(1000 / 600)
    assert found.interval[0] <= found.value <= found.interval[1]
    late = made([[0.1] * 10, [0.1, 0.1, *[1.0] * 8], [0.1, 0.1, *[1.0] * 8]], [[1.0] * 10] * 3)
    assert results_of(STUDY, three(decoder=late))["lstm-needs-more"].value is None


def test_values_of_first_epochs_made_by_hand():
    found = values_of(STUDY, start([[0.2, 0.4], [0.9, 1.0], [0.8, 1.0]]))
    assert {name: value for name, value in found.items() if value is not None} == pytest.approx({"start-enough": 0.95})
    (early,) = (one for one in STUDY.judge(start([[0.2, 0.4], [0.78, 1.0], [1.0, 1.0]]), "paper-start") if one.apart)
    assert (early.value, early.scope, early.agrees) == (pytest.approx(0.89), "own", False)


def test_paper_profiles_are_the_papers_and_the_transformer_is_the_identity_studys():
    paper = STUDY.experiments_of("paper")
    assert [one.model.kind for one in paper[::22]] == ["decoder", "lstm", "fnn"]
    for kind in range(3):
        sizes = [one.recipe.data.size for one in paper[22 * kind : 22 * kind + 22]]
        # The names of the folders that the paper's code published its results in.
        fine = [200, 250, 300, 350, 400, 450, 500, 550, 600, 650, 700, 750, 800]
        assert sizes == [*fine, 1000, 1200, 1400, 1600, 1800, 2000, 2200, 2400, 2600]
    assert {len(one.members) for one in paper} == {10}
    assert all(one.recipe == paper_recipe(one.recipe.data.size) for one in paper)
    beginning = STUDY.experiments_of("paper-start")
    assert [(one.recipe.data.size, one.recipe.duration) for one in beginning] == [
        (n, 400) for n in (300, 400, 500, 600)
    ]
    assert all(one.model == paper[0].model for one in beginning)
    quick, shared = STUDY.experiments_of("quick"), identity.STUDY.experiments_of("quick")
    assert [one.cell.address for one in quick[: len(shared)]] == [one.cell.address for one in shared]
    assert {one.recipe.data.size for one in quick[len(shared) :]} == {one.recipe.data.size for one in shared}


def hand_made(setting: Learners, test):
    """A run of one member for every experiment, with its final test accuracy by kind of model and train size."""
    return [
        run_ending(one, [test[one.model.kind, one.recipe.data.size]], [0.99], before=(0.0, 0.7))
        for one in experiments(setting).values()
    ]


def test_curves_take_each_learners_runs_by_size():
    one_seed = [replace(one, seeds=1) for one in (QUICK.shared.transformer, *QUICK.learners)]
    setting = Learners(tuple(one_seed), (600, 200))  # the larger size first
    values = {
        (kind, size): value
        for kind, pair in {"decoder": (1.0, 0.75), "lstm": (0.5, 0.25), "fnn": (0.125, 0.0)}.items()
        for size, value in zip((600, 200), pair, strict=True)
    }
    runs = hand_made(setting, values)
    found = STUDY.see(runs, setting).whole
    assert list(found) == ["decoder", "lstm", "fnn"]
    assert {curve.sizes for curve in found.values()} == {(200, 600)}
    assert found["decoder"].test.tolist() == [[0.75], [1.0]]
    assert found["lstm"].test.tolist() == [[0.25], [0.5]]
    assert found["fnn"].test.tolist() == [[0.0], [0.125]]
    assert found["fnn"].train.tolist() == [[pytest.approx(0.99)], [pytest.approx(0.99)]]
    needs, sizes = STUDY.analysis(runs, setting).tables
    assert needs.rows[0] == ("transformer", 1, 600, 1.0, pytest.approx(0.99))
    assert needs.rows[1] == ("LSTM", 1, None, 0.5, pytest.approx(0.99))
    assert sizes.rows[2] == ("LSTM", 200, 0.25, 0.25, 0.25, pytest.approx(0.99))


def test_runs_of_the_transformer_alone_are_first_epochs():
    setting = STUDY.profile("paper-start").setting
    setting = replace(setting, learners=(replace(setting.learners[0], seeds=1),), sizes=(300, 600))
    runs = hand_made(setting, {("decoder", 300): 0.25, ("decoder", 600): 0.5})
    seen = STUDY.see(runs, setting)
    assert not seen.whole
    assert seen.start.test.tolist() == [[0.25], [0.5]]
    made = STUDY.analysis(runs, setting)
    assert made.tables[0].columns == ("epoch", "300 sequences", "600 sequences")
    assert made.tables[0].rows[-1][1:] == (0.25, 0.5)
    assert made.figures[0].lines[1].mean == (0.0, pytest.approx(0.7), 0.5)


def test_both_rules_of_drawing_keys_are_reported_seed_by_seed():
    setting = STUDY.profile("paper-start-keys").setting
    assert [one.task.separation.rule for one in experiments(setting).values()] == ["modular_residue", "moving_keys"]
    assert all(one.recipe == paper_recipe(500, 400, every=50) for one in experiments(setting).values())
    assert {len(one.members) for one in experiments(setting).values()} == {4}
    one_seed = replace(setting, learners=(replace(setting.learners[0], seeds=1),))
    fixed, moving = hand_made(one_seed, {("decoder", 500): 0.25})
    moving = run_ending(moving.experiment, [0.75], [0.99], before=(0.0, 0.7))
    made = STUDY.analysis([fixed, moving], one_seed)
    assert made.tables[0].rows == ((1000, 0.25, 0.75),)
    assert [line.mean[-1] for line in made.figures[0].lines] == [0.25, 0.75]
    assert made.tables[0].columns[1:] == tuple(line.label for line in made.figures[0].lines)
    assert set(values_of(STUDY, made.seen).values()) == {None}
