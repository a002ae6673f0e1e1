"""What a study reads, when, and what is trained for some of its claims alone."""

import re
from dataclasses import replace
from math import inf

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.findings import Table, at_least, at_most
from anchorlab.models import FNNSpec
from anchorlab.runs import Store
from anchorlab.studies import Profile, Reading, Study, precondition, reading, readings, run_study
from anchorlab.studies.draws import against, curves, seed_by_seed, split_curves
from anchorlab.studies.hypotheses import Hypothesis, with_hypotheses
from anchorlab.studies.some_claims import with_claims
from anchorlab.tasks import task
from anchorlab.training import AdamW, Evaluation, Experiment, FixedSample, Members, Recipe
from tests.papers.hand_made_runs import HandMadeRun
from tests.studies.made_up_claims import made_up

STEPS = 4


def experiments(sizes):
    of = task("anchor/identity")
    model = FNNSpec(layers=1, width=4, hidden=4)
    return {
        size: Experiment(
            of,
            model,
            Recipe(
                data=FixedSample(size=size), optimiser=AdamW(), batch=10, duration=STEPS, evaluation=Evaluation(size=10)
            ),
            Members(seeds=2),
        )
        for size in sizes
    }


class Seen(Reading):
    loss = readings.at_end("test", "loss")
    fallen = readings.crossing("train", "loss", 1.0, falling=True, heading="fallen below 1")

    @reading
    def gain(self) -> torch.Tensor:
        return self.loss[20] - self.loss[40]


@pytest.mark.parametrize(
    ("reads", "draw", "problem"),
    [
        (readings.crossing("tset", "loss", 1.0), None, "reads.read: unknown split 'tset'; did you mean 'test'?"),
        (readings.at_end("test", "los"), None, "reads.read: unknown metric 'los'; did you mean 'loss'?"),
        (readings.first_at_end("tset", "loss"), None, "reads.read: unknown split 'tset'; did you mean 'test'?"),
        (None, curves("t", "tset", "loss"), "draws.1: unknown split 'tset'; did you mean 'test'?"),
        (None, curves("t", "test", "los"), "draws.1: unknown metric 'los'; did you mean 'loss'?"),
        (None, split_curves("t", {"test": "a", "trian": "b"}), "draws.1: unknown split 'trian'; did you mean 'train'?"),
    ],
)
def test_a_split_or_metric_that_no_experiment_evaluates_is_refused_before_training(reads, draw, problem):
    seen = type("Misspelt", (Reading,), {"read": reads})
    draws = [curves("t", "test", "loss"), *([] if draw is None else [draw])]
    study = Study("own/split", "A title.", (), {"quick": Profile((20,))}, experiments, seen, draws)
    own = Hypothesis(name="low", statement="It is low", metric="loss", at_most=1)
    for one in (study, with_hypotheses(study, [own])):
        with pytest.raises(SpecError, match=f"^{re.escape(problem)}$"):
            one.experiments_of("quick")


at_twenty = made_up("at_twenty", at_most(100.0), lambda seen: seen.loss[20])


more_helps = made_up(
    "more_helps",
    at_least(-10.0),
    lambda seen: seen.gain if (seen.loss[20] < 100).all() and seen.first.experiment.trained else None,
)
at_a_thousand = made_up("at_a_thousand", at_most(100.0), lambda seen: seen.loss.get(1000))  # not all profiles train it
finite = made_up("finite", at_most(1e6), lambda seen: seen.loss[60], kind=precondition, of=("at-twenty",))


def drawn(seen: Seen) -> Table:
    drawn.times += 1
    return seed_by_seed("Losses", "All.", Seen.loss, Seen.fallen)(seen)


drawn.times = 0

STUDY = Study(
    "own/readings",
    "Readings.",
    [at_twenty, more_helps, at_a_thousand, finite],
    {"quick": Profile((20, 40, 60), "A note.", paper=("at-twenty", "more-helps"))},
    trains=experiments,
    reads=Seen,
    draws=(drawn, lambda seen: None, lambda seen: [against("By size", Seen.loss, "size", "loss")(seen)]),
)


def by_hand(values):
    made = experiments(values)
    return {
        size: HandMadeRun(made[size], (0, 2, 4), {("train", "loss"): train, ("test", "loss"): test})
        for size, (train, test) in values.items()
    }


RUNS = by_hand(
    {
        20: ([[2.0, 1.5, 0.5], [2.0, 2.0, 2.0]], [[9.0, 9.0, 3.0], [9.0, 9.0, 4.0]]),
        40: ([[2.0, 0.0, 0.0], [2.0, 1.0, 0.5]], [[9.0, 9.0, 1.0], [9.0, 9.0, 3.5]]),
    }
)


def test_each_quantity_is_read_when_its_run_is_first_asked_for_and_once():
    reads = []

    class Counted(Reading):
        size = readings.Quantity(lambda run: reads.append(run) or run.experiment.recipe.data.size)

        @reading
        def twice(self):
            return 2 * self.size[20]

    seen = Counted(RUNS)
    assert (len(seen.size), list(seen.size), reads) == (2, [20, 40], [])
    assert (seen.size[20], seen.size[20], seen.twice, seen.twice) == (20, 20, 40, 40)
    assert reads == [RUNS[20]]
    assert (dict(seen.size), reads) == ({20: 20, 40: 40}, [RUNS[20], RUNS[40]])
    assert (seen.first, seen.last) == (RUNS[20], RUNS[40])
    assert (Counted.size.heading, Seen.fallen.heading, seen.size.get(60)) == ("size", "fallen below 1", None)


def test_the_end_and_the_first_crossing_of_runs_made_by_hand():
    seen = Seen(RUNS)
    assert seen.loss[20].tolist() == [3.0, 4.0]
    assert seen.fallen[20].tolist() == [3.0, inf]  # halfway between 2 and 4; never
    assert seen.fallen[40].tolist() == [1.0, 2.0]
    assert seen.gain.tolist() == [2.0, 0.5]


def test_drawings_of_runs_made_by_hand():
    made = replace(STUDY, draws=STUDY.draws).analysis(list(RUNS.values()), (20, 40))
    (table,), (figure,) = made.tables, made.figures
    assert table.columns == ("seed", "loss, 20", "loss, 40", "fallen below 1, 20", "fallen below 1, 40")
    assert table.rows == ((0, 3.0, 1.0, 3.0, 1.0), (1, 4.0, 3.5, None, 2.0))
    assert (figure.lines[0].x, figure.lines[0].mean) == ((20, 40), (3.5, 2.25))


def test_quantities_that_are_not_declared_are_told_apart():
    columns = [readings.at_end(split, "loss", heading=split) for split in ("test", "train")]
    table = seed_by_seed("Losses", "All.", *columns)(Seen(RUNS))
    assert table.columns == ("seed", "test, 20", "test, 40", "train, 20", "train, 40")
    assert table.rows == ((0, 3.0, 1.0, 0.5, 0.0), (1, 4.0, 3.5, 2.0, 0.5))


def test_controls_draw_nothing(tmp_path):
    drawn.times = 0
    findings = run_study(STUDY, "quick", Store(tmp_path), workers=1)
    assert (drawn.times, len(findings.tables), len(findings.figures)) == (1, 1, 1)
    assert all(one.untrained.value is not None for one in findings.claims if one.claim.id.endswith("twenty"))


def test_some_claims_train_what_they_read_alone(tmp_path, monkeypatch):
    trained = []

    def noted(run):
        def note(experiments, *rest, **more):
            trained.append([(one.recipe.data.size, one.trained) for one in experiments])
            return run(experiments, *rest, **more)

        return note

    from anchorlab.studies import running

    monkeypatch.setattr(running, "run_with_parts", noted(running.run_with_parts))
    store = Store(tmp_path)
    findings = run_study(STUDY, "quick", store, workers=1, claims=["at-twenty"])
    assert [one.claim.id for one in findings.claims] == ["own/readings/at-twenty", "own/readings/finite"]
    assert findings.claims[0].value is not None and findings.claims[0].untrained.value is not None
    assert trained == [[(20, False), (40, False), (60, False)], [(20, True), (60, True)]]
    assert not (tmp_path / "studies").exists()
    # on untrained members the claim reads one run, on trained ones a second
    trained.clear()
    (one,) = run_study(STUDY, "quick", store, workers=1, claims=["more-helps"]).claims
    assert trained[1:] == [[(20, True)], [(20, True), (40, True)]]
    whole = {each.claim.id: each.value for each in run_study(STUDY, "quick", store, workers=1).claims}
    assert (one.value, findings.claims[0].value) == (whole[one.claim.id], whole["own/readings/at-twenty"])
    (one,) = run_study(STUDY, "quick", store, workers=1, claims=["at-a-thousand"]).claims
    assert one.value is None  # the profile trains no such run


def test_a_precondition_asked_for_without_its_claims_is_none_of_the_others():
    one, other, unmet = (
        made_up("one", at_least(0.0), lambda seen: torch.ones(14)),
        made_up("other", at_least(0.0), lambda seen: torch.ones(14)),
        made_up("unmet", at_least(1.0), lambda seen: 0.0, kind=precondition, of=("one",)),
    )
    study = replace(STUDY, claims=[one, other, unmet], profiles={"quick": Profile(())}, own=True)
    for names, verdicts in (
        (["other", "unmet"], ["supported", "not met"]),
        (["one", "other"], ["not measured", "supported", "not met"]),
    ):
        results = with_claims(study, names).judge(Seen({}), "quick")
        assert [each.verdict for each in results] == verdicts


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: run_study(STUDY, "quick", claims=["at-twnty"]), r"^claim: unknown claim 'at-twnty'; did you mean"),
        (
            lambda: replace(STUDY, observe=lambda *given: None),
            r"^study\.reads: is given besides observe; give",
        ),
        (lambda: replace(STUDY, reads=None), r"^study\.reads: is missing; give reads, or observe alone"),
    ],
)
def test_what_a_study_may_not_say(wrong, message):
    with pytest.raises(SpecError, match=message):
        wrong()
