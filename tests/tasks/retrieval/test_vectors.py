"""Retrieval of vectors, along chains and graphs followed by hand."""

from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest
import torch
from scipy import stats

from anchorlab.errors import SpecError
from anchorlab.tasks import MinimalRetrieval, task
from anchorlab.tasks.retrieval.minimal import letters


def test_position_vectors_and_letters() -> None:
    tokens = MinimalRetrieval(chains=2, steps=1, features=4).position_vectors
    for position in range(6):
        angles = [position * 1.0, position * 0.01]  # 10000^(-2i/4)
        expected = [*np.cos(angles), *np.sin(angles)]
        assert tokens[position] == pytest.approx(expected, abs=1e-6)
    batch = MinimalRetrieval(chains=2, steps=1, features=4).sample("test", 3, 0)
    assert torch.equal(batch.inputs[1, :, 4:], torch.from_numpy(tokens))
    assert [letters(index) for index in (0, 25, 26, 51, 52, 701, 702)] == ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]


def test_oracle_follows_vectors_by_equality() -> None:
    """Two chains a -> b -> c and d -> e -> f, written by hand."""
    one = MinimalRetrieval(chains=2, steps=2, features=2)
    a, b, c, d, e, f = (torch.tensor([float(i), -float(i)]) for i in range(1, 7))
    symbols = torch.stack([e, f, b, c, a, b, d, e, d, a])
    inputs = torch.cat([symbols, torch.from_numpy(one.position_vectors)], dim=1)[None]
    answer = one.oracle(inputs)
    assert torch.equal(answer.answers[0], torch.stack([torch.cat([e, f]), torch.cat([b, c])]))
    assert answer.known.all() and one.split_of(inputs).tolist() == [0]
    assert [step.name for step in answer.trace][:3] == ["query 0 step 1", "query 0 step 2", "query 1 step 1"]
    assert [int(step.position[0]) for step in answer.trace] == [7, 1, 5, 3]
    example = one.render(inputs)[0]
    assert [token.text for token in example.tokens] == list("BCEFDEABAD")
    assert example.trace == ("query A -> B at 7 -> C at 1", "query D -> E at 5 -> F at 3")
    assert example.answer == "BC, EF"
    broken = inputs.clone()
    broken[0, 4, 0] += 1e-3
    assert one.oracle(broken).known.tolist() == [[True, False]]
    assert one.split_of(broken).tolist() == [-1]
    shifted = inputs.clone()
    shifted[0, 0, 2] += 1.0
    assert one.split_of(shifted).tolist() == [-1]
    assert one.render(broken)[0].answer == "BC, unknown"


def test_a_sequence_asks_for_the_step_that_its_queries_name():
    """Two chains a -> b -> c and d -> e -> f, written by hand; d asks first."""
    one = task("retrieval/mixed", chains=2, steps=2, features=2)
    a, b, c, d, e, f = (torch.tensor([float(i), -float(i)]) for i in range(1, 7))
    symbols = torch.stack([e, f, b, c, a, b, d, e, d, a])
    placed = torch.cat([symbols, torch.from_numpy(one.position_vectors)], dim=1)
    marks = torch.zeros(4, 10, 2)
    marks[0, 8:, 0] = marks[1, 8:, 1] = marks[2, 8, 0] = 1  # the third names no step at its second query
    marks[3, 8:, 0] = marks[3, 2, 0] = 1  # the fourth names one at a pair
    inputs = torch.cat([placed.expand(4, -1, -1), marks], dim=2)
    answer = one.oracle(inputs)
    assert torch.equal(answer.answers[0], torch.stack([e, b])) and torch.equal(answer.answers[1], torch.stack([f, c]))
    assert answer.known.tolist() == [[True, True], [True, True], [False, False], [False, False]]
    assert one.split_of(inputs).tolist() == [0, 0, -1, -1]
    assert [example.answer for example in one.render(inputs)[:2]] == ["B, E", "C, F"]
    for refuse in (one.oracle, one.render):
        with pytest.raises(SpecError, match=r"inputs: have shape \(4, 10, 4\); give \[batch, 10, 6\]"):
            refuse(inputs[..., :4])


def test_steps_are_asked_for_equally_often_and_a_group_is_a_step():
    one = task("retrieval/mixed", chains=2, steps=4, asked_steps=(1, 3))
    batch = one.sample("train", 4000, 5)
    assert batch.groups == ("step 1", "step 3") and set(batch.latents["step"].tolist()) == {1, 3}
    assert batch.group.double().mean() == pytest.approx(0.5, abs=4 * 0.5 / 4000**0.5)
    whole = MinimalRetrieval(chains=2, steps=4).sample("train", 4000, 5)
    assert torch.equal(batch.inputs[..., :8], whole.inputs)
    for step in (1, 3):
        rows = batch.latents["step"] == step
        assert torch.equal(batch.targets[rows], whole.targets[rows].unflatten(2, (4, 4))[:, :, step - 1])
        assert (batch.inputs[rows][:, :-2, 8:] == 0).all()
        assert (batch.inputs[rows][:, -2:, 8:] == torch.eye(4)[step - 1]).all()
    (alone,) = task("retrieval/mixed", steps=3, asked_steps=(3,)).sample("test", 9, 0).groups
    assert alone == "step 3"
    with pytest.raises(SpecError, match=r"implicit_curriculum: is off; give asked_steps=\(3,\)"):
        task("retrieval/mixed", implicit_curriculum=False)


# Conditional retrieval of vectors, against a graph followed by hand and records counted out.
FORK = ((0,), (0,), (1, 2))  # xyz ay ax a
FUNCTIONS = ((0,), (1,), (2, 3))
DEEP, CHAIN = ((0,), (0, 1), (0, 1, 2)), ((0,), (1,), (2,))
GRAPHS = pytest.mark.parametrize(("parents", "roots"), [(FORK, 1), (FUNCTIONS, 2), (DEEP, 1), (CHAIN, 1)])


def conditional(**fields):
    return task("retrieval/conditional-vectors", **fields)


def written(one, numbers):
    """The numbers given, each as a vector of rest and quotient by 3, with the task's position vectors."""
    values = torch.tensor(numbers, dtype=torch.float32)
    return torch.cat([torch.stack([values % 3, values // 3], dim=1), torch.from_numpy(one.position_vectors)], dim=1)


def read(vectors):
    """The numbers that vectors written so stand for."""
    return (vectors[..., ::2] + 3 * vectors[..., 1::2]).tolist()


def test_a_graph_by_hand():
    """xyz ay ax a with two chains: a = 1, 2; x = 3, 4; y = 5, 6; z of (x, y): 35 7, 36 8, 45 9, 46 10."""
    one = conditional(chains=2, features=2)
    table = [4, 6, 10, 3, 5, 7, 3, 6, 8, 4, 5, 9]
    inputs = torch.stack(
        [written(one, [*table, 1, 5, 2, 6, 2, 4, 1, 3, 2, 1]), written(one, [*table, 1, 6, 2, 5, 2, 4, 1, 3, 2, 1])]
    )
    told = one.oracle(inputs)
    assert told.known.all()
    assert read(told.answers) == [[[4, 6, 10], [3, 5, 7]], [[4, 5, 9], [3, 6, 8]]]  # z read at other y
    assert {step.name: (step.position[0].item(), *read(step.value[0])) for step in told.trace} == {
        "query 0 step 1": (17, 4), "query 0 step 2": (15, 6), "query 0 step 3": (2, 10),
        "query 1 step 1": (19, 3), "query 1 step 2": (13, 5), "query 1 step 3": (5, 7),
    }  # fmt: skip
    assert one.split_of(inputs).tolist() == [0, 0]
    example = one.render(inputs)[0]
    assert "".join(token.text for token in example.tokens) == "BCDFGHFCIBGJEGACABEFAE"
    assert [token.role for token in example.tokens] == (
        ["parent", "parent", "value"] * 4 + ["parent", "value"] * 4 + ["query"] * 2
    )
    assert example.trace == ("query A -> B at 17 -> C at 15 -> D at 2", "query E -> F at 19 -> G at 13 -> H at 5")
    assert example.answer == "BCD, FGH"
    broken = inputs.clone()
    broken[0, 1, 0] += 1e-3  # the table's y of query 0
    assert one.oracle(broken).known.tolist() == [[False, True], [True, True]]
    assert [step.position[0].item() for step in one.oracle(broken).trace] == [-1, -1, -1, 19, 13, 5]
    assert one.render(broken)[0].trace[0] == "query A -> no single match"
    assert one.render(broken)[0].answer == "unknown, FGH"


def test_roles_by_hand():
    """Functions of arguments: queries of two symbols, a table of both values."""
    one = conditional(chains=2, features=2, parents=FUNCTIONS, roots=2)
    # f = 1, 2 and b = 3, 4 are asked for; g = 5, 6 and a = 7, 8 stand for them; the table is 57 9, 58 10, 67 11, 68 12
    table = [6, 7, 11, 5, 7, 9, 6, 8, 12, 5, 8, 10]
    inputs = written(one, [*table, 4, 8, 3, 7, 1, 5, 2, 6, 2, 4, 1, 3])[None]
    batch = one.sample("train", 1, 0)
    assert batch.positions.tolist() == [21, 23]
    assert read(one.oracle(inputs).answers[0]) == [[6, 8, 12], [5, 7, 9]]
    roles = one.roles(type(batch)(inputs, batch.targets, batch.answers, batch.positions, "train"))
    assert {name: places[0].tolist() for name, places in roles.items()} == {
        "x2 of record 3": [6, 3], "x3 of record 3": [7, 4], "x4 of record 3": [8, 5],
        "x1 of pair 2": [12, 14], "x3 of pair 2": [13, 15],
        "x0 of pair 1": [18, 16], "x2 of pair 1": [19, 17],
        "query x0": [20, 22], "query x1": [21, 23],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "fields"),
    [([1, 2, 3], {}), ([3], {"implicit_curriculum": False}), ([1, 3], {"asked_steps": (1, 3)}),
     ([2], {"asked_steps": "2"})],
)  # fmt: skip
@GRAPHS
def test_graphs_are_drawn_whole(parents, roots, asked, fields):
    """Every combination of chains has its record, and what is asked for is what the chain holds."""
    N, K = 3, 2
    one = conditional(parents=parents, roots=roots, features=K, **fields)
    batch = one.sample("train", 30, 0)
    assert one.shape.output_size == K * len(asked)
    assert list(one.metrics(torch.zeros_like(batch.targets), batch)) == [f"partial_{step}" for step in asked]
    for row in range(30):
        sequence = [vector.tobytes() for vector in batch.inputs[row, :, :K].numpy()]
        chains = [[vector.tobytes() for vector in chain] for chain in batch.latents["symbols"][row].numpy()]
        order, place = batch.latents["order"][row].tolist(), 0
        for step in range(len(parents), 0, -1):
            size = len(parents[step - 1]) + 1
            combinations = list(product(range(N), repeat=size - 1))
            assert order[step][len(combinations) :] == [-1] * (len(order[step]) - len(combinations))
            values = []
            for number in order[step][: len(combinations)]:
                record, combination = sequence[place : place + size], combinations[number]
                values.append(record[-1])
                key = zip(parents[step - 1], combination, strict=True)
                assert record[:-1] == [chains[chain][parent] for parent, chain in key]
                own = len(set(combination)) == 1
                assert (record[-1] == chains[combination[0]][roots + step - 1]) == own
                place += size
            assert len(set(values)) == len(combinations)
        for query, chain in enumerate(order[0][:N]):
            assert sequence[place : place + roots] == chains[chain][:roots]
            place += roots
            assert batch.positions[query] == place - 1
            told = batch.targets[row, query].reshape(-1, K).numpy()
            assert [vector.tobytes() for vector in told] == [chains[chain][roots + step - 1] for step in asked]
        assert place == one.shape.length
    answer = one.oracle(batch.inputs)
    assert answer.known.all() and torch.equal(answer.answers, batch.answers)
    assert (one.split_of(batch.inputs) == 0).all()


@GRAPHS
def test_how_often_symbols_recur(parents, roots):
    """A value stands in N^(k-1) records of each step that depends on it, and once as a query's or a record's value."""
    N, values = 3, roots + len(parents)
    uses = [1 + sum(N ** (len(one) - 1) for one in parents if value in one) for value in range(values)]
    mixed = sum(N ** len(one) - N for one in parents)
    expected = Counter({1: mixed})
    for count in uses:
        expected[count] += N
    batch = conditional(parents=parents, roots=roots).sample("test", 20, 1)
    for sequence in batch.inputs[..., :4].numpy():
        symbols = Counter(vector.tobytes() for vector in sequence)
        assert Counter(symbols.values()) == +expected


def test_all_symbols_are_normal_and_orders_uniform():
    """Also those of mixed records; every order of a step's records comes up as often, independently of others'."""
    batch = conditional(chains=2, features=2).sample("train", 12_000, 0)
    order = batch.latents["order"]
    table = batch.inputs[:, 2:12:3, :2].numpy()  # the values of the four records
    for number in range(4):
        value = table[(order[:, 3] == number).numpy()]
        assert stats.kstest(value.ravel(), "norm").pvalue > 1e-3
    assert abs(np.corrcoef(table.reshape(12_000, 8).T) - np.eye(8)).max() < 0.05
    numbers = {one: index for index, one in enumerate(permutations(range(4)))}
    drawn = np.array([numbers[tuple(row)] for row in order[:, 3].tolist()])
    assert stats.chisquare(np.bincount(drawn, minlength=24)).pvalue > 1e-3
    swapped = (order[:, :3, 0] * torch.tensor([4, 2, 1])).sum(dim=1).numpy()
    assert stats.chisquare(np.bincount(swapped * 24 + drawn, minlength=192)).pvalue > 1e-3
    assert (order[:, :3, 2:] == -1).all()


@pytest.mark.parametrize("fields", [{}, {"implicit_curriculum": False}, {"positions": "pair", "asked_steps": (2,)}])
def test_a_chain_is_the_graph_in_which_each_step_follows_the_last(fields):
    chain = MinimalRetrieval(chains=3, steps=3, **fields)
    graph = conditional(parents=((0,), (1,), (2,)), **fields)
    one, two = chain.sample("train", 40, 5), graph.sample("train", 40, 5)
    assert torch.equal(one.inputs, two.inputs) and torch.equal(one.targets, two.targets)
    assert all(torch.equal(value, two.latents[name]) for name, value in one.latents.items())
    assert one.positions.tolist() == two.positions.tolist() == [18, 19, 20]
    assert list(graph.roles(two)) == [
        "x2 of pair 3", "x3 of pair 3", "x1 of pair 2", "x2 of pair 2", "x0 of pair 1", "x1 of pair 1", "query x0"
    ]  # fmt: skip


def test_a_chain_is_written_without_a_graph():
    """A run's address is made of its specification, and chains were run before graphs were known."""
    chain = task("retrieval/minimal", chains=2, steps=2, positions="pair")
    assert chain.model_dump(mode="json") == {
        "family": "retrieval", "name": "retrieval/minimal", "chains": 2, "steps": 2, "features": 4,
        "implicit_curriculum": True, "asked_steps": [], "positions": "pair", "frequencies": [],
    }  # fmt: skip
    graph = conditional().model_dump(mode="json")
    assert graph["parents"] == [[0], [0], [1, 2]] and graph["roots"] == 1


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 9]),
        ({"parents": ((0, 1),), "roots": 2}, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5]),
        ({"parents": ((0,),)}, [0, 0, 1, 1, 2, 3]),
    ],
)
def test_records_and_queries_have_one_position_each(fields, counts):
    together = conditional(chains=2, features=2, positions="pair", frequencies=(0.5,), **fields)
    expected = [(np.cos(0.5 * count), np.sin(0.5 * count)) for count in counts]
    assert together.position_vectors == pytest.approx(np.array(expected), abs=1e-6)
    apart = together.replace(positions="token").position_vectors
    assert apart == pytest.approx(np.array([(np.cos(p / 2), np.sin(p / 2)) for p in range(len(counts))]), abs=1e-6)


@pytest.mark.parametrize(
    "spoiled",
    [
        [4, 6, 10, 3, 5, 7, 3, 6, 8, 4, 11, 9, 1, 5, 2, 6, 2, 4, 1, 3, 2, 1],  # a hole in the table
        [4, 6, 10, 3, 5, 7, 3, 10, 8, 4, 5, 9, 1, 5, 2, 6, 2, 4, 1, 3, 2, 1],  # the same, with no new symbol
        [4, 6, 10, 3, 5, 7, 4, 5, 8, 4, 5, 9, 1, 5, 2, 6, 2, 4, 1, 3, 2, 1],  # one combination twice, another missing
        [4, 6, 10, 3, 5, 7, 3, 6, 8, 4, 5, 8, 1, 5, 2, 6, 2, 4, 1, 3, 2, 1],  # two mixed records alike
        [4, 6, 10, 3, 5, 7, 3, 6, 8, 4, 5, 1, 1, 5, 2, 6, 2, 4, 1, 3, 2, 1],  # a mixed record leads to a query
        [4, 6, 10, 3, 5, 7, 3, 6, 8, 4, 5, 9, 2, 4, 1, 3, 1, 5, 2, 6, 1, 1],  # one query twice
        [6, 4, 10, 5, 3, 7, 6, 3, 8, 5, 4, 9, 1, 5, 2, 6, 2, 4, 1, 3, 2, 1],  # y before x
        [4, 6, 10, 3, 5, 7, 3, 6, 8, 4, 5, 9, 1, 5, 2, 6, 2, 4, 1, float("nan"), 2, 1],
    ],
)
def test_what_no_split_holds(spoiled):
    one = conditional(chains=2, features=2)
    whole = [4, 6, 10, 3, 5, 7, 3, 6, 8, 4, 5, 9, 1, 5, 2, 6, 2, 4, 1, 3, 2, 1]
    assert one.split_of(torch.stack([written(one, whole), written(one, spoiled)])).tolist() == [0, -1]
    moved = written(one, whole)[None]
    moved[0, 7, 3] += 1.0
    assert one.split_of(moved).tolist() == [-1]


def test_partial_losses_are_per_step():
    one = conditional(chains=2, features=2, asked_steps=(1, 3))
    batch = one.sample("train", 5, 0)
    outputs = batch.answers.clone()
    outputs[:, 1, 2:4] += torch.tensor([1.0, 3.0])  # the second query's z
    metrics = one.metrics(outputs, batch)
    assert list(metrics) == ["partial_1", "partial_3"]
    assert metrics["partial_1"].abs().max() == 0
    assert metrics["partial_3"].tolist() == pytest.approx(np.array([[0.0, 5.0]] * 5))


def test_a_chain_twice_is_no_sequence():
    one = MinimalRetrieval(chains=2, steps=1, features=2)
    inputs = torch.stack([written(one, [1, 2, 3, 4, 1, 3]), written(one, [1, 2, 3, 4, 1, 1])])
    assert one.split_of(inputs).tolist() == [0, -1]
    assert one.oracle(inputs).known.all()


IMPOSSIBLE = [
    ({"features": 3}, "features: 3 is odd"),
    ({"frequencies": (1.0,)}, "frequencies: there are 1; give 2"),
    ({"frequencies": (1.0, float("inf"))}, "frequencies"),
    ({"steps": 0}, "steps"),
    ({"chains": 256, "steps": 256}, "chains: 256 make 131328 positions; use fewer chains or parents, at most 65536"),
    ({"positions": "tokens"}, "positions"),
    ({"asked_steps": (1, 4)}, r"asked_steps: \[1, 4\] are not some of the steps 1 to 3, in order"),
    ({"asked_steps": (2, 1)}, "asked_steps"),
    ({"asked_steps": (1, 1)}, "asked_steps"),
    ({"asked_steps": (1,), "implicit_curriculum": False}, "asked_steps: restrict a curriculum"),
    ({"roots": 2}, "roots: a chain begins with one symbol"),
    ({"parents": ((0,), (1,))}, "parents: are given for 2 steps; give them for 3"),
    ({"steps": 2, "parents": ((0,), (2,))}, r"parents.1: \[2\] are not some of the values 0 to 1"),
    ({"steps": 2, "parents": "0;0,0"}, r"parents.1"),
    ({"steps": 1, "parents": ((),)}, r"parents.0"),
    ({"steps": 1, "roots": 17, "parents": ((0,),)}, "roots"),
    ({"chains": 64, "steps": 1, "parents": ((0, 1, 2),), "roots": 3}, "chains: 64 make 1048768 positions"),
]


@pytest.mark.parametrize(("fields", "message"), IMPOSSIBLE)
def test_impossible_graphs(fields, message):
    with pytest.raises(SpecError, match=message):
        MinimalRetrieval(**fields)
    with pytest.raises(SpecError, match=f"task.{message}"):
        task("retrieval/minimal", **fields)
