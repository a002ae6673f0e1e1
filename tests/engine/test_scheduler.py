"""Pieces of runs whose chunks other processes change meanwhile."""

from anchorlab.engine import scheduler
from anchorlab.engine.local import Local
from anchorlab.engine.planning import Plan, Plans
from anchorlab.engine.scheduler import Pieces
from anchorlab.papers.anchor.settings import shortened
from anchorlab.runs import Run, Store
from anchorlab.studies.quick import quick_model, quick_recipe
from anchorlab.tasks import task
from anchorlab.training import Experiment, Members


def test_a_chunk_that_another_process_restarts_before_the_merge_is_trained_again(tmp_path, monkeypatch):
    model = quick_model(layers=1).replace(heads=1, width=8)
    recipe = shortened(quick_recipe(2000), steps=2, size=50)
    experiment = Experiment(task("anchor/identity"), model, recipe, Members(seeds=(0, 1)), "two members")
    store, address = Store(tmp_path), experiment.cell.address
    plans = Plans({address: Plan([[0], [1]], 1, "auto")}, [[address]])
    finish, restarted = scheduler.finish, []

    def finish_late(store, experiment, plan):
        if not restarted:
            with store.open(experiment.cell).chunk(1) as chunk:
                chunk.restart()
            restarted.append(1)
        finish(store, experiment, plan)

    monkeypatch.setattr(scheduler, "finish", finish_late)
    Pieces(store, {address: experiment}, plans, "cpu", 20.0, None).train(Local())
    assert restarted and Run(store.root / address).finished
