"""The hand-built circuit, run on sequences: right on all of them, in the least number of layers."""

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import look
from anchorlab.models.model import predict
from anchorlab.tasks import TokenRetrieval
from anchorlab.theory import Flow, least_depth, retrieval_circuit


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 7, 8])
def test_every_query_is_answered_in_the_least_number_of_layers(steps):
    task = TokenRetrieval(chains=3, steps=steps, symbols=3 * (steps + 1) + 2, implicit_curriculum=False)
    model = retrieval_circuit(task)
    assert len(model.blocks) == least_depth(steps, Flow(causal=True, heads=1))
    batch = task.sample("test", 200, 0)
    outputs = predict(model, batch.inputs, batch.positions)
    assert (outputs.argmax(dim=-1) == batch.targets).all()
    assert outputs.gather(-1, batch.targets.unsqueeze(-1)).min() > 0.999  # one-hot, not merely the largest


def test_a_step_on_the_way_is_answered_too():
    task = TokenRetrieval(chains=2, steps=5, symbols=20, asked_steps=(3,))
    batch = task.sample("test", 100, 0)
    model = retrieval_circuit(task)
    assert len(model.blocks) == 3
    assert (predict(model, batch.inputs, batch.positions).argmax(dim=-1) == batch.targets).all()


def test_heads_do_what_they_are_for():
    """D = 3: the token before, then the pair that x_0 begins, then the pair that x_1 begins."""
    task = TokenRetrieval(chains=2, steps=3, symbols=8, implicit_curriculum=False)
    batch = task.sample("test", 50, 0)
    record = look(retrieval_circuit(task), batch.inputs, ["blocks.*.attn.hook_pattern"])
    first, second, third = (record[f"blocks.{layer}.attn.hook_pattern"][0, :, 0] for layer in range(3))
    assert first[:, 1:].diagonal(dim1=1, dim2=2).min() > 0.999
    places = {step.name: step.position for step in task.oracle(batch.inputs).trace}
    rows = torch.arange(50)
    for query, position in enumerate(batch.positions.tolist()):
        assert second[rows, position, places[f"query {query} step 1"]].min() > 0.999
        assert third[rows, position, places[f"query {query} step 2"]].min() > 0.999


def test_several_steps_and_graphs_are_refused():
    with pytest.raises(SpecError, match="asked_steps"):
        retrieval_circuit(TokenRetrieval())
    with pytest.raises(SpecError, match="parents"):
        retrieval_circuit(TokenRetrieval(chains=3, steps=2, parents=((0,), (0, 1)), implicit_curriculum=False))
