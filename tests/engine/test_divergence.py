"""A member whose learning rate is absurd diverges beside a healthy one, and that is said once."""

import warnings

import pytest

from anchorlab.engine import run
from anchorlab.errors import DivergedWarning
from anchorlab.training import Evaluation, Members
from tests.small_experiments import SAMPLE, experiment

RECIPE = SAMPLE.replace(precision="float32", duration=6, evaluation=Evaluation(every=3, size=8))


def asked(rates, seeds, **changes):
    return experiment(recipe=RECIPE.replace(**changes), members=Members(seeds=seeds, learning_rate=rates))


@pytest.mark.parametrize("execution", ["member", "mapped"])
def test_a_run_names_its_members_and_one_warning_says_so(tmp_path, execution):
    one = asked((1e30, 1e-3), (7, 4))
    with pytest.warns(DivergedWarning) as told:
        (found,) = run([one], tmp_path, workers=1, execution=execution)
    assert found.diverged == {0: 3}
    assert [str(each.message) for each in told] == [
        f"diverged (metrics are not finite): {found.run.label} ({found.run.address}): seed 7 by step 3;"
        " lower the learning rate or clip"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run([one], tmp_path)[0].diverged == {0: 3}  # it is read, and was told of before


def test_healthy_members_are_said_nothing_of(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = run([asked((1e-3, 1e-4), (7, 4))], tmp_path, workers=1)
    assert found.diverged == {} and not found.diverged


def test_one_warning_for_runs_that_are_trained_together(tmp_path):
    rates = [1e-3, 1e30, 2e-3, *(2e30 + 1e29 * number for number in range(5))]
    together = [asked((rate,), (number,)) for number, rate in enumerate(rates)]
    with pytest.warns(DivergedWarning) as told:
        found = run(together, tmp_path, workers=1)
    assert [bool(each.diverged) for each in found] == [False, True, False, True, True, True, True, True]
    (text,) = (str(each.message) for each in told)
    assert text.count(" by step 3") == 5 and " and 1 more; lower" in text
