"""The second control of anchor functions, and what notes say of batches."""

import re

import pytest
import torch

from anchorlab.papers.anchor.reading_comprehension.reading_comprehension import first_pair
from anchorlab.papers.anchor.settings import mirrored
from anchorlab.studies import STUDIES, study
from anchorlab.studies.control import other_experiments
from anchorlab.tasks import task
from anchorlab.training import Experiment, FixedSample, Members, Recipe
from tests.studies.test_control import MODEL


@pytest.mark.parametrize(
    ("name", "other", "sequence", "right", "instead"),
    [
        ("anchor/identity", mirrored, (25, 66, 3, 90, 99, 26, 24, 59, 96), 90, 66),
        ("anchor/two-distances", mirrored, (25, 66, 3, 90, 99, 26, 24, 59, 96), 90, 66),
        ("anchor/two-distances", mirrored, (25, 66, 4, 90, 99, 26, 24, 59, 96), 99, 25),
        ("anchor/two-distances", mirrored, (25, 66, 27, 90, 99, 4, 24, 59, 96), 59, 90),
        ("anchor/reading-comprehension", first_pair, (2, 41, 6, 91, 1, 85, 8, 55, 6), 91, 41),
    ],
)
def test_the_key_is_as_far_before_its_anchor_or_the_first_pair_is_answered(name, other, sequence, right, instead):
    own = Experiment(task(name), MODEL, Recipe(data=FixedSample(size=50)), Members(seeds=(0,)))
    inputs = torch.tensor([sequence])
    assert int(own.task.oracle(inputs).answers[0, -1]) == right
    assert int(other(own).oracle(inputs).answers[0, -1]) == instead
    assert other(own).shape == own.task.shape


@pytest.mark.parametrize(
    "name", ["identity", "mechanism", "two-distances", "simplified", "working-memory", "reading-comprehension"]
)
def test_studies_of_heads_and_mechanisms_train_another_task_beside_their_model(name):
    found = study(f"anchor/{name}")
    for profile in {*found.profiles} - {"paper-600"}:  # a curve alone, without heads to look at
        own, (other,) = found.experiments_of(profile)[-1], other_experiments(found, profile).values()
        assert (other.model, other.recipe, other.members) == (own.model, own.recipe, own.members)
        assert (other.task.shape, other.task.vocabulary) == (own.task.shape, own.task.vocabulary)
        assert other.task.rules != own.task.rules


APPENDIX_A = {"decoder": 100, "lstm": 10, "fnn": 10}
"""The batches that the paper's appendix A prints, by learner."""

OTHER_SOURCES = {"anchor/phase-diagram", "anchor/every-token", "anchor/open-questions"}
"""Studies of later works, and of questions in which the batch itself is varied."""

WITHIN = r"(?:[^.]|\.\d)*"
"""Anything within a sentence, in which a full stop ends no number such as 4.2."""

PAPER_PROFILES = [
    (name, profile)
    for name in STUDIES
    if name.startswith("anchor/") and name not in OTHER_SOURCES
    for profile in study(name).profiles
    if profile.startswith("paper")
]


@pytest.mark.parametrize(("name", "profile"), PAPER_PROFILES)
def test_the_papers_profiles_say_which_batches_they_take_and_why(name, profile):
    """Where a batch is not that of appendix A, the note names its source and what appendix A has."""
    note = study(name).note_of(profile)
    batches = {(one.model.kind, one.recipe.batch) for one in study(name).experiments_of(profile)}
    for kind, batch in batches:
        assert re.search(rf"[Bb]atch{WITHIN}\b{batch}\b", note), batch
        assert "appendix A" in note
        if batch != APPENDIX_A[kind]:
            assert re.search(
                rf"\b{APPENDIX_A[kind]}\b{WITHIN}appendix A|appendix A{WITHIN}\b{APPENDIX_A[kind]}\b", note
            )
            assert re.search(rf"\b{batch}\b{WITHIN}(authors' code|authors' logs|section 4\.[23])", note)
    assert "to the digit" not in note


def test_the_learners_are_trained_in_the_batches_of_the_text_and_in_those_of_the_logs():
    learners = study("anchor/learners")
    logs, text = (learners.experiments_of(profile) for profile in ("paper", "paper-text"))
    assert {(one.model.kind, one.recipe.batch) for one in text} == set(APPENDIX_A.items())
    assert {one.recipe.batch for one in logs} == {50}
    assert [(one.model, one.task, one.members) for one in logs] == [(one.model, one.task, one.members) for one in text]
    assert all(own.recipe == other.recipe.replace(batch=50) for own, other in zip(logs, text, strict=True))
    assert all(learners.profile("paper-text").is_papers_setting(one.name) for one in learners.claims)
