"""Circuits of a language model: what the claims make of circuits written by hand."""

from types import SimpleNamespace

import pytest
import torch

from anchorlab.lens import Edge, Faithfulness, Passes, Scores
from anchorlab.papers.language import edges as study
from tests.papers.hand_made_runs import judgements_of

pytestmark = pytest.mark.untyped  # hand-made heads in place of a language model's

EDGES = (
    Edge("embed", "0.0.q"), Edge("0.0", "1.0.k"), Edge("0.1", "1.0.k"), Edge("embed", "1.0.k"), Edge("0.0", "1.0.v"),
    Edge("1.0", "logits"), Edge("1.1", "logits"),
)  # fmt: skip
UNITS = ("embed", "0.0", "0.1", "1.0", "1.1")


def scores(*values):
    return Scores.of_edges("by hand", UNITS, EDGES, torch.tensor([values]), Passes(0, 0))


CIRCUIT = scores(0.1, -3.0, 1.0, 5.0, 0.0, 4.0, 0.5)  # 0.0 shifts into the keys of 1.0, which writes the answer
OTHER = scores(0.1, 1.0, -3.0, 5.0, 0.0, 0.5, 4.0)


def curve(sizes, values):
    metric = torch.tensor(values, dtype=torch.float64)[None, :, None]
    return Faithfulness(sizes, sizes[-1], metric, metric[:, :, :0, None])


def found(of=CIRCUIT, **given):
    values = {"size": 10, "own": 0.9, "random": 0.1, "other": 0.3, "clean": 2.0, **given}
    return study.Found(of, curve((0, 10, 1000), [0.0, 0.85, 1.0]), **values)


def seen(repetition, objects, shifts=((0, 0),), induce=((1, 0),)):
    fires = {name: torch.zeros(2, 2, dtype=torch.bool) for name in ("shift", "induction")}
    for name, heads in (("shift", shifts), ("induction", induce)):
        for layer, head in heads:
            fires[name][layer, head] = True
    heads = SimpleNamespace(
        fires=fires.__getitem__,
        distance=torch.ones(2, 2, dtype=torch.int64),
        scores={name: one.float() for name, one in fires.items()},
    )
    return study.Seen({"repetition": tuple(repetition), "indirect object": tuple(objects)}, heads)


def judged(what):
    return judgements_of(study.STUDY, what)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("few-edges", 0.02), ("holds-elsewhere", 0.9), ("beats-random", 0.8), ("beats-other-task", 0.6),
        ("circuit-has-induction-heads", 1.0), ("previous-token-feeds-keys", 1.0),
    ],
)  # fmt: skip
def test_a_circuit_that_explains(name, value):
    good = judged(seen([found() for _ in range(8)], [found(size=30) for _ in range(8)]))
    assert good[name][0] == pytest.approx(value)


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"size": 200}, "few-edges"), ({"own": 0.2}, "holds-elsewhere"), ({"random": 0.8}, "beats-random"),
        ({"other": 0.8}, "beats-other-task"),
    ],
)  # fmt: skip
def test_a_circuit_that_does_not(change, differs):
    spread = [0.01 * seed for seed in range(8)]  # equal values would have no interval
    base = {"own": 0.9, "random": 0.1, "other": 0.3, "size": 10} | change

    def varied(add):
        return found(**base | {"own": base["own"] + add, "size": base["size"] + int(100 * add)})

    verdicts = judged(seen([varied(add) for add in spread], [varied(2 * add) for add in spread]))
    del verdicts["circuit-has-induction-heads"], verdicts["previous-token-feeds-keys"]
    assert verdicts[differs][1].startswith("not supported")


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ([0, 0.5, 0.9, 0.95, 1], 56),  # 10 * 10 ** 0.75
        ([0, 0.85, 0.9, 0.95, 1], 10),
        ([0, 0.85, 0.6, 1.0, 1], 316),  # it must stay above: 100 * 10 ** 0.5
        ([0, 0.1, 0.2, 0.4, 1], 4642),  # 1000 * 10 ** (2 / 3)
    ],
)
def test_the_number_of_edges_that_explain(values, size):
    assert study.enough(curve((0, 10, 100, 1000, 10_000), values)) == size


@pytest.mark.parametrize(
    ("of", "given", "induction", "feeding"),
    [
        (CIRCUIT, {}, 1.0, 1.0),
        (OTHER, {}, 0.0, 0.0),  # 1.0 has 0.5 at most, less than any other head
        (CIRCUIT, {"shifts": ((0, 1),)}, 1.0, 0.0),
        (CIRCUIT, {"induce": ()}, None, None),
        (CIRCUIT, {"shifts": ()}, 1.0, None),
    ],
)
def test_heads_are_compared_with_those_of_the_detectors(of, given, induction, feeding):
    results = judged(seen([found(of)] * 8, [found()] * 8, **given))
    for name, value in (("circuit-has-induction-heads", induction), ("previous-token-feeds-keys", feeding)):
        if value is None:
            assert results[name][1] == "not measured"
        else:
            assert results[name][0] == value


def test_shares_of_a_model_that_solves_nothing_mean_nothing():
    unsolved = judged(seen([found() for _ in range(8)], [found(clean=0.1) for _ in range(8)]))
    assert {one for one, (_, verdict) in unsolved.items() if verdict == "not measured"} >= {
        "few-edges", "holds-elsewhere", "beats-random", "beats-other-task",
    }  # fmt: skip
    mixed = seen([found(own=0.5), found(own=0.9)], [found(own=0.5), found(own=0.9, clean=0.9)])
    assert mixed.each(lambda one: one.own).isnan().tolist() == [False, True]
