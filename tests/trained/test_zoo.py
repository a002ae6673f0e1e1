"""The zoo: every shipped run opens, names its study, repeats its accuracy, and reading it writes nothing."""

import time
from dataclasses import replace

import pytest
import torch

import anchorlab as al
from anchorlab.errors import SpecError, StoreError
from anchorlab.papers.words import words
from anchorlab.runs import Store
from anchorlab.studies.seeds import SEARCHED
from anchorlab.trained.zoo import ROOT
from anchorlab.training.evaluation import Evaluator

ROWS = {row["name"]: row for row in al.zoo().iter_rows(named=True)}


def folder():
    """The size and the time of every file and folder of the zoo."""
    found = [ROOT, *sorted(ROOT.rglob("*"))]
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in found}


@pytest.fixture(autouse=True)
def nothing_is_written():
    before = folder()
    yield
    assert folder() == before


def test_the_zoo_has_models_of_sixteen_tasks_in_twelve_megabytes_and_columns_as_documented():
    assert len(ROWS) >= 16 and set(ROWS) <= set(words()["tasks"])
    assert {name.partition("/")[0] for name in ROWS} == {"anchor", "associative", "classics", "recall", "retrieval"}
    assert sum(path.stat().st_size for path in ROOT.rglob("*") if path.is_file()) <= 12_000_000
    assert len(Store(ROOT).runs()) == len(ROWS) and sum(row["checkpoints"] == 8 for row in ROWS.values()) >= 3
    for name, row in ROWS.items():
        assert row["MB"] == pytest.approx(al.zoo(name).run.size / 1e6, abs=0.003)  # the manifest comes on top
    columns = ("name", "study", "model", "members", "checkpoints", "split", "accuracy", "loss", "weights", "MB")
    assert al.zoo().columns == [*columns]
    assert all(f"`{column}`" in al.zoo.__doc__ for column in columns)


def published(name):
    """The experiment of the run's study with the run's members; of a training without a study, the run's own."""
    run, study = al.zoo(name).experiment, ROWS[name]["study"]
    if study is None:
        return run
    whole = [one for one in al.study(study).experiments_of("quick") if len(one.members) >= len(run.members)]
    (found,) = {
        one.cell.address: one for one in (one.take(range(len(run.members))) for one in whole) if one == run
    }.values()
    return found


@pytest.mark.parametrize("name", ROWS)
def test_a_run_repeats_the_accuracy_that_its_training_recorded(name):
    """On the sequences of the evaluation, member by member. Losses may have changed where weights were rounded."""
    run, row, one = al.zoo(name), ROWS[name], published(name)
    assert one.task.name in (name, "")
    assert (len(one.members), len(run.checkpoints)) == (row["members"], row["checkpoints"])
    assert run.run.problems() == [] and not set(one.members.seeds) & set(SEARCHED)
    asked = one.recipe.evaluation.replace(splits=(row["split"],), edits={})
    evaluator = Evaluator(one.task, asked, one.members, torch.device("cpu"), torch.float32)
    recorded = {
        (member, metric): value
        for member, step, split, group, edit, metric, value in run.metrics.drop("seed").rows()
        if (step, split, group, edit) == (run.checkpoints[-1], row["split"], "all", "none")
    }
    measured = {
        (one.member, one.metric): one.value for one in evaluator.measure(run.ensemble(), 0) if one.group == "all"
    }
    exact = [key for key in recorded if row["weights"] == "float32" or key[1] == "accuracy"]
    assert [measured[key] for key in exact] == pytest.approx([recorded[key] for key in exact], abs=1e-5)
    assert measured == pytest.approx(recorded, rel=0.02, abs=0.01)
    for metric in {"accuracy", "loss"} & {metric for _, metric in recorded}:
        mean = sum(value for key, value in recorded.items() if key[1] == metric) / row["members"]
        assert row[metric] == pytest.approx(mean)


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name]["accuracy"] is not None])
def test_a_run_answers_as_the_oracle_does(name):
    """On fresh sequences, within what their number leaves to chance."""
    run, row = al.zoo(name), ROWS[name]
    batch = run.experiment.task.sample(row["split"], 400, seed=7)
    answers = run.experiment.task.oracle(batch.inputs).answers
    answers = answers.argmax(dim=-1) if answers.is_floating_point() else answers  # of a distribution the likeliest
    said = al.look(run, batch.inputs, positions=batch.positions)["output"].argmax(dim=-1)
    right = (said.reshape(row["members"], *answers.shape) == answers).float()
    assert float(right.mean()) == pytest.approx(row["accuracy"], abs=0.05)


def test_a_misspelled_name_is_an_error_with_the_nearest_one():
    with pytest.raises(SpecError, match=r"^name: unknown model of the zoo 'anchor/identty'; did you mean 'anchor/ide"):
        al.zoo("anchor/identty")


def test_opening_takes_less_than_a_second():
    al.zoo("anchor/frequency").ensemble()  # imports
    began = time.process_time()
    al.zoo("anchor/identity").ensemble()
    assert time.process_time() - began < 1


def test_the_store_is_read_like_any_other_and_cannot_be_written():
    store = Store(ROOT)
    assert {entry.name for entry in store.select("test.accuracy>0.99", "layers=2")} >= {"anchor/identity"}
    assert set(store.metrics("task.name=anchor/identity")["seed"]) == {1000, 1001, 1002}
    run = al.zoo("anchor/identity")
    longer = replace(run.experiment, recipe=run.experiment.recipe.replace(duration=700))
    for write in (
        lambda: store.open(longer.cell).__enter__(),
        lambda: store.remove(run.run.address),
        lambda: al.train("anchor/identity", store=ROOT),
    ):
        with pytest.raises(StoreError, match=r"this store is read-only; name another one$"):
            write()
