import pytest
import torch

from anchorlab.studies import study
from anchorlab.studies.anchor import identity, learners
from anchorlab.studies.anchor.learners import Curve, begin, compare, curves
from anchorlab.studies.anchor.settings import paper_recipe
from anchorlab.training import TrainedRun

SIZES = (200, 600, 1000)
FITTED = [[1.0, 1.0]] * 3


def made(test, train=FITTED, sizes=SIZES) -> Curve:
    return Curve(sizes, torch.tensor(test), torch.tensor(train))


def three(**changes: Curve) -> dict[str, Curve]:
    by_hand = {
        "decoder": made([[0.1, 0.3], [0.9, 1.0], [1.0, 1.0]]),
        "lstm": made([[0.1, 0.1], [0.8, 0.9], [0.9, 1.0]]),
        "fnn": made([[0.0, 0.0], [0.0, 0.04], [0.01, 0.01]]),
    }
    return by_hand | changes


def test_a_learner_needs_the_smallest_size_whose_mean_is_enough():
    assert made([[0.0, 0.0], [0.8, 1.0], [1.0, 1.0]]).needed() == 600
    assert made([[0.0, 0.0], [0.8, 0.9], [1.0, 1.0]]).needed() == 1000
    assert made([[0.0, 0.0], [0.0, 0.0], [0.5, 0.5]]).needed() is None


def test_accuracy_at_a_size():
    curve = made([[0.0, 0.1], [0.8, 1.0], [1.0, 1.0]])
    assert curve.at(600).tolist() == pytest.approx([0.8, 1.0])
    assert curve.at(700) is None


def test_what_three_learners_say():
    measured = compare(three())
    assert measured["transformer-enough"].tolist() == pytest.approx([0.9, 1.0])
    assert measured["lstm-enough"].tolist() == pytest.approx([0.9, 1.0])
    assert measured["lstm-needs-more"].tolist() == pytest.approx([1000 / 600])
    assert measured["fnn-never"].tolist() == pytest.approx([0.0, 0.04])  # the size with the highest mean
    assert measured["fits"].tolist() == [1.0]


def test_nothing_is_said_of_what_was_not_learned():
    never = made([[0.0, 0.0]] * 3)
    assert compare(three(lstm=never))["lstm-needs-more"] is None
    assert compare(three(decoder=never))["lstm-needs-more"] is None
    unfitted = made([[0.0, 0.0]] * 3, train=[[1.0, 1.0], [1.0, 0.9], [1.0, 1.0]])
    measured = compare(three(fnn=unfitted))
    assert measured["fnn-never"] is None
    assert measured["fits"].tolist() == pytest.approx([0.95])


def test_what_the_first_epochs_say():
    test = [[0.2, 0.4], [0.9, 1.0], [0.8, 1.0]]
    measured = begin(made(test, [[1.0, 1.0], [0.99, 1.0], [1.0, 1.0]]))
    assert measured["start-enough"].tolist() == pytest.approx([0.9, 1.0])
    assert measured["start-rises"].tolist() == pytest.approx([-0.05])
    assert measured["start-fits"].tolist() == pytest.approx([0.99])
    unfitted = begin(made(test, [[1.0, 1.0], [0.98, 1.0], [1.0, 1.0]]))
    assert unfitted["start-rises"] is None
    assert unfitted["start-fits"].tolist() == pytest.approx([0.98])


def test_every_claim_is_measured_in_one_of_the_two_ways():
    names = {claim.id.rpartition("/")[2] for claim in learners.CLAIMS}
    assert compare(three()).keys() | begin(made([[0.0, 0.0]] * 3)).keys() == names


def test_paper_profiles_are_the_papers():
    paper = study("anchor/learners").profiles["paper"].experiments()
    assert [one.model.kind for one in paper[::22]] == ["decoder", "lstm", "fnn"]
    for kind in range(3):
        sizes = [one.recipe.data.size for one in paper[22 * kind : 22 * kind + 22]]
        # The names of the folders that the paper's code published its results in.
        fine = [200, 250, 300, 350, 400, 450, 500, 550, 600, 650, 700, 750, 800]
        assert sizes == [*fine, 1000, 1200, 1400, 1600, 1800, 2000, 2200, 2400, 2600]
    assert {len(one.members) for one in paper} == {10}
    assert all(one.recipe == paper_recipe(one.recipe.data.size) for one in paper)
    start = study("anchor/learners").profiles["paper-start"].experiments()
    assert [(one.recipe.data.size, one.recipe.duration) for one in start] == [(n, 400) for n in (300, 400, 500, 600)]
    assert all(one.model == paper[0].model for one in start)


def test_the_transformer_is_the_identity_studys():
    quick = study("anchor/learners").profiles["quick"].experiments()
    shared = identity.quick_experiments()
    assert [one.cell.address for one in quick[: len(shared)]] == [one.cell.address for one in shared]
    assert {one.recipe.data.size for one in quick[len(shared) :]} == {one.recipe.data.size for one in shared}


def test_curves_take_each_learners_runs_by_size(monkeypatch):
    def run(experiment):
        made = object.__new__(TrainedRun)
        made.__dict__["experiment"] = experiment
        return made

    experiments = learners.quick_experiments(sizes=(600, 200), lstm_seeds=1, fnn_seeds=1)
    value = {("lstm", 600): 0.5, ("lstm", 200): 0.25, ("fnn", 600): 0.125, ("fnn", 200): 0.0}

    def accuracy(run, split, metric):
        own = value[run.experiment.model.kind, run.experiment.recipe.data.size]
        return torch.tensor([own if (split, metric) == ("test", "accuracy") else 1.0])

    monkeypatch.setattr(learners, "member_values", accuracy)
    found = curves([run(one) for one in experiments])
    assert list(found) == ["lstm", "fnn"]
    assert found["lstm"].sizes == (200, 600)
    assert found["lstm"].test.tolist() == [[0.25], [0.5]]
    assert found["fnn"].test.tolist() == [[0.0], [0.125]]
    assert found["fnn"].train.tolist() == [[1.0], [1.0]]
