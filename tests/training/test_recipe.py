"""Learning-rate schedules against closed forms; members that stop once they are good enough, each on its own."""

import math

import pytest

from anchorlab.errors import SpecError
from anchorlab.training import AdamW, Constant, Evaluation, Members, Recipe, Stop, WarmupCosine, fit
from anchorlab.training.evaluation import Row
from tests.small_experiments import SAMPLE, experiment, worst

PAPER = WarmupCosine(warmup=400, horizon=4000, start=0.1, end=0.1)
CODE = PAPER.replace(horizon=4400)


@pytest.mark.parametrize(
    ("schedule", "time", "rate"),
    [
        (PAPER, 0, 2e-5),
        (PAPER, 200, 1.1e-4),
        (PAPER, 400, 2e-4),
        (PAPER, 1300, 1.1e-4 + 9e-5 * math.cos(math.pi / 4)),
        (PAPER, 2200, 1.1e-4),
        (PAPER, 4000, 2e-5),
        (PAPER, 5000, 2e-5),
        (CODE, 400, 2e-4),
        (CODE, 2400, 1.1e-4),
        (CODE, 4000, 1.1e-4 + 9e-5 * math.cos(0.9 * math.pi)),
        (CODE, 4400, 2e-5),
        (WarmupCosine(horizon=10), 0, 2e-4),  # without warm-up it starts at the top
        (WarmupCosine(horizon=10), 5, 1e-4),
        (WarmupCosine(horizon=10), 10, 0),
        (Constant(), 0, 2e-4),
        (Constant(), 10**9, 2e-4),
    ],
)
def test_rates_are_those_of_the_closed_forms(schedule, time, rate):
    assert 2e-4 * schedule.factor(time) == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize("horizon", [1, 400])
def test_a_horizon_within_the_warmup_is_refused(horizon):
    with pytest.raises(SpecError, match=f"^schedule.*horizon: {horizon} is not after the warm-up of 400"):
        Recipe.parse({"schedule": {"kind": "warmup_cosine", "warmup": 400, "horizon": horizon}})


@pytest.mark.untyped  # one value, where a list is due
def test_one_value_in_place_of_a_list_is_shown_as_a_list():
    for ask, message in (
        (lambda: AdamW(undecayed="bias"), r"undecayed: input should be a valid tuple, got 'bias'; write \[\"bias\"\]"),
        (lambda: Members(seeds=(0,), initialisation_scale=0.5), r"initialisation_scale: .*, got 0\.5; write \[0\.5\]"),
    ):
        with pytest.raises(SpecError, match=f"^{message}$"):
            ask()
    assert AdamW(undecayed=["bias"]).undecayed == ("bias",)


RECIPE = SAMPLE.replace(
    duration=60, schedule={"kind": "constant"}, evaluation=Evaluation(every=5, size=24), precision="float64"
)


@pytest.fixture(scope="module")
def losses():
    """The training loss of every member at every evaluation, without a stop rule."""
    rows = fit(experiment(recipe=RECIPE)).rows
    return {(row.member, row.step): row.value for row in rows if (row.split, row.metric) == ("train", "loss")}


@pytest.fixture(scope="module")
def bound(losses):
    """A loss that the members fall below at different times, one of them never."""
    return sorted(losses[member, 45] for member in range(3))[1] - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("execution", ["member", "mapped"])
def test_each_member_rests_at_its_own_time(losses, bound, execution):
    stop = Stop(metric="loss", split="train", value=bound, direction="below")
    stopped = fit(experiment(recipe=RECIPE.replace(stop=stop)), execution=execution)
    ends = []
    for member in range(3):
        end = next((step for step in range(0, 61, 5) if losses[member, step] <= bound), 60)
        ends.append(end)
        assert [row.step for row in stopped.rows if row[0] == member and row[3:5] == ("train", "all")][-1] == end
        alone = fit(experiment(recipe=RECIPE.replace(duration=max(1, end)), members=Members(seeds=(member,))))
        assert worst(stopped.ensemble.member_weights(member), alone.ensemble.member_weights(0)) < 1e-12
    assert len(set(ends)) > 1


def test_a_member_rests_only_when_every_group_of_its_own_is_good_enough(monkeypatch):
    """The first member misses in one group at first, the second in all sequences; the third meets the rule at once."""
    found = {
        (0, 0): {"all": 0.9, "pairs": 0.9, "rare": 0.1}, (1, 0): {"all": 0.1, "pairs": 0.9, "rare": 0.9},
        (2, 0): {"all": 0.8, "pairs": 0.8, "rare": 0.9}, (0, 5): {"all": 0.9, "pairs": 0.8, "rare": 0.8},
        (1, 5): {"all": 0.7, "pairs": 0.9, "rare": 0.9}, (1, 10): {"all": 0.7, "pairs": 0.9, "rare": 0.9},
    }  # fmt: skip

    def measure(self, ensemble, step, resting):
        return [
            Row(member, member, step, "test", group, edit, "accuracy", value if edit == "none" else 0.0)
            for member in range(3)
            if member not in resting
            for edit in ("none", "cut")
            for group, value in found[member, step].items()
        ]

    monkeypatch.setattr("anchorlab.training.trainer.Evaluator.measure", measure)
    stop = Stop(metric="accuracy", value=0.8)
    trained = fit(experiment(recipe=RECIPE.replace(stop=stop, duration=10)))
    ends = {member: max(row.step for row in trained.rows if row.member == member) for member in range(3)}
    assert ends == {0: 5, 1: 10, 2: 0}


def test_above_and_below():
    assert Stop(metric="accuracy", value=0.9).reached(0.9)
    assert not Stop(metric="accuracy", value=0.9).reached(0.89)
    assert Stop(metric="loss", value=0.1, direction="below").reached(0.1)
    assert not Stop(metric="loss", value=0.1, direction="below").reached(0.11)
    assert not Stop(metric="loss", value=0.1, direction="below").reached(float("nan"))


def test_when_all_rest_training_ends():
    stop = Stop(metric="loss", split="train", value=100.0, direction="below")
    trained = fit(experiment(recipe=RECIPE.replace(stop=stop)))
    assert {row.step for row in trained.rows} == {0}
