"""Retrieval of tokens, against chains followed by hand, and solved by a model whose weights are known."""

import numpy as np
import pytest
import torch
from scipy import stats

from anchorlab.errors import SpecError
from anchorlab.models.model import predict
from anchorlab.tasks import TokenRetrieval
from lens.hand_built import induction_circuit


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        ([1, 2, 3], {}),
        ([3], {"implicit_curriculum": False}),
        ([1, 3], {"asked_steps": (1, 3)}),
        ([2], {"asked_steps": "2"}),
    ],
)
def test_layout_of_every_sequence(asked, fields):
    N, D, V = 3, 3, 20
    one = TokenRetrieval(chains=N, steps=D, symbols=V, **fields)
    batch = one.sample("train", 200, 0)
    marked = len(asked) > 1
    assert batch.inputs.shape == (200, N * 2 * D + marked + N)
    assert one.shape.input_size == one.shape.output_size == V + D * marked
    assert batch.groups == tuple(f"step {step}" for step in asked)
    symbols, steps = batch.latents["symbols"].numpy(), batch.latents["step"].tolist()
    assert set(steps) == set(asked)
    for row, sequence in enumerate(batch.inputs.tolist()):
        assert len(set(symbols[row].ravel().tolist())) == N * (D + 1)
        for step in range(D, 0, -1):
            start = 2 * N * (D - step)
            pairs = {tuple(sequence[start + 2 * i : start + 2 * i + 2]) for i in range(N)}
            assert pairs == {tuple(symbols[row, chain, step - 1 : step + 1].tolist()) for chain in range(N)}
        if marked:
            assert sequence[2 * N * D] == V + steps[row] - 1
        for query in range(N):
            (chain,) = np.flatnonzero(symbols[row, :, 0] == sequence[-N + query])
            assert int(batch.targets[row, query]) == symbols[row, chain, steps[row]]
        assert batch.groups[int(batch.group[row])] == f"step {steps[row]}"
    assert batch.positions.tolist() == list(range(one.shape.length - N, one.shape.length))


def test_symbols_orders_and_steps_are_uniform():
    one = TokenRetrieval(chains=3, steps=2, symbols=12)
    batch = one.sample("train", 12_000, 0)
    for place in range(9):
        counts = np.bincount(batch.latents["symbols"].reshape(-1, 9)[:, place], minlength=12)
        assert stats.chisquare(counts).pvalue > 1e-3
    codes = (batch.latents["order"] * torch.tensor([9, 3, 1])).sum(dim=-1)
    for step in range(3):
        counts = codes[:, step].unique(return_counts=True)[1]
        assert len(counts) == 6 and stats.chisquare(counts.numpy()).pvalue > 1e-3
    assert stats.chisquare(np.bincount(batch.latents["step"])[1:]).pvalue > 1e-3


def test_oracle_by_hand():
    """Two chains 5 -> 7 -> 1 and 3 -> 8 -> 2, asked for step 2 and for step 1."""
    one = TokenRetrieval(chains=2, steps=2, symbols=10)
    pairs, queries = [7, 1, 8, 2, 3, 8, 5, 7], [3, 5]
    inputs = torch.tensor([[*pairs, 11, *queries], [*pairs, 10, *queries], [*pairs, 4, *queries]])
    told = one.oracle(inputs)
    assert told.answers[:2].tolist() == [[2, 1], [8, 7]]
    assert told.known.tolist() == [[True, True], [True, True], [False, False]]  # 4 marks no step
    trace = {step.name: step.position.tolist() for step in told.trace}
    assert trace == {
        "query 0 step 1": [5, 5, -1],
        "query 0 step 2": [3, -1, -1],
        "query 1 step 1": [7, 7, -1],
        "query 1 step 2": [1, -1, -1],
    }
    assert one.split_of(inputs).tolist() == [0, 0, -1]
    first, *_, broken = one.render(inputs)
    assert first.answer == "2, 1"
    assert first.trace == ("query 3 -> 8 at 5 -> 2 at 3", "query 5 -> 7 at 7 -> 1 at 1")
    assert [token.text for token in first.tokens][8] == "#2"
    assert broken.answer == "unknown, unknown"


@pytest.mark.parametrize(
    "spoiled",
    [
        [7, 1, 8, 2, 3, 8, 5, 7, 3, 3],  # one chain twice
        [7, 1, 8, 1, 3, 8, 5, 7, 3, 5],  # two ends alike
        [3, 8, 5, 7, 7, 1, 8, 2, 3, 5],  # first steps first
        [7, 1, 8, 2, 3, 8, 5, 9, 3, 5],  # a chain that breaks off
        [7, 1, 8, 12, 3, 8, 5, 7, 3, 5],  # no symbol
    ],
)
def test_what_no_split_holds(spoiled):
    one = TokenRetrieval(chains=2, steps=2, symbols=10, implicit_curriculum=False)
    assert one.split_of(torch.tensor([[7, 1, 8, 2, 3, 8, 5, 7, 3, 5], spoiled])).tolist() == [0, -1]
    assert one.split_of(torch.tensor([[1, 2, 3]])).tolist() == [-1]


def test_one_step_is_induction():
    """An induction circuit of known weights answers: the previous token's head, then the matching head."""
    one = TokenRetrieval(chains=3, steps=1, symbols=12)
    batch = one.sample("test", 300, 0)
    outputs = predict(induction_circuit(), batch.inputs, batch.positions)
    # the circuit's first position has no token before it and brings its own
    told = batch.inputs[:, :1] != batch.inputs[:, -3:]
    assert one.metrics(outputs, batch)["accuracy"][told].mean() == 1
    assert not one.metrics(-outputs, batch)["accuracy"][told].any()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"symbols": 15}, "symbols: 15 are fewer than the 16 of a sequence"),
        ({"asked_steps": (4,)}, "asked_steps"),
        ({"asked_steps": (1,), "implicit_curriculum": False}, "asked_steps: name a curriculum"),
        ({"steps": 0}, "steps"),
    ],
)
def test_impossible_specs(fields, message):
    with pytest.raises(SpecError, match=message):
        TokenRetrieval(**fields)
