"""Both losses side by side, on accuracies given by hand, and perturbations whose effects have closed forms."""

import math
from dataclasses import replace
from math import erf, sqrt

import pytest
import torch
from torch import nn
from torch.nn.functional import softplus

from anchorlab.models.block import STREAM
from anchorlab.models.sites import Site, identity_tap
from anchorlab.papers.anchor.composite.depths import DATA, TASK, TRAIN
from anchorlab.papers.anchor.every_token import (
    ALONE,
    COMPOSITE,
    EVERY,
    IDENTITY,
    LOSSES,
    MOVES,
    PAPER,
    QUICK,
    STRENGTHS,
    STUDY,
    Learned,
    Seen,
    experiments,
)
from anchorlab.papers.anchor.identity import Curve
from anchorlab.papers.anchor.perturbed import directions, kept_under_noise, moved, own_sequences, rise_in_loss
from anchorlab.rng import child_seed
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble
from tests.papers.hand_made_runs import HandMadeRun, seen_by_hand, values_of

MOVED = MOVES.index(0.2)


def learned(
    test=((0.4, 0.6), (0.9, 1.0)),
    train=((1.0, 1.0), (1.0, 1.0)),
    composite=(1.0, 1.0),
    composed=(0.5, 0.5),
    kept=(0.5, 0.5),
    rise=(1.0, 1.0),
) -> Learned:
    """Two seeds, two sizes; what is kept and the rise are the same in both tasks, and at every strength."""
    accuracy = {TRAIN: torch.tensor(composite), DATA: torch.ones(2), TASK: torch.tensor(composed)}
    kept = torch.tensor(kept).expand(len(STRENGTHS), 2)
    rise = torch.zeros(len(MOVES), 2).index_fill(0, torch.tensor(MOVED), 1.0) * torch.tensor(rise)
    return seen_by_hand(
        Learned,
        identity=Curve((400, 1000), torch.tensor(test), torch.tensor(train)),
        accuracy=accuracy,
        kept={IDENTITY: kept, COMPOSITE: kept},
        rise={IDENTITY: rise, COMPOSITE: rise},
    )


def both(every: Learned, alone: Learned) -> Seen:
    return seen_by_hand(Seen, under={EVERY: every, ALONE: alone})


def test_the_experiments_differ_in_what_training_scores_alone():
    for setting in (QUICK, PAPER):
        found = list(experiments(setting).values())
        half = len(found) // 2
        assert half == len(setting.sizes) + 1
        for every, alone in zip(found[:half], found[half:], strict=True):
            assert every.task.scoring.every_token and not alone.task.scoring.every_token
            scoring = alone.task.scoring
            assert replace(every, task=every.task.replace(scoring=scoring)) == alone
            assert torch.equal(every.task.sample("train", 50, 3).inputs, alone.task.sample("train", 50, 3).inputs)
    assert [one.recipe.data.size for one in experiments(QUICK).values()] == [400, 500, 600, 1000, 8000] * 2


def test_noise_follows_from_the_noise_before_it_and_rule_and_surface_differ():
    # of the pairs of neighbours that are noise both, an item is followed by 4 of 81 others
    for experiment in experiments(QUICK).values():
        batch = experiment.task.sample("train", 4000, seed=0)
        is_noise = torch.ones_like(batch.inputs, dtype=torch.bool)
        for name in ("anchor_positions", "key_positions"):
            is_noise = is_noise.scatter(1, batch.latents[name], False)
        both = is_noise[:, :-1] & is_noise[:, 1:]
        pairs = torch.stack([batch.inputs[:, :-1][both], batch.inputs[:, 1:][both]], dim=1).unique(dim=0)
        assert pairs[:, 0].unique(return_counts=True)[1].tolist() == [4] * 81
    composite = experiments(QUICK)[ALONE, COMPOSITE].task
    batch = composite.sample(TASK, 50, 0)
    key = batch.latents["keys"]
    assert torch.equal(batch.answers, key - 10) and torch.equal(batch.rivals["symmetric"], key - 6)


def test_values_by_hand():
    every = learned(((0.6, 0.6), (1.0, 1.0)), composed=(0.9, 0.4), kept=(0.7, 0.6), rise=(0.5, 1.2))
    seen = both(every, learned(rise=(1.0, 2.0)))
    # flatter by the lower middle of 0.5, 0.6, 0.5 and 0.6
    expected = {"fits": 1.0, "generalises": (0.2 + 0.0 + 0.1 + 0.0) / 4, "composes": 0.15}
    assert values_of(STUDY, seen) == pytest.approx(expected | {"resilient": 0.15, "flatter": 0.5})
    turned = values_of(STUDY, both(seen.under[ALONE], seen.under[EVERY]))
    assert turned["generalises"] == pytest.approx(-0.075) and turned["composes"] == pytest.approx(-0.15)
    assert turned["resilient"] == pytest.approx(-0.15) and turned["flatter"] == pytest.approx(1 / 0.6)


def test_perturbations_are_judged_where_both_losses_fit_and_the_worst_fit_counts():
    worse = learned(composite=(0.9, 0.96))
    assert values_of(STUDY, both(learned(), worse))["fits"] == pytest.approx(0.93)
    assert values_of(STUDY, both(learned(train=((1.0, 1.0), (0.8, 1))), worse))["fits"] == pytest.approx(0.9)
    nan = learned(kept=(math.nan, 0.8))
    assert values_of(STUDY, both(nan, learned()))["resilient"] == pytest.approx(0.3)
    # the first seed has not learned identity at its largest size under one loss: there only the second counts
    every = learned(train=((0.0, 0.0), (0.89, 1.0)), kept=(0.9, 0.6), rise=(0.1, 0.5))
    seen = both(every, learned(train=((1.0, 1.0), (1.0, 0.9))))
    resilient, flatter = STUDY.claims[-2](seen), STUDY.claims[-1](seen)
    assert resilient.units == pytest.approx((0.4, 0.1))  # of the composite function alone, and of both
    assert resilient.value == pytest.approx((0.4 + 0.1) / 2)
    assert flatter.value == 0.5 and len(flatter.units) == 2
    nothing = both(learned(train=((1.0, 1.0), (0.0, 0.0)), composite=(0.8, 0.8)), learned())
    assert values_of(STUDY, nothing)["resilient"] is None and values_of(STUDY, nothing)["flatter"] is None


def test_members_are_perturbed_on_what_they_were_trained_on():
    experiment = experiments(QUICK)[ALONE, COMPOSITE]
    for seed, batch in zip(experiment.members.seeds, own_sequences(experiment), strict=True):
        sample = experiment.task.sample("train", 8000, child_seed(seed, "train"))
        assert torch.equal(batch.inputs, sample.inputs[:500]) and torch.equal(batch.targets, sample.targets[:500])
    every, alone = (own_sequences(experiments(QUICK)[loss, 1000]) for loss in LOSSES)
    assert all(torch.equal(one.inputs, other.inputs) for one, other in zip(every, alone, strict=True))
    assert all(batch.positions.tolist() == [8] for batch in every)  # the answer, under both losses


def runs_of(setting):
    """Accuracies by split (fifths), loss (tenths), place (hundredths) and member; weights are the initial ones."""
    found = []
    for index, experiment in enumerate(experiments(setting).values()):
        loss, place = divmod(index, len(setting.sizes) + 1)
        end = [loss / 10 + place / 100 + member / 1000 for member in range(2)]
        values = {
            (split, "accuracy"): [[0.0, 0.95 - member * 0.1, value + at / 5] for member, value in enumerate(end)]
            for at, split in enumerate(experiment.task.splits)
        }
        for rule, more in (("composed", 0.0), ("symmetric", 0.5)):
            values[experiment.task.splits[-1], f"agrees: {rule}"] = [[0.0, 0.0, value + more] for value in end]
        ensemble = experiment.untrained().initial_ensemble()
        whole = experiment.steps
        found.append(HandMadeRun(experiment, [0, whole // 2, whole], values, {whole: ensemble}))
    return found


@pytest.mark.slow
def test_runs_are_read_by_loss_and_task():
    smoke = STUDY.profile("smoke").setting
    setting = replace(smoke, identity=replace(smoke.identity, seeds=2), composite=replace(smoke.composite, seeds=2))
    runs = runs_of(setting)
    seen = STUDY.see(runs, setting).under
    assert list(seen) == list(LOSSES) == [EVERY, ALONE]
    for loss, name in enumerate(LOSSES):
        identity = torch.tensor([[0.0, 0.001], [0.01, 0.011]]) + loss / 10
        torch.testing.assert_close(seen[name].identity.train, identity)
        torch.testing.assert_close(seen[name].identity.test, identity + 0.2)
        for split, more in ((TRAIN, 0.0), (DATA, 0.2), (TASK, 0.4)):
            expected = torch.tensor([0.02, 0.021]) + loss / 10 + more
            torch.testing.assert_close(seen[name].accuracy[split], expected)
        torch.testing.assert_close(seen[name].symmetric, torch.tensor([0.52, 0.521]) + loss / 10)
        half = setting.composite.recipe.duration // 2
        assert seen[name].reached[DATA].tolist() == [half, math.inf]  # 0.95 and 0.85
        assert {of: kept.shape for of, kept in seen[name].kept.items()} == dict.fromkeys((IDENTITY, COMPOSITE), (4, 2))
    # the same first weights under both losses
    for of in (IDENTITY, COMPOSITE):
        torch.testing.assert_close(seen[EVERY].rise[of], seen[ALONE].rise[of])
    drawn = STUDY.analysis(runs, setting)
    assert [len(figure.lines) for figure in drawn.figures] == [2, 2, 4, 4, 4]
    assert [len(table.rows) for table in drawn.tables] == [4, 4]
    first = dict(zip(drawn.tables[1].columns, drawn.tables[1].rows[2], strict=True))
    assert (first["loss on"], first["seed"], first["(3, 4), composed"]) == (ALONE, 1000, pytest.approx(0.52))


class Sign(nn.Module):
    """Token 0 is embedded at -`scale`, token 1 at `scale`; the logits of both are -`slope` x and `slope` x."""

    def __init__(self) -> None:
        super().__init__()
        self.sites = {"hook_embed": Site("hook_embed", STREAM)}
        self.scale, self.slope = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

    def forward(self, inputs, tap=identity_tap):
        x = tap("hook_embed", (2.0 * inputs[..., None] - 1) * self.scale)
        return torch.cat([-x, x], dim=-1) * self.slope


def signs(scale: list[float], slope: list[float]) -> Ensemble:
    weights = {"scale": torch.tensor(scale)[:, None], "slope": torch.tensor(slope)[:, None]}
    return Ensemble(Sign(), weights, ("scale", "slope"))


def repeat_last(n: int) -> Batch:
    """Sequences of two tokens whose answer is the last one."""
    inputs = torch.randint(0, 2, (n, 2), generator=torch.Generator().manual_seed(0))
    return Batch(inputs, inputs[:, 1:], inputs[:, 1:], torch.tensor([1]), "train")


def test_noise_turns_right_answers_as_often_as_the_normal_distribution_says():
    strengths, n = (0.5, 1.0, 2.0), 20_000
    kept = kept_under_noise(signs([1.0, 7.0, 1.0], [1.0, 0.1, -1.0]), repeat_last(n), strengths)
    for strength, (unit, larger, wrong) in zip(strengths, kept, strict=True):
        below = (1 + erf(1 / strength / sqrt(2))) / 2  # a standard normal number stays below 1 / strength
        assert unit == pytest.approx(below, abs=5 * sqrt(below * (1 - below) / n))
        assert larger == pytest.approx(float(unit))  # the noise is relative to the embeddings
        assert wrong.isnan()  # this member answers nothing rightly
    # an answer that noise happens to put right does not count
    one = repeat_last(4000)
    some = one.answers.clone()
    some[:1000] = 1 - some[:1000]  # the model is wrong about these
    mixed = Batch(one.inputs, some, some, one.positions, "train")
    (kept,) = kept_under_noise(signs([1.0], [1.0]), mixed, [1.0])
    assert float(kept) == pytest.approx(0.8413, abs=0.03)


def test_the_loss_rises_by_the_mean_of_both_ways():
    """Both weights move by the same share, each its own way; the logits' distance is their product."""
    ensemble, r = signs([1.0, 2.0], [1.0, -0.5]), 0.3
    product = 2 * ensemble.weights["scale"][:, 0] * ensemble.weights["slope"][:, 0]
    together = (softplus(-product * (1 + r) ** 2) + softplus(-product * (1 - r) ** 2)) / 2
    apart = softplus(-product * (1 - r * r))
    before = softplus(-product)
    (rise,) = rise_in_loss(ensemble, repeat_last(8), [r])
    # each of the four directions moves them together or apart, the same way for both members
    shares = (rise - (apart - before)) / (together - apart)
    assert shares[0] == pytest.approx(float(shares[1]), abs=1e-4)
    assert float(shares[0]) * 4 == pytest.approx(round(float(shares[0]) * 4), abs=1e-3)
    assert 0 <= round(float(shares[0]) * 4) <= 4


def test_every_weight_moves_by_its_share_of_the_norm_and_nothing_else_moves():
    generator = torch.Generator().manual_seed(1)
    weights = {"matrix": torch.randn(2, 30, 40, generator=generator), "bias": torch.zeros(2, 5), "fixed": torch.ones(2)}
    ensemble = Ensemble(Sign(), weights, ("matrix", "bias"))
    there, back = (moved(ensemble, size, directions(ensemble, 0)).weights for size in (0.2, -0.2))
    change = there["matrix"] - weights["matrix"]
    for member in range(2):
        assert float(change[member].norm() / weights["matrix"][member].norm()) == pytest.approx(0.2)
    torch.testing.assert_close(back["matrix"] - weights["matrix"], -change)
    assert torch.equal(there["bias"], weights["bias"]) and there["fixed"] is weights["fixed"]
    units = [one / one.norm() for one in change]
    torch.testing.assert_close(units[0], units[1], atol=1e-5, rtol=1e-4)  # one direction for all members
    other = moved(ensemble, 0.2, directions(ensemble, 1)).weights["matrix"] - weights["matrix"]
    assert abs(float((other[0] / other[0].norm() * units[0]).sum())) < 0.15
