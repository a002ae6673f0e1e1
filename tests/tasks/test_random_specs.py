"""Thousands of random specs: each is a working task or one clear line, never another exception."""

import copy
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorlab.errors import SpecError
from anchorlab.tasks import Task, parse_task, task, task_arguments, task_names

JUNK = [
    None, True, -1, 0, 1, 2, 3, 7, 30, 201, 70_000, 2**40, 10**30, -(10**30), 0.5, float("nan"), float("inf"), "", "x",
    "3", "+1", "none", [], [1], [3, 3], [20, 5], [1, 2, 3], [[1, 2]], {}, {"a": 1}, {"3": 1}, {"3": "+1"},
    {"3": [[1, 2]]},
]  # fmt: skip
TEXTS = [
    "1", "2", "3", "9", "-1", "0.5", "true", "none", "", "1,2", "3,", "x", "last", "pair", "20,40", "1e3", "uniform",
]  # fmt: skip


RULES = [
    {"one": "A x -> A(x)"}, {"one": "A x -> A(x)"}, {"one": "A . x -> A(x) + 1"}, {"one": "x A B -> pair(A, B, x)"},
    {"one": "x A ... B -> B(A(x))"}, {"one": "A x y -> (x + y) // 2", "two": "x A . B -> max(x, B)"},
    {"one": "m A n ... m $ -> n", "two": "m A n ... n $ -> m"}, {"one": "^ x A y B z $ -> nearest(z, {x: A, y: B})"},
    {"one": "A B x -> first_after(A)"}, {"one": "1 x -> x", "two": "2 . x -> x + 1"},
]  # fmt: skip


def anchor_spec(random: Random) -> dict[str, Any]:
    """Parts that mostly fit each other."""
    anchors = random.sample(range(5), random.choice([1, 1, 2, 3]))
    length, first = random.randint(2, 12), random.randint(5, 9)
    rules = random.choice(RULES)
    separation: dict[str, Any] = random.choice(
        [
            {"rule": "modular_residue", "modulus": random.randint(2, 9), "residues": random.sample(range(-2, 9), 2)},
            {"rule": "modular_residue", "modulus": 3, "position": "key"},
            {"position": "key", "by_position": {str(random.randrange(length)): [random.randrange(4)]}},
            {"rule": "anchor_based", "held_out": {str(anchors[0]): [[first, first + 1]]}},
            {"rule": "composite_anchor", "unseen": [random.choices(anchors, k=2)]},
        ]
    )
    if random.random() < 0.3:
        parts = [separation, {"rule": "composite_anchor", "unseen": [random.choices(anchors, k=random.randint(1, 2))]}]
        separation = {"rule": "combined", "parts": parts}
    return {
        "family": "anchor", "name": random.choice(["", "mine"]),
        "vocabulary": {"size": 80, "items": [first, first + random.randint(1, 25)], "anchors": anchors},
        "operations": {str(a): random.choice(["x", "x", "+1", "-2", "*2", "+5 then -2"]) for a in anchors},
        "rules": rules, "rivals": random.choice([{}, {}, {"key": "x"}]),
        "exceptions": {f"{anchors[0]},{anchors[-1]}": "+1"} if "pair" in str(rules) else {},
        "placement": {"length": length, "distinct": random.choice([False, False, True])},
        "separation": {**separation, "covering": random.choice([True, False])},
        "scoring": {"positions": random.choice([[-1], [0, -1], [length - 1]])},
        "labels": random.choice([None, None, {"copies": 3}, {"probability": 0.5, "targets": "distribution"}]),
        "group_by": random.choice(["anchors", "rule", "nothing"]),
    }  # fmt: skip


def recall_spec(random: Random) -> dict[str, Any]:
    """Noisy recall with every option."""
    return {
        "family": "recall", "length": random.randint(3, 30),
        "alpha": random.choice([0, 0.0, 0.3, 1.0, random.random()]),
        "source": random.choice(["shakespeare", "uniform"]), "noise": random.choice(["appended", "existing"]),
        "triggers": random.sample(range(65), random.randint(1, 4)), "drawn": random.choice([0, 0, 1, 5, 65]),
        "scored": random.choice(["last", "after_trigger"]), "max_scored": random.choice([0, 0, 2]),
    }  # fmt: skip


def retrieval_graph(random: Random, steps: int) -> dict[str, Any]:
    """What each step depends on: a chain, or a graph of up to two parents and two roots."""
    if random.random() < 0.5:
        return {"parents": [], "roots": 1}
    roots = random.randint(1, 2)
    counts = [min(random.randint(1, 2), roots + step) for step in range(steps)]
    parents = [sorted(random.sample(range(roots + step), count)) for step, count in enumerate(counts)]
    return {"parents": parents, "roots": roots}


def retrieval_spec(random: Random) -> dict[str, Any]:
    """Minimal retrieval with every option: chains and graphs."""
    features, steps, curriculum = 2 * random.randint(1, 4), random.randint(1, 5), random.choice([True, False])
    some = sorted(random.sample(range(1, steps + 1), random.randint(0, steps)))
    return {
        "family": "retrieval", "chains": random.randint(1, 5), "steps": steps, "features": features,
        "implicit_curriculum": curriculum, "asked_steps": some if curriculum else [],
        "positions": random.choice(["token", "pair"]),
        "frequencies": random.choice([[], [random.random() for _ in range(features // 2)]]),
        **retrieval_graph(random, steps),
    }  # fmt: skip


def token_retrieval_spec(random: Random) -> dict[str, Any]:
    """Retrieval of tokens with every option: chains and graphs."""
    chains, steps, curriculum = random.randint(1, 4), random.randint(1, 4), random.choice([True, False])
    some, graph = sorted(random.sample(range(1, steps + 1), random.randint(0, steps))), retrieval_graph(random, steps)
    return {
        "family": "token-retrieval", "chains": chains, "steps": steps,
        "symbols": chains * (steps + graph["roots"]) + chains**2 * steps + random.randint(0, 9) + 1,
        "implicit_curriculum": curriculum, "asked_steps": some if curriculum else [], **graph,
    }  # fmt: skip


def spoil(random: Random, data: dict[str, Any]) -> dict[str, Any]:
    """The spec with one thing changed somewhere inside: a junk value, a missing field, or one too many."""
    data = copy.deepcopy(data)
    node: Any = data
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return data
        key = random.choice(keys)
        if isinstance(node[key], dict | list) and random.random() < 0.7:
            node = node[key]
            continue
        change = random.random()
        if change < 0.15:
            del node[key]
        elif change < 0.3 and isinstance(node, dict):
            node[random.choice([f"{key}s", "oops", "3", ""])] = random.choice(JUNK)
        else:
            node[key] = copy.deepcopy(random.choice(JUNK))
        return data


def check(one: Task) -> None:
    assert parse_task(one.model_dump(mode="json")) == one
    for split in one.splits:
        batch = one.sample(split, 3, 0)
        answer, sides = one.oracle(batch.inputs), one.split_of(batch.inputs)
        counted = answer.known if batch.weights is None else answer.known & (batch.weights > 0)
        own, right = answer.answers[counted], batch.answers[counted]
        if one.family == "linear-regression":  # its oracle solves equations
            assert torch.allclose(own, right, rtol=0, atol=1e-3)
        else:
            assert torch.equal(own, right)
        assert (sides >= 0).all()
        if one.separated:
            assert answer.known.all() and (sides == one.splits.index(split)).all()
    assert len(one.render(batch.inputs)) == 3


def works(build: Callable[[], Task]) -> bool:
    """Check a task in full; or, if it is refused, the error. Return whether there was a task."""
    try:
        one = build()
    except SpecError as error:
        assert error.field.startswith("task") and error.problem and "\n" not in str(error)
        return False
    check(one)
    return True


def count_working(count: int, build: Callable[[Random], Task]) -> int:
    """How many of `count` random specs make a working task; every seed draws the same spec on every run."""
    found = 0
    for seed in range(count):
        try:
            found += works(partial(build, Random(seed)))
        except Exception as error:
            error.add_note(f"with seed {seed}")
            raise
    return found


def random_spec(random: Random) -> dict[str, Any]:
    return random.choice([anchor_spec, anchor_spec, recall_spec, retrieval_spec, token_retrieval_spec])(random)


def spoilt_task(random: Random) -> Task:
    data = random_spec(random)
    for _ in range(random.randint(1, 3)):
        data = spoil(random, data)
    return parse_task(data)


def task_of_texts(random: Random) -> Task:
    name = random.choice(task_names())
    known = [*task_arguments(name), "oops"] if random.random() < 0.1 else list(task_arguments(name))
    return task(name, **{random.choice(known): random.choice(TEXTS) for _ in range(random.randint(1, 3))})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "count", "least"),
    [(anchor_spec, 260, 65), (recall_spec, 80, 40), (retrieval_spec, 80, 80), (token_retrieval_spec, 80, 80)],
)
def test_many_random_specs_work(make: Callable[[Random], dict[str, Any]], count: int, least: int) -> None:
    assert count_working(count, lambda random: parse_task(make(random))) >= least


@pytest.mark.slow
def test_some_spoilt_specs_work() -> None:
    assert 75 <= count_working(1500, spoilt_task) < 750


def test_some_arguments_as_text_work() -> None:
    assert 21 <= count_working(700, task_of_texts) < 350


@given(st.recursive(st.sampled_from(JUNK), lambda inner: st.dictionaries(st.sampled_from(["family", "name"]), inner)))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_junk_is_refused(data: Any) -> None:
    assert not works(lambda: parse_task(data))
