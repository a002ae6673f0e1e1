"""Roles of every task: positions hold what they are named for, and instances belong together."""

import re
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from anchorlab.lens.circuits.explanation import RESERVED
from anchorlab.tasks import AnchorFunction, Batch, MinimalRetrieval, NoisyRecall, Rule, Task, TokenRetrieval
from tests.tasks.examples import TASKS

N = 200
RETRIEVALS = {name: one for name, one in TASKS.items() if isinstance(one, MinimalRetrieval | TokenRetrieval)}
ANCHORS = {name: one for name, one in TASKS.items() if isinstance(one, AnchorFunction)}
RECALLS = {name: one for name, one in TASKS.items() if isinstance(one, NoisyRecall)}


def every(tasks: dict[str, Task]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("one", tasks.values(), ids=tasks.keys())


def last(one: Task) -> Batch:
    return one.sample(one.splits[-1], N, seed=0)


@every(TASKS)
def test_roles_are_positions_of_each_sequence(one):
    batch = last(one)
    roles = one.roles(batch)
    assert roles and not set(roles) & set(RESERVED)
    assert len({places.shape[1] for places in roles.values()} - {1}) <= 1
    for places in roles.values():
        assert places.dtype == torch.int64 and len(places) == N
        assert bool(((places >= -1) & (places < one.shape.length)).all()) and bool((places >= 0).any())


ONE_OR_TWO = AnchorFunction(rules={"one": Rule.parse("A x -> A(x)"), "two": Rule.parse("A B x -> A(B(x))")})


@every({**TASKS, "one anchor or two": ONE_OR_TWO})
def test_names_are_the_same_for_every_batch(one):
    """However few its sequences are, so that what happens to stand together, or nowhere, changes no name."""
    splits = one.splits
    names = {tuple(one.roles(one.sample(splits[seed % len(splits)], 4, seed))) for seed in range(20)}
    assert names == {tuple(one.roles(last(one)))}


def test_an_anchor_that_no_sequence_has_keeps_its_name():
    """Half of the sequences have one anchor alone."""
    lone = [seed for seed in range(20) if bool((ONE_OR_TWO.sample("test", 1, seed).latents["anchors"] < 0).any())]
    assert lone
    for seed in lone:
        roles = ONE_OR_TWO.roles(ONE_OR_TWO.sample("test", 1, seed))
        assert [*roles] == ["asked", "anchor 1", "anchor 2", "key 1"] and roles["anchor 2"].tolist() == [[-1]]


def queried(one: MinimalRetrieval | TokenRetrieval, batch: Batch) -> Tensor:
    """The symbols of each query's chain as they were drawn, `[batch query value feature]`."""
    if isinstance(one, TokenRetrieval):
        symbols, chains = batch.latents["symbols"].transpose(1, 2).unsqueeze(-1), batch.latents["queries"]
    else:
        symbols, chains = batch.latents["symbols"], batch.latents["order"][:, 0, : one.chains]
    return symbols[torch.arange(N).unsqueeze(1), chains]


@every(RETRIEVALS)
def test_retrieval_names_every_symbol_on_each_query_s_way(one):
    """`x2 of pair 3` is the query's x2, in the block of step 3, one before its x3; blocks stand the last step first."""
    batch = last(one)
    roles, drawn = one.roles(batch), queried(one, batch)
    roots = one.roots
    tokens = batch.inputs.unsqueeze(-1) if batch.inputs.ndim == 2 else batch.inputs[..., : drawn.shape[-1]]
    records: dict[int, list[tuple[int, Tensor]]] = {}
    for name, places in roles.items():
        if name == "marker":
            assert (batch.inputs.gather(1, places).squeeze(1) == one.symbols + batch.latents["step"] - 1).all()
            continue
        value = int(re.match(r"(?:query )?x(\d+)", name)[1])
        found = tokens.gather(1, places.unsqueeze(-1).expand(-1, -1, tokens.shape[-1]))
        assert torch.equal(found, drawn[:, :, value]), name
        if step := re.search(r" of (pair|record) (\d+)$", name):
            records.setdefault(int(step[2]), []).append((value, places))
    assert sorted(records) == [*range(1, one.steps + 1)]
    assert {f"query x{root}" for root in range(roots)} <= roles.keys()
    assert torch.equal(roles[f"query x{roots - 1}"], batch.positions.expand(N, -1))
    for step, columns in records.items():
        parents = one.parents[step - 1] if one.parents else (step - 1,)
        assert [value for value, _ in columns] == [*parents, roots + step - 1]
        for (_, before), (_, after) in pairwise(columns):
            assert torch.equal(before + 1, after)
        if step > 1:
            assert bool((columns[-1][1].max(dim=1).values < records[step - 1][0][1].min(dim=1).values).all())


@every(ANCHORS)
def test_anchors_and_keys_stand_where_they_were_put(one):
    """One task of the paper's code never writes its key: its labels are right by chance only."""
    for split in one.splits:
        batch = one.sample(split, 1000, seed=0)
        roles, latents = one.roles(batch), batch.latents
        assert torch.equal(roles["asked"], batch.positions.expand(1000, -1))
        names = ["asked"]
        for kind in ("anchor", "key"):
            held, places = latents[f"{kind}s"], latents[f"{kind}_positions"]
            assert (places[:, 0] >= 0).all() and ((held >= 0) == (places >= 0)).all()
            for index in range(held.shape[1]):
                place, name = places[:, [index]], f"{kind} {index + 1}"
                assert torch.equal(roles[name], place)
                there = place >= 0
                assert torch.equal(batch.inputs.gather(1, place.clamp(min=0))[there], held[:, [index]][there])
                names.append(name)
        assert [*roles] == names  # also those that stand where another does


@every(RECALLS)
def test_recall_names_what_followed_the_trigger_first(one):
    """`output` is the first token but noise after the trigger, up to where it is asked; the last tells nothing."""
    batch = last(one)
    roles, tokens = one.roles(batch), batch.inputs.tolist()
    assert set(roles) == {"earlier trigger", "output", "asked"}
    weights = torch.ones_like(batch.targets) if batch.weights is None else batch.weights
    scored = batch.positions.expand(N, -1)
    assert torch.equal(roles["asked"], scored.where(weights > 0, -1))
    for row, (before, output, asked) in enumerate(zip(*(places.tolist() for places in roles.values()), strict=True)):
        for instance, place in enumerate(asked):
            noises = range(one.noise_token, one.noise_token + one.noises)
            followers = [
                at
                for at in range(1, len(tokens[row]) - 1)
                if tokens[row][at - 1] == tokens[row][place] and tokens[row][at] not in noises and at <= place
            ]
            expected = followers[0] if followers and place >= 0 else -1
            assert output[instance] == expected and before[instance] == (expected - 1 if expected >= 0 else -1)
    known = roles["output"] >= 0
    assert bool(known.any())
    answered = batch.inputs.gather(1, roles["output"].clamp(min=0)) == batch.answers
    assert bool(answered[known & (scored == one.length - 1)].float().mean() > 0.9)


def test_a_query_without_its_pair_has_no_places():
    one = TokenRetrieval(chains=2, steps=1, symbols=12)
    batch = one.sample("test", 3, seed=0)
    batch.inputs[0, 4] = min({*range(12)} - {*batch.inputs[0].tolist()})  # the first query becomes a symbol of no pair
    roles = one.roles(batch)
    assert roles["x0 of pair 1"][0, 0] == roles["x1 of pair 1"][0, 0] == -1
    assert bool((roles["x1 of pair 1"].flatten()[1:] >= 0).all())
