"""Nine tasks side by side: which experiments they are, and accuracies read from runs made by hand."""

import pytest

from anchorlab.papers.anchor.nine_tasks import NAMES, SMOKE, STUDY, held_out
from anchorlab.studies import study
from anchorlab.tasks import task
from tests.papers.hand_made_runs import HandMadeRun, values_of

ANCHORS = {
    "identity": "anchor/identity", "reading comprehension": "anchor/reading-comprehension",
    "classification": "anchor/classification", "composite": "anchor/composite",
    "working memory": "anchor/working-memory", "synonym": "anchor/synonym", "recitation": "anchor/recitation",
    "statistical output": "anchor/statistical", "multi-anchor": "anchor/multi-anchor",
}  # fmt: skip


@pytest.mark.parametrize("profile", ["quick", "paper", "smoke"])
def test_each_experiment_trains_the_task_that_its_place_names(profile):
    experiments = study("anchor/nine-tasks").experiments_of(profile)
    assert list(ANCHORS) == list(NAMES)
    for name, experiment in zip(NAMES, experiments, strict=True):
        fields = {"total": 10_000} if name == "synonym" else {}
        assert experiment.task == task(ANCHORS[name], **fields), name
        assert held_out(name) in experiment.task.splits


def test_quick_settings_are_those_of_the_tasks_own_studies():
    def settings(one):
        # composite's own sequences are nested, since it compares two amounts of data
        return one.task, one.model, one.recipe.replace(data=one.recipe.data.replace(nested=False))

    def known(name):
        return [settings(one) for one in study(f"anchor/{name}").experiments_of("quick")]

    own = study("anchor/nine-tasks").experiments_of("quick")
    studies = "identity", None, "order", "composite", "working-memory", "synonym", "recitation", "statistical"
    for experiment, of in zip(own, (*studies, "multi-anchor"), strict=True):
        assert of is None or settings(experiment) in known(of), of


def runs(test, data, pairs, train):
    """Runs of one member: `test` rises by 0.005 from task to task, `data` and `pairs` are composite's and synonym's."""
    made = []
    for at, (name, experiment) in enumerate(SMOKE.items()):
        values = {("train", "accuracy"): train[at]}
        if "test" in experiment.task.splits:
            values["test", "accuracy"] = test + 0.005 * at
        else:
            values |= {("test on data", "accuracy"): data[name], ("test on task", "accuracy"): pairs[name]}
        made.append(HandMadeRun(experiment, (0, 2), {key: [[0.0, value]] for key, value in values.items()}))
    return made


def test_values_inside_and_outside_the_bands_and_curves():
    # every task has its own number; other splits of the same task have others
    pairs = {"composite": 0.92, "synonym": 0.98}
    train = [1.0, 1.0, 1.0, 0.991, 1.0, 1.0, 0.995, 1.0, 1.0]
    found = STUDY.see(runs(0.955, {"composite": 0.96, "synonym": 0.951}, pairs, train), SMOKE)
    own = {
        "classification": 0.965, "composite": 0.96, "working-memory": 0.975, "synonym": 0.951, "recitation": 0.985,
        "statistical-output": 0.99,
    }  # fmt: skip
    fitted = {f"{name}-fitted": 1.0 for name in own} | {"composite-fitted": 0.991, "recitation-fitted": 0.995}
    assert values_of(STUDY, found) == pytest.approx({**own, **fitted})
    poor = STUDY.see(
        runs(
            0.9, {"composite": 0.94, "synonym": 0.949}, {"composite": 1.0, "synonym": 0.7}, [1, 1, 1, 1, 0.98, *[1] * 4]
        ),
        SMOKE,
    )
    found = values_of(STUDY, poor)
    assert found["working-memory-fitted"] == pytest.approx(0.98)
    judged = STUDY.judge(poor, "quick")
    assert [one.claim.id for one in judged if one.verdict == "not measured"] == ["anchor/nine-tasks/working-memory"]
    made = runs(0.5, {"composite": 0.6, "synonym": 0.7}, {"composite": 0.1, "synonym": 0.2}, [0.9] * 9)
    found = STUDY.analysis(made, SMOKE)
    accuracy, loss = found.figures
    assert [(one.label, one.mean[-1]) for one in accuracy.lines][:4] == [
        ("identity", 0.5), ("reading comprehension", 0.505), ("classification", 0.51), ("composite", 0.6),
    ]  # fmt: skip
    assert accuracy.lines[0].x == (0, 100)
    assert {one.mean[-1] for one in loss.lines} == {9}
    third, fourth = found.tables[0].rows[2:4]
    assert third == ("classification", 200, 2, 1, *map(pytest.approx, (0.9, 0.51, 0.51)), None)
    assert fourth == ("composite", 200, 2, 1, *map(pytest.approx, (0.9, 0.6, 0.6, 0.1)))
