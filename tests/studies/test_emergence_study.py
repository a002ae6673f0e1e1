"""What the studies of circuits and emergence measure, on growths and circuits written by hand."""

import math
from dataclasses import replace

import pytest
import torch

from anchorlab.lens import Circuit, CircuitPath, Explanation, AttentionRule
from anchorlab.lens.circuits import AttentionLosses
from anchorlab.models import VectorSpec
from anchorlab.studies.retrieval.chain_order import in_order, retrieving_two
from anchorlab.studies.retrieval.circuits import CLAIMS, later_rules
from anchorlab.studies.retrieval.circuits import judge as judge_circuits
from anchorlab.studies.retrieval.emergence import judge
from anchorlab.studies.retrieval.emergence_measures import Growth, distance, needs, reuse, rise, slower
from anchorlab.studies.retrieval.one_head import Solution, by_head, joining
from anchorlab.studies.retrieval.plateau import TOLD_APART
from anchorlab.studies.retrieval.settings import nearly_orthogonal, orthogonal
from anchorlab.tasks import task
from anchorlab.training.ensemble import initialise

STEPS = (0, 10, 20, 30, 40)
JOIN = AttentionRule("x1 of pair 1", "x0 of pair 1")
FIRST = AttentionRule("query x0", "x1 of pair 1")
SECOND = AttentionRule("query x0", "x2 of pair 2")


def path(layer, rule, cut=0.6, head=0):
    return CircuitPath(layer, head, rule, attention=0.9, cut_loss=cut, mapped_cut_loss=cut / 2)


def circuit(*paths, loss=0.02, model=0.005):
    heads = {(layer, 0): Explanation("uniform") for layer in range(4)}
    for one in paths:
        heads[one.layer, one.head] = Explanation("uniform", (*heads[one.layer, one.head].rules, one.rule))
    return Circuit(heads, tuple(paths), ("x0 of pair 1", "x1 of pair 1", "query x0"), 0.05, model, loss, loss, 1.0, 0.9)


def growth(attention, needed, retrieved=None):
    return Growth(
        Solution(0, 0, circuit(*attention)), STEPS, needed, attention, retrieved or {1: math.inf, 2: math.inf}
    )


def closest(frequencies, first, last):
    """The largest cosine between position vectors that lie so many places apart."""
    return max(sum(math.cos(apart * one) for one in frequencies) / len(frequencies) for apart in range(first, last))


def test_what_is_said_of_position_vectors():
    for features in (4, 8, 16):
        assert closest(orthogonal(features), 1, 2 * features) < 1e-9
        assert closest(orthogonal(features), 2 * features, 2 * features + 1) == pytest.approx(1)
    assert closest(nearly_orthogonal(8), 1, 8) < 0.25 and 0.6 < closest(nearly_orthogonal(8), 16, 17) < 0.7
    assert closest(TOLD_APART, 1, 28) < 0.25


def test_a_symbol_arrives_with_the_last_path_that_it_needs():
    join, first, second, idle = path(0, JOIN), path(1, FIRST), path(2, SECOND), path(3, FIRST)
    flat = torch.zeros(5)
    one = growth(
        {
            join: torch.tensor([0.0, 0.4, 0.6, 1.0, 1.0]),  # half at 15
            first: torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0]),  # half at 25
            second: flat,
            idle: flat,
        },
        {join: frozenset({1, 2}), first: frozenset({1}), second: frozenset({2}), idle: frozenset()},
    )
    assert one.paths_of(1) == [join, first]
    assert one.paths_of(2) == [join, second]
    assert one.paths_of(3) == []
    assert one.crossing(join) == pytest.approx(15)
    assert one.arrival(1) == pytest.approx(25)
    assert one.arrival(2) == math.inf
    assert math.isnan(one.arrival(3))
    assert rise(one, 1) == pytest.approx((27.5 - 22.5) / 22.5)
    assert math.isnan(rise(one, 3))
    assert reuse(one, (1, 2)) == [0.5]
    assert reuse(one, (2, 3)) == [0.0]


@pytest.mark.parametrize(
    ("times", "order"),
    [
        ([1.0, 2.0, 3.0], 1.0),
        ([1.0, 3.0, 2.0], 0.0),
        ([1.0, 1.0, 2.0], 0.0),
        ([1.0, 2.0, math.inf], 1.0),
        ([1.0, math.inf, math.inf], 1.0),
        ([math.inf, math.inf], 0.0),
        ([math.inf, 1.0, 2.0], 0.0),
        ([1.0, math.nan, 2.0], 1.0),
        ([math.nan, math.nan, 2.0], math.nan),
    ],
)
def test_chain_order(times, order):
    found = float(in_order(torch.tensor([times]))[0])
    assert found == order or (math.isnan(found) and math.isnan(order))


def test_an_order_is_told_of_members_that_retrieve_two_symbols():
    one, two, inf = [1.0, math.inf, math.inf], [3.0, 2.0, math.inf], math.inf
    assert retrieving_two(torch.tensor([one, two, [inf, inf, inf]])).tolist() == [two]


def test_distances_and_the_last_gap():
    join, first, second = path(0, JOIN), path(1, FIRST), path(2, SECOND)
    rising = {
        join: torch.tensor([0.0, 0.4, 0.6, 1.0, 1.0]),  # half at 15
        first: torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0]),  # half at 25
        second: torch.zeros(5),
    }
    needed = {join: frozenset({1, 2}), first: frozenset({1}), second: frozenset({2})}
    assert distance(growth(rising, needed, {1: 22.0, 2: math.inf}), 40.0) == pytest.approx(3)
    assert distance(growth(rising, needed, {1: 22.0, 2: 30.0}), 40.0) == 40  # its loss fell, its path never emerged
    assert math.isnan(distance(growth(rising, needed), 40.0))
    assert slower(torch.tensor([1.0, 2.0, 4.0])) == 1
    assert slower(torch.tensor([1.0, 3.0, 4.0])) == 0
    assert slower(torch.tensor([0.0, 5.0, 6.0, 8.0])) == 1
    assert math.isnan(slower(torch.tensor([1.0, 2.0, math.inf])))
    assert math.isnan(slower(torch.tensor([1.0, 2.0])))


def rose(at):
    """Attention that passes one half at this step, from 0 to 1 within ten."""
    return ((torch.tensor(STEPS) - (at - 5)) / 10).clamp(0, 1)


def test_emergence_is_judged_over_models_that_retrieve_every_symbol():
    join, first, second = path(0, JOIN), path(1, FIRST), path(2, SECOND)
    needed = {join: frozenset({1, 2}), first: frozenset({1}), second: frozenset({2})}
    good = growth({join: rose(15), first: rose(15), second: rose(35)}, needed, {1: 16.0, 2: 36.0})
    late = growth({join: rose(15), first: rose(35), second: rose(25)}, needed, {1: 34.0, 2: 26.0})
    half = growth({join: rose(15), first: rose(15), second: torch.zeros(5)}, needed, {1: 15.0, 2: math.inf})
    losses, heads, abrupt, drives, shared, slow = judge([good, late, half], 40.0, "quick")
    assert (losses.value, heads.value) == (0.5, 0.5)  # late is out of order; half retrieves one alone
    assert heads.detail == "2 of 3 models retrieve every symbol"
    assert abrupt.value == pytest.approx((5 / 12.5 + 5 / 32.5) / 2)
    assert drives.value == pytest.approx(1 / 40)
    assert shared.value == pytest.approx(0.5)
    assert slow.verdict == "not measured"
    nothing = judge([half], 40.0, "quick")
    assert {one.verdict for one in nothing} == {"not measured"}


def test_circuits_are_judged_by_hand_made_ones():
    solved = circuit(path(0, JOIN), path(1, FIRST), path(3, SECOND, cut=0.4), loss=0.02)
    unsolved = circuit(path(0, FIRST), loss=0.6, model=0.5)
    keeps = circuit(path(1, FIRST), path(2, SECOND))
    keeps = replace(keeps, explanations={**keeps.explanations, (0, 0): None})
    models = [Solution(at, at, one) for at, one in enumerate((solved, unsolved, keeps))]
    names = [claim.id.rpartition("/")[2] for claim in CLAIMS]
    found = dict(zip(names, judge_circuits(models, (0.07, 0.9, 0.5), steps=2, layers=4, profile="quick"), strict=True))
    assert found["solved"].value == 0.5
    assert found["suffices"].value == 0.5  # one of the two that solve it keeps a head's own attention
    assert found["needed"].value == pytest.approx(0.4 / 0.02)
    assert found["needed-as-printed"].value == pytest.approx(0.2)
    assert found["first-is-indirect"].value == pytest.approx(0.07)
    assert found["first-joins-pair"].value == 1
    assert found["few-heads"].verdict == "not measured"  # three heads are the least, and four are no twice as many
    assert found["more-than-least"].value == 0
    assert found["differ"].verdict == "not measured"
    six = judge_circuits(models, (0.07, 0.9, 0.5), steps=2, layers=6, profile="quick")[names.index("few-heads")]
    assert six.value == pytest.approx(0.25)  # one of the four heads written down


def test_circuits_differ_by_what_their_later_heads_do_and_not_by_layers():
    one = circuit(path(0, JOIN), path(1, FIRST), path(3, SECOND))
    moved = circuit(path(1, FIRST), path(2, FIRST), path(3, SECOND))
    swapped = circuit(path(0, JOIN), path(1, SECOND), path(3, FIRST))
    assert later_rules(one) == later_rules(moved)
    assert later_rules(one) != later_rules(swapped)
    assert [[each.layer for each in head] for head in by_head((path(2, FIRST), path(0, JOIN), path(2, JOIN)))] == [
        [0],
        [2, 2],
    ]
    assert joining(2) == {JOIN, AttentionRule("x2 of pair 2", "x1 of pair 2")}


def test_needs_are_rises_of_partial_losses():
    """A path whose cut leaves the answers as they are is needed for nothing; the rise is that of each symbol alone."""
    retrieval = task("retrieval/minimal", chains=2, steps=2)
    ensemble = initialise(VectorSpec(layers=4, heads=1, width=8, feed_forward=False), retrieval.shape, [0])
    weights = {name: torch.zeros_like(value) for name, value in ensemble.weights.items()}
    batch = retrieval.sample("test", 400, seed=0)
    measured = AttentionLosses(ensemble.with_weights(weights), retrieval, batch)
    one = circuit(path(0, SECOND))
    assert needs(one, measured) == {path(0, SECOND): frozenset()}  # all answers are 0 whatever it looks at

    class Reading(AttentionLosses):
        """Answers x_2 as long as the path is there, and never x_1."""

        def outputs(self, assignment, live=False):
            answers = torch.zeros_like(batch.answers)
            if assignment[0, 0].rules:
                answers[..., retrieval.features :] = batch.answers[..., retrieval.features :]
            return answers

    assert needs(one, Reading(ensemble, retrieval, batch)) == {path(0, SECOND): frozenset({2})}
