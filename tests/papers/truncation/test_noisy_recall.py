"""What the studies of noisy recall share: their settings, and the numbers they read from runs."""

import pytest

from anchorlab.papers.truncation.noisy_recall import (
    FIVE,
    FULL,
    PAPER,
    QUICK,
    SMOKE,
    WITHOUT_F1,
    WITHOUT_F2,
    noisy_and_tuned,
    truncations,
)
from anchorlab.studies import study
from anchorlab.tasks import task

NAMES = ("feedforward-noise", "noise-first", "avoided-noise", "memories", "feedforward-choices")


@pytest.mark.parametrize("profile", ["quick", "paper", "smoke"])
def test_what_several_studies_ask_for_is_trained_once(profile):
    of_each = [study(f"truncation/{name}").experiments_of(profile) for name in NAMES]
    assert len({experiments[0].cell.address for experiments in of_each}) == 1
    first, avoided = (study(f"truncation/{name}").experiments_of(profile) for name in NAMES[1:3])
    assert [one.cell.address for one in first] == [one.cell.address for one in avoided]
    every = {experiment.cell.address for experiments in of_each for experiment in experiments}
    assert len(every) == 1 + 1 + 1 + 3  # noisy, fine-tuned, five triggers, three other choices of layers


def test_the_paper_profile_is_the_papers():
    experiment = PAPER.experiment()
    law, model, recipe = experiment.task, experiment.model, experiment.recipe
    assert (law.length, law.alpha, law.scored, law.noise, law.width) == (256, 0.5, "last", "appended", 1)
    assert (model.width, model.factored_values) == (256, False)
    assert (recipe.batch, recipe.duration, recipe.optimiser.learning_rate) == (512, 2000, 0.03)
    assert PAPER.experiment(feed_forward=("none", "none")).model.factored_values


def test_fine_tuning_starts_from_a_training_without_noise():
    noisy, tuned = noisy_and_tuned(QUICK)
    assert (noisy.task.alpha, tuned.task.alpha, tuned.start.task.alpha) == (0.5, 0.5, 0.0)
    recipes = [one.recipe for one in (noisy, tuned, tuned.start)]
    assert (
        [one.duration for one in recipes]
        == [one.schedule.horizon for one in recipes]
        == [QUICK.recipe.duration, 600, 600]
    )
    for one in recipes:  # the range of appendix A.5
        assert 0.001 <= one.optimiser.learning_rate * one.schedule.end <= one.optimiser.learning_rate <= 0.03
    assert noisy.start is None
    assert tuned.start.start is None


def test_the_triggers_are_the_characters_that_the_paper_names():
    characters = task("recall/noisy")
    assert [characters.text_of(token) for token in FIVE] == ["space", "a", "e", "o", "t"]
    assert QUICK.experiment(triggers=FIVE).task.max_scored == 2 * QUICK.experiment().task.max_scored == 24


@pytest.mark.parametrize("first", ["mlp", "linear", "none"])
@pytest.mark.parametrize("second", ["mlp", "linear", "none"])
def test_every_layer_that_is_there_is_dropped(first, second):
    edits = truncations((first, second))
    assert (WITHOUT_F1 in edits) == (first != "none")
    assert (WITHOUT_F2 in edits) == (second != "none")
    assert edits
    assert FULL not in edits
    SMOKE.experiment(feed_forward=(first, second))  # and the edits fit the model


@pytest.mark.parametrize("name", [*NAMES, "stability"])
def test_every_profile_says_that_scores_are_divided(name):
    """The paper prints x W_KQ xᵀ alone."""
    found = study(f"truncation/{name}")
    for profile in {*found.profiles} - {"smoke"}:
        assert {one.model.scale_scores for one in found.experiments_of(profile)} == {True}
        assert "divided by the root of the width" in found.profile(profile).note
