"""The second control of anchor functions."""

import pytest
import torch

from anchorlab.papers.anchor.reading_comprehension.study import first_pair
from anchorlab.papers.anchor.settings import mirrored
from anchorlab.studies import study
from anchorlab.studies.control import other_experiments
from anchorlab.tasks import task
from anchorlab.training import Experiment, FixedSample, Members, Recipe
from tests.studies.test_control import MODEL


@pytest.mark.parametrize(
    ("name", "sequence", "after", "before"),
    [
        ("anchor/identity", (25, 66, 3, 90, 99, 26, 24, 59, 96), 90, 66),
        ("anchor/two-distances", (25, 66, 3, 90, 99, 26, 24, 59, 96), 90, 66),
        ("anchor/two-distances", (25, 66, 4, 90, 99, 26, 24, 59, 96), 99, 25),
        ("anchor/two-distances", (25, 66, 27, 90, 99, 4, 24, 59, 96), 59, 90),
    ],
)
def test_the_key_is_as_far_before_its_anchor_as_it_was_after(name, sequence, after, before):
    own = Experiment(task(name), MODEL, Recipe(data=FixedSample(size=50)), Members(seeds=(0,)))
    inputs = torch.tensor([sequence])
    assert int(own.task.oracle(inputs).answers[0, -1]) == after
    assert int(mirrored(own).oracle(inputs).answers[0, -1]) == before
    assert mirrored(own).shape == own.task.shape


def test_the_first_pair_is_answered_whatever_is_asked():
    recipe = Recipe(data=FixedSample(size=50))
    own = Experiment(task("anchor/reading-comprehension"), MODEL, recipe, Members(seeds=(0,)))
    inputs = torch.tensor([(2, 41, 6, 91, 1, 85, 8, 55, 6)])
    assert int(own.task.oracle(inputs).answers[0, -1]) == 91
    assert int(first_pair(own).oracle(inputs).answers[0, -1]) == 41


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
