import pytest

from anchorlab.studies import study
from anchorlab.studies.anchor.nine_tasks import NAMES, held_out
from anchorlab.tasks import task

ANCHORS = {
    "identity": "anchor/identity",
    "reading comprehension": "anchor/reading-comprehension",
    "classification": "anchor/classification",
    "composite": "anchor/composite",
    "working memory": "anchor/working-memory",
    "synonym": "anchor/synonym",
    "recitation": "anchor/recitation",
    "statistical output": "anchor/statistical",
    "multi-anchor": "anchor/multi-anchor",
}


@pytest.mark.parametrize("profile", ["quick", "paper", "smoke"])
def test_each_experiment_trains_the_task_that_its_place_names(profile):
    experiments = study("anchor/nine-tasks").profiles[profile].experiments()
    assert list(ANCHORS) == list(NAMES)
    for name, experiment in zip(NAMES, experiments, strict=True):
        fields = {"total": 10_000} if name == "synonym" else {}
        assert experiment.task == task(ANCHORS[name], **fields), name
        assert held_out(name) in experiment.task.splits


def test_quick_settings_are_those_of_the_tasks_own_studies():
    def settings(one):
        return one.task, one.model, one.recipe

    def known(name):
        return [settings(one) for one in study(f"anchor/{name}").profiles["quick"].experiments()]

    own = study("anchor/nine-tasks").profiles["quick"].experiments()
    studies = "identity", None, "order", "composite", "working-memory", "synonym", "recitation", "statistical"
    for experiment, of in zip(own, (*studies, "multi-anchor"), strict=True):
        assert of is None or settings(experiment) in known(of), of


@pytest.mark.parametrize(
    ("name", "of"),
    [("order", 2), ("composite", 3), ("working-memory", 4), ("synonym", 5), ("statistical", 7), ("multi-anchor", 8)],
)
def test_paper_runs_are_those_of_the_tasks_own_studies_where_the_paper_trains_one_size(name, of):
    cells = {one.cell.address for one in study(f"anchor/{name}").profiles["paper"].experiments()}
    assert study("anchor/nine-tasks").profiles["paper"].experiments()[of].cell.address in cells
