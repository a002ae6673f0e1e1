"""Retrieval of tokens, followed by hand and solved by a model whose weights are known; and chains of steps."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats

from anchorlab.errors import SpecError
from anchorlab.models.model import predict
from anchorlab.tasks import TokenRetrieval, task
from tests.lens.hand_built import induction_circuit


def find_places(batch, step):
    """The chain that stands at each place of a step's pairs, or of the queries (step 0), with N = 3 and D = 2."""
    start = {0: 13, 1: 6, 2: 0}[step]
    seen = batch.inputs[:, start:16] if step == 0 else batch.inputs[:, start + 1 : start + 6 : 2]
    return (seen.unsqueeze(-1) == batch.latents["symbols"][:, None, step]).int().argmax(dim=-1)


def test_symbols_orders_and_steps_are_uniform():
    one = TokenRetrieval(chains=3, steps=2, symbols=12)
    batch = one.sample("train", 12_000, 0)
    for place in range(9):
        counts = np.bincount(batch.latents["symbols"].reshape(-1, 9)[:, place], minlength=12)
        assert stats.chisquare(counts).pvalue > 1e-3
    orders = torch.stack([find_places(batch, step) for step in range(3)], dim=1)
    codes = (orders * torch.tensor([9, 3, 1])).sum(dim=-1)
    for step in range(3):
        counts = codes[:, step].unique(return_counts=True)[1]
        assert len(counts) == 6 and stats.chisquare(counts.numpy()).pvalue > 1e-3
    both = torch.stack([codes[:, 0], codes[:, 1]]).unique(dim=1, return_counts=True)[1]
    assert len(both) == 36 and stats.chisquare(both.numpy()).pvalue > 1e-3  # parts are shuffled independently
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
        "query 0 step 1": [5, 5, -1], "query 0 step 2": [3, -1, -1], "query 1 step 1": [7, 7, -1],
        "query 1 step 2": [1, -1, -1],
    }  # fmt: skip
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


def test_one_step_is_induction():
    """An induction circuit of known weights answers: the previous token's head, then the matching head."""
    one = TokenRetrieval(chains=3, steps=1, symbols=12)
    batch = one.sample("test", 300, 0)
    outputs = predict(induction_circuit(), batch.inputs, batch.positions)
    # the circuit's first position has no token before it and brings its own
    told = batch.inputs[:, :1] != batch.inputs[:, -3:]
    assert one.metrics(outputs, batch)["accuracy"][told].mean() == 1
    assert not one.metrics(-outputs, batch)["accuracy"][told].any()


IMPOSSIBLE = [
    ("tokens", {"symbols": 15}, "symbols: 15 are fewer than the 16 of a sequence"),
    ("tokens", {"asked_steps": (4,)}, "asked_steps"),
    ("tokens", {"asked_steps": (1,), "implicit_curriculum": False}, "asked_steps: restrict a curriculum"),
    ("tokens", {"steps": 0}, "steps"),
    ("tokens", {"roots": 2}, "roots: a chain begins with one symbol"),
    *(("steps", {"training": remainders}, "training") for remainders in ((0, 5), (1, 1), (), (0, 1, 2, 3, 4))),
    # 2 * (24 // 5) = 8 fit a pair of the test, nine symbols are needed; 25 are enough
    ("steps", {"chains": 3, "symbols": 24}, "symbols"),
]


@pytest.mark.parametrize(("name", "fields", "message"), IMPOSSIBLE)
def test_impossible_specs_name_their_field(name, fields, message):
    with pytest.raises(SpecError, match=message):
        task(f"retrieval/{name}", **fields)
    task("retrieval/steps", chains=3, symbols=25)


def test_a_graph_by_hand():
    """xyz ay ax a with two chains: a = 1, 2; x = 3, 4; y = 5, 6; z of (x, y): 35 7, 36 8, 45 9, 46 0."""
    one = task("retrieval/conditional", chains=2, symbols=12, implicit_curriculum=False)
    table = [4, 6, 0, 3, 5, 7, 3, 6, 8, 4, 5, 9]
    inputs = torch.tensor([[*table, 1, 5, 2, 6, 2, 4, 1, 3, 2, 1], [*table, 1, 6, 2, 5, 2, 4, 1, 3, 2, 1]])
    told = one.oracle(inputs)
    assert told.answers.tolist() == [[0, 7], [9, 8]]  # the same table, read at other y
    assert told.known.all()
    assert {step.name: step.position[0].item() for step in told.trace} == {
        "query 0 step 1": 17, "query 0 step 2": 15, "query 0 step 3": 2,
        "query 1 step 1": 19, "query 1 step 2": 13, "query 1 step 3": 5,
    }  # fmt: skip
    assert one.split_of(inputs).tolist() == [0, 0]
    assert one.render(inputs)[0].trace[1] == "query 1 -> 3 at 19 -> 5 at 13 -> 7 at 5"


@pytest.mark.parametrize(
    ("asked", "fields"),
    [([1, 2, 3], {}), ([3], {"implicit_curriculum": False}), ([1, 3], {"asked_steps": (1, 3)}),
     ([2], {"asked_steps": "2"})],
)  # fmt: skip
@pytest.mark.parametrize(
    ("parents", "roots", "needed"),
    [(((0,), (0,), (1, 2)), 1, 18), (((0,), (1,), (2, 3)), 2, 21), (((0,), (0, 1), (0, 1, 2)), 1, 3 * 4 + 6 + 24),
     (((0,), (1,), (2,)), 1, 12)],
)  # fmt: skip
def test_graphs_are_drawn_whole(parents, roots, needed, asked, fields):
    """Every combination of chains has its record, mixed ones a value of their own; one symbol less is refused."""
    one, marked = task("retrieval/conditional", parents=parents, roots=roots, symbols=needed, **fields), len(asked) > 1
    assert one.shape.input_size == one.shape.output_size == needed + 3 * marked
    batch = one.sample("train", 60, 0)
    symbols = batch.latents["symbols"].tolist()
    assert batch.groups == tuple(f"step {step}" for step in asked)
    assert set(batch.latents["step"].tolist()) == set(asked)
    for row, sequence in enumerate(batch.inputs.tolist()):
        assert len({token for token in sequence if token < needed}) == needed
        place = 0
        for step in reversed(range(len(parents))):
            size = len(parents[step]) + 1
            records = [tuple(sequence[place + size * i : place + size * (i + 1)]) for i in range(3 ** (size - 1))]
            keys = list(product(*(symbols[row][parent] for parent in parents[step])))
            assert sorted(record[:-1] for record in records) == sorted(keys)
            values = {record[:-1]: record[-1] for record in records}
            assert len(set(values.values())) == len(values)
            for chain in range(3):
                own = tuple(symbols[row][parent][chain] for parent in parents[step])
                assert values[own] == symbols[row][roots + step][chain]
            place += size * len(records)
        step = int(batch.latents["step"][row])
        assert batch.groups[int(batch.group[row])] == f"step {step}"
        assert not marked or sequence[place] == needed + step - 1
        place += marked
        for query, chain in enumerate(batch.latents["queries"][row].tolist()):
            places = slice(place + query * roots, place + (query + 1) * roots)
            assert sequence[places] == [symbols[row][root][chain] for root in range(roots)]
            assert batch.positions[query] == places.stop - 1
            assert int(batch.targets[row, query]) == symbols[row][roots + step - 1][chain]
    assert torch.equal(one.oracle(batch.inputs).answers, batch.answers)
    assert (one.split_of(batch.inputs) == 0).all()
    with pytest.raises(SpecError, match="symbols"):
        task("retrieval/conditional", parents=parents, roots=roots, symbols=needed - 1, **fields)


def test_a_chain_is_the_graph_in_which_each_step_follows_the_last():
    chain = TokenRetrieval(chains=3, steps=3, symbols=20)
    graph = chain.replace(parents=((0,), (1,), (2,)))
    one, two = chain.sample("train", 40, 5), graph.sample("train", 40, 5)
    assert torch.equal(one.inputs, two.inputs) and torch.equal(one.targets, two.targets)
    assert torch.equal(chain.oracle(one.inputs).answers, graph.oracle(one.inputs).answers)


# Chains of pairs in random order, with splits by the difference within a pair.
SMALL = task("retrieval/steps", chains=2, symbols=30)  # remainders 0, 1, 4 modulo 5 in training


def test_follows_hand_made_chains():
    """Chains 2 6 11 and 20 21 15: 6 - 2 = 4, 11 - 6 = 0, 21 - 20 = 1, 15 - 21 = 4 modulo 5; then 7 10 12 and 0 3 5."""
    inputs = torch.tensor(
        [[6, 11, 20, 21, 2, 6, 21, 15, 2], [6, 11, 20, 21, 2, 6, 21, 15, 20], [3, 5, 7, 10, 10, 12, 0, 3, 7]]
    )
    found = SMALL.oracle(inputs)
    assert found.answers[:, 0].tolist() == [11, 15, 12] and found.known.all()
    assert SMALL.split_of(inputs).tolist() == [0, 0, 1]
    assert [(step.position[0].item(), step.value[0].item()) for step in found.trace] == [(5, 6), (1, 11)]


@pytest.mark.parametrize(
    ("inputs", "known"),
    [
        ([6, 11, 20, 21, 2, 6, 21, 15, 6], False),  # the last token begins no chain
        ([6, 11, 20, 21, 2, 6, 25, 15, 2], False),  # three chains, two of one step
        ([2, 6, 6, 11, 11, 15, 20, 21, 2], False),  # a chain of three steps and one of one step
        ([2, 6, 6, 11, 20, 25, 25, 20, 2], False),  # a circle
        ([2, 6, 6, 11, 20, 6, 21, 15, 2], False),  # two pairs end with 6
        ([2, 6, 6, 11, 20, 21, 21, 30, 2], False),  # a token out of range
        ([2, 6, 6, 11, 20, 21, 21, 23, 2], True),  # well-formed, with a pair of the test, as 23 - 21 = 2
    ],
)
def test_other_sequences_belong_to_no_split(inputs, known):
    tokens = torch.tensor([inputs])
    assert SMALL.oracle(tokens).known.tolist() == [[known]]
    assert SMALL.split_of(tokens).tolist() == [-1]


@pytest.mark.parametrize(("split", "remainders"), [("train", {0, 1, 4}), ("test", {2, 3})])
def test_every_pair_of_a_split_has_its_remainders(split, remainders):
    batch = SMALL.sample(split, 2000, seed=0)
    pairs = batch.inputs[:, :-1].reshape(len(batch), -1, 2)
    assert set(((pairs[:, :, 1] - pairs[:, :, 0]) % 5).flatten().tolist()) == remainders
    assert batch.inputs.unique().tolist() == list(range(30))
    symbols = batch.latents["symbols"]
    assert all(len(set(row)) == 6 for row in symbols.flatten(1).tolist())
    row, asked = torch.arange(len(batch)), batch.latents["queries"][:, 0]
    assert (batch.inputs[:, -1] == symbols[row, 0, asked]).all() and (
        batch.answers[:, 0] == symbols[row, 2, asked]
    ).all()


def test_pairs_come_in_every_order():
    batch = SMALL.sample("train", 8000, seed=0)
    symbols, pairs = batch.latents["symbols"], batch.inputs[:, :-1].reshape(len(batch), 4, 2)
    place = (pairs[:, :, 0] == symbols[:, 1, :1]).long().argmax(dim=1)  # of the second step of the first chain
    shares = place.bincount(minlength=4) / len(batch)
    torch.testing.assert_close(shares, torch.full((4,), 0.25), rtol=0, atol=0.02)  # four standard errors
