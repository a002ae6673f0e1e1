"""Information flow along chains, and the hand-built circuit that needs no more layers."""

from math import log

import numpy as np
import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import look
from anchorlab.models.model import predict
from anchorlab.tasks import TokenRetrieval
from anchorlab.theory import retrieval_circuit
from anchorlab.theory.information_flow import (
    Flow,
    _next_runs,
    _sees,
    depth_by_runs,
    held_by_layer,
    least_depth,
    lower_bound,
)

FREE, CAUSAL, ONE, CAUSAL_ONE = Flow(), Flow(causal=True), Flow(heads=1), Flow(causal=True, heads=1)


def depth_by_search(steps, causal):
    """A lower bound on the number of layers with one head, over all choices of the position to fetch from.

    The choices are relaxed: each fetch may find any run that some sequence of choices produces at its source.
    """
    runs, depth = [{(i - 1, i)} for i in range(2 * steps + 1)], 0
    while max(high for _, high in runs[0]) < 2 * steps:
        runs = [reachable(runs, i, causal) for i in range(len(runs))]
        depth += 1
    return depth


def reachable(runs, i, causal):
    """The runs that position i may hold after one fetch; one inside another is never more useful."""
    seen = [run for j, others in enumerate(runs) if j != i and (not causal or _sees(i, j)) for run in others]
    found = runs[i] | {
        (min(low, first), max(high, last))
        for low, high in runs[i]
        for first, last in seen
        if first <= high and low <= last
    }
    return {one for one in found if not any(two != one and two[0] <= one[0] and one[1] <= two[1] for two in found)}


@pytest.mark.parametrize("flow", [FREE, CAUSAL], ids=["free", "causal"])
def test_sets_runs_and_closed_form_agree(flow):
    for steps in range(1, 61):
        assert len(held_by_layer(steps, flow.causal)) - 1 == depth_by_runs(steps, flow) == least_depth(steps, flow)


@pytest.mark.parametrize("flow", [FREE, CAUSAL], ids=["free", "causal"])
def test_runs_are_all_that_the_sets_hold(flow):
    for steps in range(1, 21):
        place = np.arange(2 * steps + 1)
        low, high = place - 1, place
        for depth, held in enumerate(held_by_layer(steps, flow.causal)):
            pieces = np.arange(-1, 2 * steps + 1)
            assert (held == ((low[:, None] <= pieces) & (pieces <= high[:, None]))).all()
            low, high = _next_runs(low, high, depth, flow)


@pytest.mark.parametrize("flow", [FREE, CAUSAL, ONE, CAUSAL_ONE], ids=["free", "causal", "one", "causal-one"])
def test_runs_and_closed_form_agree_further_out(flow):
    changes = {base**t // 4 + shift for base in (2, 3) for t in range(2, 13) for shift in (-1, 0, 1)}
    for steps in sorted({one for one in changes if 1 <= one <= 2000} | {777, 1999}):
        assert depth_by_runs(steps, flow) == least_depth(steps, flow)


@pytest.mark.parametrize("causal", [False, True])
def test_no_choices_of_one_head_do_better_and_two_heads_are_as_good_as_all(causal):
    for steps in range(1, 14):
        assert depth_by_search(steps, causal) == least_depth(steps, Flow(causal, heads=1))
    for steps in (1, 5, 40, 300):
        assert depth_by_runs(steps, Flow(causal, heads=2)) == least_depth(steps, Flow(causal))


def test_induction_needs_two_layers_and_three_steps_three():
    """D = 1: the pair is joined first, then the query finds it (Olsson et al., 2022); the bound asks for one alone.

    Section 8.2: "it is possible to use only 3" heads for D = 3, of models with a mask and one head in each layer.
    """
    assert [least_depth(1, flow) for flow in (FREE, CAUSAL, ONE, CAUSAL_ONE)] == [2, 2, 2, 2]
    assert [least_depth(3, flow) for flow in (FREE, CAUSAL, CAUSAL_ONE)] == [3, 3, 3]
    assert (lower_bound(1), lower_bound(3)) == (1, 2)


def test_the_bound_holds_and_is_missed_by_at_most_one():
    for steps in range(1, 10_001):
        assert lower_bound(steps) <= least_depth(steps) <= lower_bound(steps) + 1
        assert lower_bound(steps) >= log(2 * steps, 3) - 1e-9


def test_the_first_layer_by_hand():
    """D = 2 without a mask: s_0 gets e_1 in the first layer and e_4 = x_2 from s_3 in the second."""
    start, first, _ = held_by_layer(2)
    assert start.sum(axis=1).tolist() == [2] * 5  # a symbol and a position each
    assert first[0].tolist() == [True, True, True, False, False, False]  # the query has fetched the first of pair 1
    # behind a mask the second member of a pair hears of the first, which hears of nothing that it shares
    assert held_by_layer(2, causal=True)[1].astype(int).tolist() == [
        [1, 1, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 1, 1, 1, 1, 0], [0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1],
    ]  # fmt: skip


# The hand-built circuit, run on sequences: right on all of them, in the least number of layers.
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 7, 8])
def test_every_query_is_answered_in_the_least_number_of_layers(steps):
    task = TokenRetrieval(chains=3, steps=steps, symbols=3 * (steps + 1) + 2, implicit_curriculum=False)
    model = retrieval_circuit(task)
    assert len(model.blocks) == least_depth(steps, Flow(causal=True, heads=1))
    batch = task.sample("test", 200, 0)
    outputs = predict(model, batch.inputs, batch.positions)
    assert (outputs.argmax(dim=-1) == batch.targets).all()
    assert outputs.gather(-1, batch.targets.unsqueeze(-1)).min() > 0.999  # one-hot, not merely the largest


def test_a_step_on_the_way_is_answered_too_and_heads_do_what_they_are_for():
    task = TokenRetrieval(chains=2, steps=5, symbols=20, asked_steps=(3,))
    batch = task.sample("test", 100, 0)
    model = retrieval_circuit(task)
    assert len(model.blocks) == 3
    assert (predict(model, batch.inputs, batch.positions).argmax(dim=-1) == batch.targets).all()
    # D = 3: the token before, then the pair that x_0 begins, then the pair that x_1 begins.
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


GRAPH = TokenRetrieval(chains=3, steps=2, parents=((0,), (0, 1)), implicit_curriculum=False)
DEPTHS = (lower_bound, least_depth, held_by_layer, depth_by_runs)
REFUSED = [
    *((lambda depth=depth: depth(0), "steps: 0 steps make no chain") for depth in DEPTHS),
    (lambda: Flow(heads=0), "heads: 0 heads fetch nothing"),
    (lambda: retrieval_circuit(TokenRetrieval(steps=2)), r"asked_steps: .*; give one, such as \(2,\)"),
    (lambda: retrieval_circuit(GRAPH), "parents"),
]


@pytest.mark.parametrize(("ask", "message"), REFUSED)
def test_what_is_no_single_chain_is_refused(ask, message):
    with pytest.raises(SpecError, match=message):
        ask()
