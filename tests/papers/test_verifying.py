"""What a budget pays for: by hand-made costs, the cheapest claims first."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from anchorlab.engine import ForecastCell, run
from anchorlab.errors import SpecError
from anchorlab.papers.published import published
from anchorlab.papers.verifying import Candidate, Plan, candidates, make_plan, needing_no_run, ordered, settled_in
from anchorlab.runs import Store
from anchorlab.studies import study
from tests.small_experiments import experiment

RUNS = [experiment(duration=steps) for steps in (4, 6, 8)]
A, B, C = (one.cell.address for one in RUNS)
FLOW = "retrieval/information-flow"


def candidate(claims: str, *runs: int) -> Candidate:
    return Candidate(study(FLOW), claims, frozenset(claims), tuple(RUNS[run] for run in runs))


def names(steps) -> list[str]:
    return [step.candidate.profile for step in steps]


def test_the_most_claims_per_second_come_first_within_the_budget():
    plan = ordered([candidate("x", 0), candidate("uvw", 1), candidate("yz", 2)], {A: 1.0, B: 6.0, C: 1.0}, budget=100)
    assert (names(plan.within), plan.beyond) == (["yz", "x", "uvw"], ())
    assert plan.seconds == 8.0
    plan = ordered([candidate("xyz", 0), candidate("u", 1)], {A: 12.0, B: 5.0, C: 0.0}, budget=10)
    assert (names(plan.within), names(plan.beyond)) == (["u"], ["xyz"])
    plan = ordered([candidate("xy", 0), candidate("z", 1), candidate("u", 2)], {A: 6.0, B: 6.0, C: 4.0}, budget=10)
    assert (names(plan.within), names(plan.beyond)) == (["xy", "u"], ["z"])
    first, second = ordered([candidate("x", 0), candidate("y", 1)], {A: 1.0, B: 2.0}, budget=10, rough={B}).within
    assert (first.rough, second.rough) == (False, True)


def test_a_shared_run_is_paid_once_but_not_by_what_does_not_fit():
    shared = [candidate("xy", 0), candidate("z", 0, 1)]
    plan = ordered(shared, {A: 6.0, B: 3.0}, budget=10)
    assert [(step.candidate.profile, step.seconds) for step in plan.within] == [("xy", 6.0), ("z", 3.0)]
    plan = ordered(shared, {A: 60.0, B: 3.0}, budget=10)
    assert (names(plan.within), names(plan.beyond)) == ([], ["xy", "z"])
    plan = ordered([candidate("x", 0), candidate("y", 0, 1), candidate("z", 2)], {A: 1.0, B: 2.0, C: 9.0}, budget=100)
    assert [(step.seconds, step.shared) for step in plan.within] == [(1.0, ()), (2.0, (FLOW,)), (9.0, ())]


def test_a_step_says_whose_runs_it_uses_and_whether_some_are_in_the_store():
    first = replace(candidate("xy", 0), study=study("anchor/identity"))
    plan = ordered([first, candidate("z", 0, 1), candidate("u", 2)], {A: 1.0, B: 2.0, C: 0.0}, budget=9, kept={C})
    assert {one.candidate.profile: (one.shared, one.kept) for one in plan.within} == {
        "u": ((), True), "xy": ((), False), "z": (("anchor/identity",), False),
    }  # fmt: skip
    whole = ordered(
        [first, candidate("z", 0), candidate("w", 1, 2)], {A: 1.0, B: 2.0, C: 0.0}, budget=9, kept={C}
    ).within
    assert [(one.seconds, one.shared, one.kept) for one in whole] == [
        (1.0, (), False), (0.0, ("anchor/identity",), False), (2.0, (), True),
    ]  # fmt: skip
    assert not any(step.kept for step in ordered([candidate("x")], {}, budget=1e9).within)  # it trains nothing


def test_what_planning_took_is_no_longer_there_for_training(tmp_path, monkeypatch):
    """Three seconds of ten: two studies of four seconds each fit the budget, but not what is left of it."""
    now = iter(range(100))  # a clock that a second passes between two looks
    monkeypatch.setattr("anchorlab.papers.verifying.time", SimpleNamespace(monotonic=lambda: next(now)))
    monkeypatch.setattr("anchorlab.papers.verifying.estimated_seconds", lambda one: 4.0)
    cells = lambda some: [ForecastCell(one, False, False, 4.0) for one in some]  # noqa: E731
    monkeypatch.setattr(
        "anchorlab.papers.verifying.forecast", lambda some, *_, **__: SimpleNamespace(cells=cells(some))
    )
    found = [candidate("x", 0), candidate("y", 1)]
    plan = make_plan(found, 10.0, store=Store(tmp_path), workers=1)
    assert (names(plan.within), names(plan.beyond), plan.planning) == (["x"], ["y"], 3)
    assert names(ordered(found, {A: 4.0, B: 4.0}, 10.0).within) == ["x", "y"]


def test_a_plan_knows_the_runs_in_the_store(tmp_path):
    found = [candidate("x", 0), candidate("y", 1)]
    run(RUNS[:1], tmp_path, workers=1)
    plan = make_plan(found, 100.0, store=Store(tmp_path), workers=1)
    assert {one.candidate.profile: one.kept for one in plan.within} == {"x": True, "y": False}


def test_settled_claims_are_not_bought_again():
    plan = ordered([candidate("x", 0), candidate("xy", 1)], {A: 1.0, B: 1.0}, budget=10, settled="x")
    assert [(names([step])[0], set(step.claims)) for step in plan.within] == [("xy", {"y"})]
    assert ordered([candidate("x", 0)], {A: 1.0}, budget=10, settled="x") == Plan((), ())


def test_candidates_are_exact_claims_profiles_of_the_papers_setting_and_checks_of_theorems():
    found = {
        (one.study.name, one.profile): one for one in candidates(["truncation/associative-memory", "anchor/learners"])
    }
    assert set(found) == {
        ("truncation/associative-memory", "quick"), ("truncation/associative-memory", "paper"),
        ("anchor/learners", "paper"), ("anchor/learners", "paper-text"),
    }  # fmt: skip
    exact, whole = (found["truncation/associative-memory", name].claims for name in ("quick", "paper"))
    assert 0 < len(exact) < len(whole) == 8 and exact < whole
    with pytest.raises(SpecError):
        candidates(["anchor/nothing"])
    # no profile has the setting of a theorem that names no sizes; a study's own question is of no paper
    names = "truncation/one-step", "truncation/attention-gradient", "truncation/rank-one-noise"
    found = {(one.study.name, one.profile): len(one.claims) for one in candidates(names)}
    assert found == {(names[0], "quick"): 13, (names[1], "quick"): 14, (names[2], "quick"): 7}
    memory = {one.profile: one.claims for one in candidates(["truncation/associative-memory"])}
    theory = {f"truncation/associative-memory/{name}" for name in ("noise-subspace", "alpha-decides")}
    assert memory["quick"] == theory < memory["paper"]


def test_studies_of_pretrained_models_and_far_beyond_the_budget_are_left_out(tmp_path):
    assert candidates(["language/heads"]) == []
    (one,) = [each for each in candidates(["anchor/recitation"]) if each.profile == "paper"]
    plan = make_plan([one], 1.0, store=Store(tmp_path))
    assert (plan.within, [step.rough for step in plan.beyond]) == ((), [True])


def test_timing_ends_after_a_tenth_of_the_budget_and_begins_with_the_cheapest(tmp_path, monkeypatch):
    found = [each for each in candidates(["anchor/recitation", "anchor/frequency"]) if each.profile == "paper"]
    now, timed = iter(range(100)), []  # a clock that a second passes between two looks

    def forecast(experiments, *_, **__):
        timed.append(experiments[0].task.name)
        return SimpleNamespace(cells=[ForecastCell(one, False, False, 1.0) for one in experiments])

    monkeypatch.setattr("anchorlab.papers.verifying.forecast", forecast)
    monkeypatch.setattr("anchorlab.papers.verifying.time", SimpleNamespace(monotonic=lambda: next(now)))
    monkeypatch.setattr("anchorlab.papers.verifying.estimated_seconds", lambda one: len(one.task.name))
    plan = make_plan(found, 15.0, store=Store(tmp_path))  # ends at 1.5 s: after one of the two
    assert timed == ["anchor/frequency"]
    assert {step.candidate.study.name: step.rough for step in (*plan.within, *plan.beyond)} == {
        "anchor/frequency": False,
        "anchor/recitation": True,
    }


def test_what_the_papers_setting_settles_today():
    memory = study("truncation/associative-memory")
    made = [one for one in published() if one.study == memory.name]
    by_profile = {one.profile: {each.claim.id for each in one.claims} for one in made}
    assert set(settled_in(made)) == by_profile["paper"]
    quick = settled_in([one for one in made if one.profile == "quick"])
    assert set(quick) == {memory.claim(each).id for each in memory.claims if each.theory}
    assert settled_in([]) == {}
    (paper,) = [one for one in published() if (one.study, one.profile) == ("truncation/associative-memory", "paper")]
    first, *rest = paper.claims
    other = replace(first, claim=replace(first.claim, measured_as="the other way round"))
    assert settled_in([replace(paper, claims=(other, *rest))]) == {}
    old = replace(first, claim=replace(first.claim, band=(-2.0, -1.0)))
    assert (first.verdict, old.verdict) == ("reproduced", "contradicted")
    assert settled_in([replace(paper, claims=(old, *rest))])[first.claim.id].verdict == "reproduced"
    one_seed = [replace(one, units=one.units[:1], interval=None) for one in paper.claims if len(one.units) > 1]
    assert one_seed and {one.verdict for one in one_seed} == {"undecided"}
    undecided = {str(place): replace(one, profile="paper:1000") for place, one in enumerate(one_seed)}
    whole, seeds = candidate("x"), replace(candidate("x"), profile="paper:1000")
    assert needing_no_run(undecided, [whole]) == set()  # there are more seeds
    assert needing_no_run(undecided, [seeds]) == needing_no_run(undecided, [whole, seeds]) == undecided.keys()
    assert needing_no_run({"0": first, "1": replace(one_seed[0], profile="paper")}, [whole]) == {"0", "1"}
    missing = replace(first, value=None, units=(), interval=None)
    assert missing.verdict == "not measured"
    assert set(settled_in([replace(paper, claims=(missing, *rest))])) == {one.claim.id for one in rest}
