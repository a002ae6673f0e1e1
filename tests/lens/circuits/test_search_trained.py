"""Circuits of trained models, where every path counts."""

import pytest
import torch

import anchorlab as al
from anchorlab.errors import SpecError
from anchorlab.lens import find_circuit
from anchorlab.lens.circuits import AttentionLosses, rule_cells
from anchorlab.models import DecoderSpec
from anchorlab.rng import child_seed
from anchorlab.runs import Store
from anchorlab.tasks import task
from tests.lens.circuits.test_search import ASK, JOIN, check_every_path_is_needed, paths_of


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    recipe = al.Recipe(
        data=al.FixedSample(size=2000),
        optimiser=al.AdamW(learning_rate=3e-3),
        batch=100,
        duration=300,
        evaluation=al.Evaluation(every=300, size=50),  # seldom: it takes as long as the training
    )
    spec = DecoderSpec(layers=2, heads=1, width=32, head_width=32)
    small = task("anchor/identity", items=(20, 60), size=61)
    return al.train(small, spec, recipe, seeds=(1, 2), workers=1, store=Store(tmp_path_factory.mktemp("store")))


@pytest.mark.slow
@pytest.mark.parametrize("member", [0, 1])
def test_a_trained_model_joins_the_key_with_its_anchor_and_reads_it(trained, member):
    one, model = trained.experiment.task, trained.ensemble()
    found = find_circuit(model, one, member=member, sequences=128)
    assert found.heads == ((0, 0), (1, 0)) and found.unexplained == ()
    assert (1, 0, ASK) in paths_of(found)
    batch = one.sample("test", 50, 0)
    roles, length = one.roles(batch), one.shape.length
    joined = rule_cells(JOIN, roles, length)
    first = [rule_cells(path.rule, roles, length, batch.inputs) for path in found.paths if path.layer == 0]
    assert bool((torch.stack(first).any(dim=0) | ~joined).all())  # by role, or as a shift of all
    assert found.loss < found.model_loss + 0.04
    assert found.empty_loss > 20 * (found.model_loss + 0.04) and found.minimality > 20
    search = one.sample("test", 128, child_seed(0, "search"))
    check_every_path_is_needed(found, AttentionLosses(model.select([member]), one, search))


@pytest.mark.slow
def test_a_run_knows_the_task_that_it_learned(trained):
    one = trained.experiment.task
    assert find_circuit(trained, sequences=32) == find_circuit(trained.ensemble(), one, sequences=32)
    remedy = r"leave it out, or give run\.ensemble\(\) to explain the model on another task"
    other = task("anchor/two-distances", items=(20, 60), size=61)
    assert other.shape == one.shape  # so the model could read it
    with pytest.raises(
        SpecError, match=rf"^task: is anchor/two-distances, and the run learned anchor/identity; {remedy}$"
    ):
        find_circuit(trained, other)
    with pytest.raises(SpecError, match="the run learned anchor/identity with other settings; leave"):
        find_circuit(trained, task("anchor/identity", items=(20, 59), size=61))
    with pytest.raises(SpecError, match=r"^task: is missing; give the task that the model was trained on$"):
        find_circuit(trained.ensemble())
