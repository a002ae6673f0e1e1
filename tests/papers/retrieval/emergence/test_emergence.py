"""What the study of emergence measures, on growths written by hand."""

import math
from dataclasses import replace
from math import inf, nan

import pytest
import torch

from anchorlab.lens.circuits import AttentionLosses
from anchorlab.models import VectorSpec
from anchorlab.papers.retrieval import one_head
from anchorlab.papers.retrieval.chain_order import in_order
from anchorlab.papers.retrieval.emergence import emerging
from anchorlab.papers.retrieval.emergence.emergence import STUDY, Seen
from anchorlab.papers.retrieval.emergence.emerging import Growth, distance, needs, reused, rise
from anchorlab.papers.retrieval.one_head import Solution
from anchorlab.papers.retrieval.settings import smoke
from anchorlab.tasks import task
from anchorlab.training import FixedSample
from anchorlab.training.ensemble import initialise
from tests.papers.hand_made_circuits import FIRST, JOIN, SECOND, circuit, maps_titled, path, titled
from tests.papers.hand_made_runs import HandMadeRun, results_of, seen_by_hand, values_of, verdicts_of

STEPS = (0, 10, 20, 30, 40)
JOINS, FIRSTS, SECONDS = path(0, JOIN), path(1, FIRST), path(2, SECOND)
NEEDS = {JOINS: frozenset({1, 2}), FIRSTS: frozenset({1}), SECONDS: frozenset({2})}
FLAT = torch.zeros(5)
STILL = torch.ones(5)
NONE = torch.empty(0)


def seen_of(models, end, behind):
    return seen_by_hand(Seen, models=models, end=end, behind=behind)


def growth(attention, needed=NEEDS, retrieved=None, loss=STILL):
    solution = Solution(0, 0, circuit(*attention))
    return Growth(solution, STEPS, needed, attention, retrieved or {1: inf, 2: inf}, STEPS, loss, replaced=0.015)


def rose(at, within=10):
    """Attention that passes one half at this step, from 0 to 1 within so many."""
    return ((torch.tensor(STEPS) - at) / within + 0.5).clamp(0, 1)


def test_a_symbol_arrives_with_the_last_path_that_it_needs():
    idle = path(3, FIRST)
    one = growth({JOINS: rose(15), FIRSTS: rose(25), SECONDS: FLAT, idle: FLAT}, {**NEEDS, idle: frozenset()})
    assert one.paths_of(1) == [JOINS, FIRSTS]
    assert one.paths_of(2) == [JOINS, SECONDS]
    assert one.paths_of(3) == []
    assert one.crossing(JOINS) == pytest.approx(15)
    assert one.arrival(1) == pytest.approx(25)
    assert one.arrival(2) == inf
    assert math.isnan(one.arrival(3))
    assert rise(one, 1) == pytest.approx((27.5 - 22.5) / 22.5)
    assert math.isnan(rise(one, 2)) and math.isnan(rise(one, 3))
    assert rise(growth({JOINS: FLAT, FIRSTS: rose(40, 20), SECONDS: FLAT}, {FIRSTS: frozenset({1})}), 1) == (
        pytest.approx((40 - 35) / 35)  # 0.75 never comes: up to the end
    )
    turned = growth({JOINS: rose(25), FIRSTS: rose(15), SECONDS: FLAT})
    assert rise(turned, 1) == pytest.approx(5 / 22.5)  # the last to come is in the lower layer
    assert reused(replace(one, retrieved={1: 5.0, 2: 6.0})) == [0.5]
    assert reused(replace(one, retrieved={1: 5.0, 2: inf, 3: 6.0})) == [0.0]  # the next that is retrieved
    assert reused(replace(one, retrieved={1: 5.0, 2: inf, 3: inf})) == []


@pytest.mark.parametrize(
    ("times", "apart", "order"),
    [
        ([1.0, 2.0, 3.0], 0, 1.0), ([1.0, 3.0, 2.0], 0, 0.0), ([1.0, 1.0, 2.0], 0, 1.0), ([1.0, 2.0, 2.0], 0, 1.0),
        ([3.0, 2.0, 2.5], 0, 0.0), ([1.0, 2.0, inf], 0, 1.0), ([1.0, inf, inf], 0, 1.0), ([inf, inf], 0, 0.0),
        ([inf, 1.0, 2.0], 0, 0.0), ([1.0, nan, 2.0], 0, 1.0), ([nan, nan, 2.0], 0, nan),
        # near times are tied: the first is before both; then neighbours are tied, and the last is before the first
        ([10.0, 31.0, 30.0], 5, 1.0), ([10.0, 35.0, 30.0], 5, 0.0), ([10.0, 7.0, 4.0], 5, 0.0),
        ([10.0, 9.0, 8.0], 5, nan), ([10.0, 9.0, inf], 5, 1.0), ([inf, inf, inf], 5, 0.0),
    ],
)  # fmt: skip
def test_chain_order_and_times_that_are_near(times, apart, order):
    found = float(in_order(torch.tensor([times]), apart=float(apart))[0])
    assert found == order or (math.isnan(found) and math.isnan(order))


def test_the_order_of_heads_is_that_of_symbols_and_not_of_losses():
    both = growth(
        {JOINS: rose(15), FIRSTS: rose(35)}, {JOINS: frozenset({1}), FIRSTS: frozenset({1, 2})}, {1: 34.0, 2: 35.0}
    )
    assert values_of(STUDY, seen_of([both], 40.0, NONE))["heads-in-chain-order"] == 1.0
    rising = {JOINS: rose(15), FIRSTS: rose(25), SECONDS: FLAT}
    assert distance(growth(rising, retrieved={1: 22.0, 2: inf}), 40.0) == pytest.approx(3)
    assert distance(growth(rising, retrieved={1: 22.0, 2: 30.0}), 40.0) == 40  # x_2 fell, its path never emerged
    assert math.isnan(distance(growth(rising), 40.0))


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ([0.0, 1.0, 2.0, 4.0], 1.0),
        ([0.0, 1.0, 3.0, 4.0], 0.0),
        ([0.0, 5.0, 6.0, 8.0], 1.0),
        ([0.0, 1.0, 2.0, inf], 1.0),  # at least 8 later, since the training takes 10 steps
        ([0.0, 1.0, 6.0, inf], nan),  # at least 4 later: perhaps no more than 5
        ([0.0, 1.0, inf, inf], nan),
        ([0.0, 1.0, 2.0, nan], nan),
        ([1.0, 2.0, 4.0], nan),  # the paper's late head is that of a fourth symbol
    ],
)
def test_the_last_gap(times, found):
    assert emerging.slower(torch.tensor(times), 10.0) == pytest.approx(found, nan_ok=True)


FALLS = torch.tensor([1, 0.9, 0.8, 0.6, 0.2])
GOOD = growth({JOINS: rose(15), FIRSTS: rose(15), SECONDS: rose(35)}, retrieved={1: 16.0, 2: 36.0}, loss=FALLS)
LATE = growth({JOINS: rose(15), FIRSTS: rose(35), SECONDS: rose(25)}, retrieved={1: 34.0, 2: 26.0}, loss=FALLS)
HALF = growth({JOINS: rose(15), FIRSTS: rose(15), SECONDS: FLAT}, retrieved={1: 15.0, 2: inf})


@pytest.mark.parametrize(
    ("times", "loss", "found"),
    [
        ((10.0, 30.0), (1.0, 0.9, 0.7, 0.5, 0.5), 0.01 / 0.02),
        ((30.0, 10.0), (1.0, 0.9, 0.7, 0.5, 0.5), 0.01 / 0.02),  # whichever symbol is first
        ((5.0, 25.0, inf), (1.0, 0.8, 0.6, 0.2, 0.0), 0.02 / (0.9 / 35)),  # up to the end, after which x_3 falls
        ((20.0, inf), (1.0, 0.9, 0.7, 0.5, 0.5), 0.015 / 0.01),
        ((20.0, 40.0), (1.0, 0.6, 0.2, 0.2, 0.2), inf),
        ((20.0, 40.0), (0.8, 0.9, 1.0, 0.9, 0.8), -1.0),
        ((20.0, 40.0), (1.0, 0.9, 0.8, 0.9, 1.0), inf),
        ((20.0, 20.0), (1.0, 0.9, 0.7, 0.5, 0.5), nan),
        ((0.0, 20.0), (1.0, 0.9, 0.7, 0.5, 0.5), nan),
        ((inf, inf), (1.0, 1.0, 1.0, 1.0, 1.0), nan),
        ((20.0, 40.0), (3.0, 1.0, 0.9, 0.7, 0.5), 0.01 / 0.02),  # from 1.0 down: 0.105 / 0.02 from the beginning
        ((25.0, 35.0), (1.8, 1.2, 0.8, 0.6, 0.2), (0.3 / 10) / (0.3 / 10)),  # 1.0 is passed at 15
        ((20.0, 40.0), (0.9, 0.8, 0.7, 0.5, 0.3), 0.01 / 0.02),  # below 1.0 from the beginning
        ((20.0, 40.0), (2.0, 0.9, 1.1, 0.7, 0.7), (-0.1 / (10 + 10 / 11)) / 0.02),  # once below, it counts
        ((10.0, 40.0), (2.0, 1.5, 0.9, 0.7, 0.5), nan),  # the first symbol falls while the others still rise above 1
        ((20.0, 40.0), (2.0, 1.9, 1.8, 1.7, 1.6), nan),
    ],
)
def test_the_pace_before_and_after_the_first_symbol(times, loss, found):
    """Before means from the step on at which the loss is 1.0, that of no answer."""
    one = growth({}, retrieved=dict(enumerate(times, 1)), loss=torch.tensor(loss))
    assert emerging.pace(one) == pytest.approx(found, nan_ok=True)


def test_validation_behind_training_in_shares_of_the_fall():
    """The excess is the largest at any time; a model that does not learn has none, and one that is ahead a negative."""
    training = torch.tensor([[1.0, 0.5, 0.2], [1.0, 1.0, 1.0], [1.0, 0.6, 0.5], [1.0, nan, nan]])
    validation = torch.tensor([[1.01, 0.7, 0.21], [1.0, 2.0, 2.0], [0.9, 0.5, 0.45], [1.0, nan, nan]])
    assert emerging.behind(training, validation).tolist() == pytest.approx([0.2 / 0.8, -0.05 / 0.5])


def test_a_stream_is_trained_on_a_sample_too():
    """The sample is seen 6.25 times, as 262,144 sequences are in 6400 steps of 256."""
    quick, sampled = STUDY.experiments_of("quick")
    recipe = sampled.recipe
    assert recipe.data == FixedSample(size=14_336)
    assert (recipe.evaluation.splits, recipe.evaluation.every) == (("train", "test"), quick.recipe.evaluation.every)
    assert sampled.members == quick.members.take(range(4))
    assert (sampled.task, sampled.model) == (quick.task, quick.model)
    assert len(STUDY.experiments_of("scaled")[1].members) == 2
    (paper,) = STUDY.experiments_of("paper")
    assert paper.recipe.data == FixedSample(size=262_144)


def test_models_are_judged_by_the_symbols_that_they_retrieve():
    """The third retrieves x_1 alone, which has a head that emerges and drives down a loss; order and reuse take two."""
    seen = seen_of([GOOD, LATE, HALF], 40.0, torch.tensor([0.01, 0.04]))
    assert values_of(STUDY, seen) == {
        "heads-in-chain-order": 0.5,
        "abrupt": pytest.approx((5 / 12.5 + 5 / 32.5 + 5 / 12.5) / 3),
        "slow-first": pytest.approx((0.01 / 0.024 + (0.32 / 26) / 0.03) / 2),
        "losses-together": pytest.approx(0.025), "drives-loss": pytest.approx((1 + 1 + 0) / 3 / 40),
        "reuse": pytest.approx(0.5), "later-slower": None, "solved": pytest.approx(0.005),
        "ablated": pytest.approx(0.015), "same-positions": 0.0,
    }  # fmt: skip
    judged = STUDY.claims[5](seen)
    assert (judged.spread, judged.detail) == ("0.5 to 0.5 over 2 models", "2 of 3 models")
    never = seen_of([growth(HALF.attention)], 40.0, NONE)
    verdicts = verdicts_of(STUDY, never)
    assert {name for name, verdict in verdicts.items() if verdict != "not measured"} == {"solved", "ablated"}
    assert STUDY.claims[0](never).detail == "0 of 1 models"


def test_one_seed_of_the_papers_setting_has_a_value_for_every_claim():
    """Its last symbol is not retrieved within the training: later than any step. Its loss guards one claim alone."""
    needed, rules = ((1, 2, 3), (2, 3), (3,)), (JOIN, FIRST, FIRST)
    course = torch.tensor([1, 0.9, 0.6, 0.35, 0.3])
    one = grown((10, 15, 20), (10, 16, 20, inf), needed, rules, course, replaced=0.01, model=0.3)
    results = STUDY.judge(seen_of([one], 40.0, torch.tensor([0.0])), "paper")
    found = {result.claim.id.rpartition("/")[2]: result for result in results}
    assert {name: result.value for name, result in found.items()} == {
        "heads-in-chain-order": 1.0,
        "abrupt": pytest.approx(1 / 9.5),
        "slow-first": pytest.approx(0.01 / (0.6 / 30)),
        "losses-together": 0.0,
        "drives-loss": pytest.approx(1 / 40),
        "reuse": 1.0,
        "later-slower": 1.0,  # x_4 comes at least 20 steps after x_3, and x_3 five after x_2
        "solved": pytest.approx(0.3),
        "ablated": None,
        "same-positions": 1.0,
    }
    assert found["ablated"].detail == "0 of 1 models"
    assert {one.verdict for one in found.values() if one.value is not None} == {"undecided", "not met"}  # one model
    assert all(found[name].agrees for name in ("abrupt", "slow-first", "drives-loss", "reuse"))
    missed = grown((10, 15, 20), (10, 16, inf, inf), needed, rules, course, model=0.03)
    both = STUDY.judge(seen_of([one, missed], 40.0, NONE), "paper")
    assert [result.value for result in both if result.claim.id.endswith("/ablated")] == [pytest.approx(0.01)]


def grown(emerged, fell, needed, rules=(JOIN, FIRST, SECOND, SECOND), course=STILL, replaced=0.01, model=0.005):
    """A model whose symbols each have a path of their own that emerges at these steps within two.

    `course` is its loss at the steps 0, 10, 20, 30 and 40.
    """
    rules = rules[: len(emerged)]
    paths = [path(layer, rule) for layer, rule in enumerate(rules)]
    steps = tuple(range(0, 41))
    attention = {
        one: ((torch.tensor(steps) - at) / 2 + 0.5).clamp(0, 1) for one, at in zip(paths, emerged, strict=True)
    }
    needs = {one: frozenset(symbols) for one, symbols in zip(paths, needed, strict=True)}
    retrieved = dict(enumerate(map(float, fell), 1))
    solution = Solution(0, 0, circuit(*paths, model=model))
    return Growth(solution, steps, needs, attention, retrieved, STEPS, course, replaced)


def test_lower_losses_other_orders_and_units_of_models():
    better = seen_of([grown((10, 30), (10, 30), ((1, 2), (2,)), replaced=-0.01)], 40.0, NONE)
    assert verdicts_of(STUDY, better)["ablated"] == "differs at small scale"
    mixed = values_of(STUDY, seen_of([grown((2, 30, 20), (5, 20, 29), ((1,), (2,), (3,)))], 40.0, NONE))
    assert mixed["heads-in-chain-order"] == 0.0
    found = results_of(STUDY, seen_of([grown((2, 30, 20), (5, 20, 29), ((1, 2), (2,), (3,)))] * 2, 40.0, NONE))
    assert found["reuse"].units == (0.5, 0.5)  # of x_1's path and of none of x_2's paths
    assert found["heads-in-chain-order"].interval == pytest.approx((0.0, 1 - 0.05**0.5))  # exact binomial: 0 of 2


def test_needs_are_rises_of_partial_losses():
    """A path whose cut leaves the answers as they are is needed for nothing; the rise is that of each symbol alone.

    Only the live answers count, for which the other paths attend as the model makes them.
    """
    retrieval = task("retrieval/minimal", chains=2, steps=2)
    ensemble = initialise(VectorSpec(layers=4, heads=1, width=8, feed_forward=False), retrieval.shape, [0])
    weights = {name: torch.zeros_like(value) for name, value in ensemble.weights.items()}
    batch = retrieval.sample("test", 400, seed=0)
    measured = AttentionLosses(ensemble.with_weights(weights), retrieval, batch)
    one = circuit(path(0, SECOND))
    assert needs(one, measured) == {path(0, SECOND): frozenset()}  # all answers are 0 with the path and without it

    class Reading(AttentionLosses):
        """As long as the path is there, a fifth of x_2 and a fiftieth of x_1 are answered live, and with maps all x_1.

        That lowers the partial losses by 0.36 and by 0.04.
        """

        def outputs(self, assignment, live=False):
            answers = torch.zeros_like(batch.answers)
            if assignment[0, 0].rules:
                shares = torch.tensor([0.02, 0.2] if live else [1.0, 0.0])
                answers = batch.answers * shares.repeat_interleave(retrieval.features)
            return answers

    assert needs(one, Reading(ensemble, retrieval, batch)) == {path(0, SECOND): frozenset({2})}


def test_all_attention_is_replaced_that_of_unexplained_heads_too():
    retrieval = task("retrieval/minimal", chains=2, steps=2)
    ensemble = initialise(VectorSpec(layers=4, heads=1, width=8, feed_forward=False), retrieval.shape, [0])
    half = replace(circuit(FIRSTS), explanations={**circuit(FIRSTS).explanations, (2, 0): None})

    class Counting(AttentionLosses):
        """Nothing replaced costs 0.005, and each replaced head 0.01; with maps alone."""

        def loss(self, assignment, live=False):
            assert not live and None not in assignment.values()
            return 0.005 + 0.01 * len(assignment)

    measured = Counting(ensemble, retrieval, retrieval.sample("test", 4, seed=0))
    assert emerging.rise_replaced(half, measured) == pytest.approx(0.04)
    assert emerging.rise_replaced(circuit(FIRSTS, layers=2), measured) == pytest.approx(0.02)


def uniform_run(values, checkpoints):
    """A run whose second member has no weights, so that its heads attend uniformly to what comes before."""
    experiment = smoke(2)
    ensemble = initialise(experiment.model, experiment.task.shape, [0, 1])
    scale = torch.tensor([50.0, 0.0])
    weights = {name: torch.einsum("m,m...->m...", scale, value) for name, value in ensemble.weights.items()}
    ensemble = ensemble.with_weights(weights)
    return HandMadeRun(experiment, (0, 3, 6), values, dict.fromkeys(checkpoints, ensemble))


def test_growths_are_read_member_by_member(monkeypatch):
    """Four chains of two steps: queries at 16 to 19 attend uniformly to the 17 to 20 positions up to their own."""
    never = [1.0, 1.0, 1.0]
    values = {
        ("test", "partial_1"): [never, [1.0, 0.0, 0.0]], ("test", "partial_2"): [never, [1.0, 1.0, 0.25]],
        ("train", "partial_1"): [[0.0] * 3, [0.0] * 3], ("train", "partial_2"): [[0.0] * 3, [0.0] * 3],
        ("test", "loss"): [[1.0, 0.9, 0.8], [1.0, 0.7, 0.6]],
    }  # fmt: skip
    both = {("train", "loss"): [[1.0, 0.6, 0.5], never], ("test", "loss"): [[1.0, 0.65, 0.6], never]}
    sampled = HandMadeRun(smoke(2), (0, 3, 6), both)
    found = [Solution(1, 1, circuit(FIRSTS, layers=2))]
    monkeypatch.setattr(emerging, "solutions", lambda run, rise: found if rise == 0.02 else [])
    seen = seen_by_hand(Seen, runs={"models": uniform_run(values, (3, 6)), "sampled": sampled})
    (one,) = seen.models
    assert (seen.end, seen.symbols, one.steps, one.solution) == (6.0, [1, 2], (3, 6), found[0])
    assert one.retrieved == {1: pytest.approx(1.5), 2: pytest.approx(3 + 3 * 0.5 / 0.75)}
    expected = (1 / 17 + 1 / 18 + 1 / 19 + 1 / 20) / 4
    assert one.attention[FIRSTS].tolist() == pytest.approx([expected, expected])
    assert one.needs == {FIRSTS: frozenset()}
    assert one.replaced == 0.0  # without weights attention brings nothing
    assert (one.evaluated, one.loss.tolist()) == ((0, 3, 6), pytest.approx([1.0, 0.7, 0.6]))
    assert seen.behind.tolist() == pytest.approx([0.1 / 0.5])


def test_figures_and_table(monkeypatch):
    """A symbol that needs no path has no time at which its paths emerge."""
    empty = circuit()
    needless = replace(GOOD, solution=Solution(2, 7, empty), needs={}, attention={}, retrieved={1: 20.0, 2: 30.0})
    models = [GOOD, replace(HALF, solution=Solution(1, 5, empty)), needless]
    monkeypatch.setattr(emerging, "growths", lambda run, rise: models)
    monkeypatch.setattr(one_head, "view_circuits", lambda run, models: titled(f"{len(models)} models"))
    monkeypatch.setattr(one_head, "attention_maps", lambda run, one: maps_titled(f"seed {one.seed}"))
    values = {("test", f"partial_{symbol}"): [[1, 1, 0.1 * symbol]] * 2 for symbol in (1, 2)}
    values["test", "loss"] = [[1, 0.9, 0.8]] * 2
    both = {("test", "loss"): [[1, 0.8, 0.5]] * 2, ("train", "loss"): [[1, 0.7, 0.4]] * 2}
    runs = [HandMadeRun(smoke(2), (0, 3, 6), values, {0: None, 6: None}), HandMadeRun(smoke(2), (0, 3, 6), both)]
    found = STUDY.analysis(runs, smoke(2))
    whole, losses, _, maps, attention, timeline = found.figures
    assert maps.title == f"seed {GOOD.solution.seed}"
    assert [(one.label, one.mean) for one in whole.lines] == [
        ("training sequences", pytest.approx((1, 0.7, 0.4))),
        ("fresh sequences", pytest.approx((1, 0.8, 0.5))),
        ("fresh sequences, every batch fresh", pytest.approx((1, 0.9, 0.8))),
    ]
    assert [(one.label, one.mean) for one in losses.lines] == [("x_1", (1, 1, 0.1)), ("x_2", (1, 1, 0.2))]
    assert attention.lines[2].label == f"layer 2: {SECOND} [x_2]"
    assert attention.lines[2].mean == (0, 0, 0, 0, 1)
    assert [(one.label, one.at) for one in timeline.events] == [
        ("all paths that x_1 needs", (15, 15, None)), ("x_1", (16, 15, 20)),
        ("all paths that x_2 needs", (35, None, None)), ("x_2", (36, None, 30)),
    ]  # fmt: skip
    assert found.tables[0].rows[2] == (0, 2, "query x0", "x2 of pair 2", "x_2", 35, 1)
    assert (timeline.end, [view.title for view in found.views]) == (40, ["3 models"])
