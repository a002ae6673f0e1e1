"""Controls: each claim on members that were never trained, and on members trained on another task."""

import json
from dataclasses import replace

import pytest
import torch

from anchorlab.cli.studies.claims import claim_data
from anchorlab.engine import Ray, run
from anchorlab.errors import StoreError
from anchorlab.findings import Control, Findings, at_least, at_most
from anchorlab.models import DecoderSpec
from anchorlab.runs import Store
from anchorlab.studies import Profile, Reading, Study, at_end, members, run_study, with_controls
from anchorlab.studies.control import CHOSEN, ELSEWHERE, other_experiments
from anchorlab.studies.readings import of_first
from anchorlab.tasks import Task, task
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.training import AdamW, Evaluation, Experiment, FixedSample, Members, Recipe
from tests.small_experiments import initial_module
from tests.studies.made_up_claims import made_up

DOC = """A study.

Of losses and weights.
"""
MODEL = DecoderSpec(layers=1, heads=1, width=8, head_width=8)
SEEDS = (4, 6)


def experiment(steps: int) -> Experiment:
    """Twenty sequences of the identity function, which a few fast steps fit."""
    recipe = Recipe(
        data=FixedSample(size=20),
        optimiser=AdamW(learning_rate=0.03),
        batch=20,
        duration=steps,
        evaluation=Evaluation(every=10, size=20),
    )
    return Experiment(task("anchor/identity"), MODEL, recipe, Members(seeds=SEEDS))


class Seen(Reading):
    loss = of_first(lambda run: at_end(run, "train", "loss"))
    weights = of_first(lambda run: run.ensemble().weights["embed.W_E"])


fits = made_up("fits", at_most(1.0), lambda seen: seen.loss)
cannot_fail = made_up("cannot_fail", at_most(1e3), lambda seen: seen.loss)
judged_where_fitted = made_up(
    "judged_where_fitted", at_least(0.0), lambda seen: seen.weights.flatten(1).norm(dim=1)[seen.loss < 1.0]
)
of_metrics_where_fitted = made_up("of_metrics_where_fitted", at_most(1.0), lambda seen: seen.loss[seen.loss < 1.0])
presupposes_learning = made_up(
    "presupposes_learning", at_least(0.0), lambda seen: seen.loss[int((seen.loss < 1.0).nonzero()[0])]
)
derived = made_up("derived", at_least(1.0), lambda seen: 1.0, exact=True)
never = made_up("never", at_most(1e9), lambda seen: 5.0 if bool((seen.loss < 1.0).all()) else float("inf"))

CLAIMS = (fits, cannot_fail, judged_where_fitted, of_metrics_where_fitted, presupposes_learning, derived, never)
PROFILES = {"quick": Profile(60, "A note.")}
STUDY = Study("own/control", DOC, CLAIMS, PROFILES, lambda steps: {"": experiment(steps)}, Seen)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def findings(store) -> Findings:
    return run_study(STUDY, "quick", store, workers=1)


def by_name(findings: Findings) -> dict[str, object]:
    return {one.claim.id.rpartition("/")[2]: one for one in findings.claims}


def test_every_claim_has_a_control_but_exact_ones_and_a_mark_where_untrained_members_pass(findings):
    assert all(one.agrees and one.scope == "own" for one in findings.claims)
    assert by_name(findings)["derived"].verdict == "supported"
    assert {name for name, one in by_name(findings).items() if one.untrained is None} == {"derived"}
    marked = {name for name, one in by_name(findings).items() if one.holds_untrained}
    assert marked == {"cannot-fail", "judged-where-fitted"}


def test_a_control_is_the_loss_and_the_norm_of_the_initial_weights(findings):
    # the cross-entropy of a module as it starts, on its member's training sequences
    from tests.small_experiments import plain_batches, plain_loss

    one = experiment(60)
    losses = []
    for member, seed in enumerate(SEEDS):
        batch = next(iter(plain_batches(one, member, seed, seed)))
        losses.append(float(plain_loss(one, initial_module(one, member), *batch).detach()))
    control = by_name(findings)["fits"].untrained
    assert control.value == pytest.approx(sum(losses) / 2, rel=1e-5)
    assert control.note == f"{min(losses):.3g} to {max(losses):.3g} over 2 seeds"
    one = experiment(60)
    norms = [initial_module(one, member).state_dict()["embed.W_E"].norm() for member in range(2)]
    control = by_name(findings)["judged-where-fitted"].untrained
    assert control.value == pytest.approx(float(torch.stack(norms).mean()), rel=1e-5)
    assert control.note.startswith(f"{CHOSEN}; ")


def test_a_control_without_a_value_and_why(store, findings):
    bare = replace(findings, claims=tuple(replace(one, untrained=None) for one in findings.claims))
    again = by_name(with_controls(STUDY, bare, store))
    assert again["judged-where-fitted"].untrained == Control(None)
    assert not again["judged-where-fitted"].holds_untrained
    assert again["fits"].untrained == by_name(findings)["fits"].untrained
    assert by_name(findings)["of-metrics-where-fitted"].untrained == Control(None)
    control = by_name(findings)["presupposes-learning"].untrained
    assert control.value is None and control.note.startswith("fails: IndexError: index 0 is out of bounds")
    one = by_name(findings)["never"]
    assert one.untrained == Control(float("inf")) and not one.holds_untrained


def test_an_analysis_that_fails_on_untrained_members_is_told_from_a_damaged_store(tmp_path, monkeypatch):
    def fragile(runs, setting) -> Seen:
        found = Seen(runs)
        if (found.loss > 1.0).any():
            raise ValueError("nothing was\nlearned")
        return found

    one = run_study(replace(STUDY, reads=fragile), "quick", Store(tmp_path), workers=1)
    assert by_name(one)["fits"].verdict == "supported"
    assert by_name(one)["fits"].untrained == Control(None, "fails: ValueError: nothing was learned")

    def damaged(runs, setting) -> Seen:
        if not runs[""].experiment.trained:
            raise StoreError("metrics.parquet: damaged")
        return Seen(runs)

    with pytest.raises(StoreError, match="damaged"):
        run_study(replace(STUDY, reads=damaged), "quick", Store(tmp_path), workers=1)


def test_controls_survive_json_and_new_bands(findings):
    assert Findings.from_json(findings.to_json()) == findings
    stricter = replace(cannot_fail, band=at_most(1.0))
    again = replace(STUDY, claims=tuple(stricter if one is cannot_fail else one for one in CLAIMS)).judge_again(
        findings
    )
    assert not by_name(again)["cannot-fail"].holds_untrained
    assert by_name(again)["cannot-fail"].untrained == by_name(findings)["cannot-fail"].untrained


def test_a_study_without_experiments_has_no_controls(tmp_path):
    class Drawn(Reading):
        loss = torch.zeros(1)

    drawn = Study("own/drawn", DOC, (never,), {"quick": Profile(0, "")}, reads=Drawn)
    (one,) = run_study(drawn, "quick", Store(tmp_path)).claims
    assert (one.agrees, one.untrained, one.holds_untrained) == (True, None, False)


def other_task(experiment: Experiment) -> Task:
    """The token before the anchor in place of the one after it."""
    return experiment.task.replace(rules={"before": Rule.parse("x A -> A(x)")})


width = made_up("width", at_least(8.0), lambda seen: float(seen.weights.shape[-1]))
norm = made_up("norm", at_least(0.0), lambda seen: seen.weights.flatten(1).norm(dim=1))
TWICE = replace(STUDY, name="own/twice", claims=(*CLAIMS, width, norm), other_task=other_task, chosen_on=range(2))


@pytest.fixture(scope="module")
def twice(store) -> Findings:
    return run_study(TWICE, "quick", store, workers=1)


def test_a_second_control_has_the_weights_and_accuracies_that_another_task_gave(store, twice):
    one = experiment(60)
    before = len(store.runs())
    (elsewhere,) = run([replace(one, task=other_task(one))], store, workers=1)
    assert len(store.runs()) == before, "the study has trained it"
    norms = elsewhere.ensemble().weights["embed.W_E"].flatten(1).norm(dim=1)
    found = by_name(twice)
    for name in ("norm", "judged-where-fitted"):  # the latter by what the same seeds reach on the study's own task
        assert found[name].other_task.value == pytest.approx(float(norms.mean()), rel=1e-6)
        assert found[name].other_task.value != pytest.approx(found[name].value, rel=1e-3)
    (elsewhere,) = run([*other_experiments(TWICE, "quick").values()], store, workers=1)
    (shown,) = [one for one in twice.tables if one.title == ELSEWHERE]
    for row, split in zip(shown.rows, ("train", "test"), strict=True):
        reached = at_end(elsewhere, split, "accuracy")
        assert row == ("anchor/identity", f"accuracy, {split}", *map(float, (reached.mean(), *reached.aminmax())))


def test_the_second_mark_comes_where_members_of_another_task_pass(twice):
    with_one = {name for name, one in by_name(twice).items() if one.other_task is not None}
    assert with_one == {"judged-where-fitted", "norm", "width"}
    strict = replace(norm, band=at_least(1e3))
    again = replace(TWICE, claims=(*CLAIMS, width, strict)).judge_again(twice)
    marked = {name for name, one in by_name(again).items() if one.holds_for_other_task}
    assert marked == {"judged-where-fitted", "width"}
    assert by_name(again)["width"].marks == {
        "untrained": "also holds untrained", "other task": "also holds for another task",
    }  # fmt: skip
    assert "also holds for another task" in str(again)


def test_an_experiment_without_another_task_keeps_its_weights(store):
    """A claim that reads its weights alone has no second control."""

    one = experiment(60)
    second = replace(one, members=Members(seeds=(8, 9)))
    study = replace(
        TWICE,
        name="own/second",
        claims=(norm,),
        trains=lambda steps: {0: one, 1: second},
        other_task=lambda experiment: other_task(experiment) if experiment == second else None,
    )
    assert [*other_experiments(study, "quick")] == [1]
    (found,) = run_study(study, "quick", store, workers=1).claims
    assert found.untrained is not None and found.other_task is None


def test_some_claims_train_on_another_task_only_what_they_read_weights_of(tmp_path, twice):
    def elsewhere(store: Store) -> list[list[int]]:
        """The seeds of the runs that were trained on the other task."""
        return [one.spec["members"]["seeds"] for one in store.runs() if "before" in one.spec["task"]["rules"]]

    store = Store(tmp_path / "one")
    (fits,) = run_study(TWICE, "quick", store, workers=1, claims=["fits"]).claims
    assert (fits.untrained, fits.other_task, elsewhere(store)) == (by_name(twice)["fits"].untrained, None, [])
    found = by_name(run_study(TWICE, "quick", store, workers=1, claims=["fits", "norm"]))
    assert (found["fits"].other_task, elsewhere(store)) == (None, [[*SEEDS]])
    assert found["norm"].other_task == by_name(twice)["norm"].other_task
    # the metrics of one run, the weights of another
    runs = {0: experiment(60), 1: replace(experiment(60), members=Members(seeds=(8, 9)))}
    both = made_up(
        "both", at_least(0.0), lambda seen: float(seen.loss.sum() + seen.last.ensemble().weights["embed.W_E"].norm())
    )
    study = replace(TWICE, name="own/both", claims=(both,), trains=lambda steps: runs)
    store = Store(tmp_path / "two")
    (alone,) = run_study(study, "quick", store, workers=1, claims=["both"]).claims
    assert elsewhere(store) == [[8, 9]]
    (whole,) = run_study(study, "quick", store, workers=1).claims
    assert alone.other_task == whole.other_task is not None and len(elsewhere(store)) == 2


@pytest.mark.parametrize("claims", [(), ("norm",)])
def test_controls_are_read_from_parts_and_trained_where_the_study_is(tmp_path, monkeypatch, store, twice, claims):
    places = []

    def recorded(experiments, store, workers, device, report, on):
        places.append((workers, on))
        return run(experiments, store, workers, device, report=report)

    monkeypatch.setattr(members, "run", recorded)
    new, on = Store(tmp_path), Ray()
    found = run_study(TWICE, "quick", new, workers=1, on=on, parts=[store], claims=claims)
    assert new.runs() == [] and (1, on) in places and {place for _, place in places} == {on}
    assert by_name(found)["norm"].other_task == by_name(twice)["norm"].other_task


def test_a_second_control_survives_json_and_follows_varied_seeds(twice, store):
    (one,) = other_experiments(TWICE.vary(seeds=(7,)), "quick").values()
    assert (one.members.seeds, one.task) == ((7,), other_task(experiment(60)))
    assert Findings.from_json(twice.to_json()) == twice
    assert by_name(TWICE.judge_again(twice))["norm"].other_task == by_name(twice)["norm"].other_task
    assert by_name(with_controls(TWICE, twice, store))["norm"].other_task == by_name(twice)["norm"].other_task
    before = json.loads(twice.to_json())
    for one in before["claims"]:
        del one["other_task"]
    assert all(one.other_task is None for one in Findings.from_json(json.dumps(before)).claims)
    data = {one["id"].rpartition("/")[2]: one for one in map(claim_data, twice.claims)}
    assert data["width"]["other_task"] == data["width"]["untrained"] == 8.0
    assert data["width"]["holds_for_other_task"] and data["width"]["other_task_note"] == ""
    assert (data["fits"]["other_task"], data["fits"]["holds_for_other_task"]) == (None, False)
