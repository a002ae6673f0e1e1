"""A Ray cluster of three nodes that share a store: its runs are those of this machine alone, bit for bit."""

import json
import subprocess
import sys
import threading

import pytest

from anchorlab.engine import Ray, run
from anchorlab.errors import AnchorlabError, IncompleteError, SpecError
from anchorlab.runs import Store
from tests.browser import until
from tests.engine.killed import FOUR, chunks, results
from tests.small_experiments import BREAKING, experiment

pytestmark = pytest.mark.xdist_group("ray")  # one cluster at a time

SLOWED = ("tests.engine.slowed",)


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100 * 2**20})
    for _ in range(2):
        found.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    yield found
    found.shutdown()


@pytest.mark.killed
@pytest.mark.slow
def test_four_experiments_on_three_nodes_of_which_one_dies_leave_the_bytes_of_this_machine(cluster, tmp_path):
    whole, shared = Store(tmp_path / "whole"), Store(tmp_path / "shared")
    run(FOUR, whole, workers=1)
    reports, found = [], []
    on = Ray(cluster.address, SLOWED)

    def train():
        report = lambda status: reports.append(status.done)  # noqa: E731
        found.extend(run(FOUR, shared, on=on, report=report, keep_every=0.0))

    waiting = threading.Thread(target=train)
    waiting.start()
    until(lambda: len(chunks(shared.root, "step-*")) >= 3, 90)
    lost = cluster.list_all_nodes()[-1]
    cluster.remove_node(lost, allow_graceful=False)
    waiting.join(120)
    assert [one.experiment for one in found] == FOUR
    assert results(shared.root) == results(whole.root)
    assert reports[-1] > 0 and reports == sorted(reports)


@pytest.mark.killed
@pytest.mark.slow
@pytest.mark.nightly
def test_chunks_that_fail_are_set_aside_with_their_reasons(cluster, tmp_path):
    good, own, store = experiment(), experiment("own recurrent module"), Store(tmp_path)
    with pytest.raises(IncompleteError, match=r"ZeroDivisionError: it broke"):
        run([good, own, BREAKING], store, on=Ray(cluster.address))
    assert good.cell in store and own.cell in store and BREAKING.cell not in store


@pytest.mark.killed
@pytest.mark.slow
@pytest.mark.nightly
def test_a_study_that_is_terminated_keeps_the_states_of_its_tasks(cluster, tmp_path):
    long = ["--recipe.duration", "1000000", "--recipe.unit", "steps", "--model.width", "8", "--seeds", "0"]
    on = ["--on", "ray", "--address", cluster.address, "--store", str(tmp_path)]
    command = [sys.executable, "-m", "anchorlab", "train", "anchor/identity", *long, *on]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    # before its first step a task has no state to keep
    until(lambda: any(json.loads(note.read_text())[0] for note in tmp_path.rglob("notes/*.json")), 90)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    assert said.splitlines()[-1].startswith("anchorlab: terminated; run the same command again")
    assert "Traceback" not in said
    # Ray ends the task's process with the study, sometimes before the task has removed its older state
    assert 1 <= len(chunks(tmp_path, "step-*")) <= 2


def test_a_cluster_that_is_not_there_is_an_error_in_one_line(tmp_path):
    pytest.importorskip("ray")
    with pytest.raises(AnchorlabError, match=r"^Ray cannot be reached at 127.0.0.1:1: [^\n]* `ray start --head`$"):
        run([experiment()], tmp_path, on=Ray("127.0.0.1:1"))


def test_without_ray_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(SpecError, match=r"^on: ray is not installed; run pip install 'anchorlab\[ray\]'$"):
        run([experiment()], tmp_path, on="ray")
