"""A member whose learning rate is absurd diverges beside a healthy one, and that is said once."""

import warnings

import pytest

import anchorlab as al
from anchorlab.engine import run
from anchorlab.engine.run import divergence
from anchorlab.errors import DivergedWarning
from anchorlab.runs import Store
from anchorlab.training import AdamW, Evaluation, Members, Recipe, TrainedRun
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


def test_also_of_runs_that_were_trained_before(tmp_path):
    store, one = Store(tmp_path), asked((1e-3, 1e30), (7, 4))
    with pytest.warns(DivergedWarning):
        run([one], store, workers=1)
    found = TrainedRun(store.open(one.cell))
    label = f"{one.cell.label} ({one.cell.address})"
    assert divergence([found]).startswith(f"diverged (metrics are not finite): {label}: seed 4 by step 3;")
    assert found.diverged == {1: 3}


def test_train_warns_of_members_in_python(tmp_path):
    recipe = Recipe(data={"kind": "sample", "size": 20}, optimiser=AdamW(1e30), batch=10, duration=4)
    with pytest.warns(DivergedWarning, match="anchor/identity .*: seed 0 by step .*, seed 1 by step"):
        found = al.train("anchor/identity", "recall", recipe.replace(clip=None), seeds=2, store=tmp_path)
    assert set(found.diverged) == {0, 1}
