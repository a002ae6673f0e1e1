"""Both losses side by side, on accuracies and perturbations given by hand."""

import math
from dataclasses import replace

import pytest
import torch

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
    analyse,
    experiments,
    own_sequences,
    see,
)
from anchorlab.papers.anchor.identity import Curve
from anchorlab.rng import child_seed
from tests.papers.hand_made_runs import HandMadeRun, values_of, verdicts_of

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
    return Learned(
        Curve((400, 1000), torch.tensor(test), torch.tensor(train)),
        accuracy,
        {split: torch.zeros(2) for split in accuracy},
        1 - torch.tensor(composed),
        {IDENTITY: kept, COMPOSITE: kept},
        {IDENTITY: rise, COMPOSITE: rise},
    )


def test_the_experiments_differ_in_what_training_scores_alone():
    for setting in (QUICK, PAPER):
        found = experiments(setting)
        half = len(found) // 2
        assert half == len(setting.sizes) + 1
        for every, alone in zip(found[:half], found[half:], strict=True):
            assert every.task.scoring.every_token and not alone.task.scoring.every_token
            scoring = alone.task.scoring
            assert replace(every, task=every.task.replace(scoring=scoring)) == alone
            assert torch.equal(every.task.sample("train", 50, 3).inputs, alone.task.sample("train", 50, 3).inputs)
    assert [one.recipe.data.size for one in experiments(QUICK)] == [400, 500, 600, 1000, 8000] * 2


def test_noise_follows_from_the_noise_before_it_in_both_tasks():
    """Of the pairs of neighbours that are noise both, an item is followed by 4 of 81 others."""
    for experiment in experiments(QUICK):
        batch = experiment.task.sample("train", 4000, seed=0)
        is_noise = torch.ones_like(batch.inputs, dtype=torch.bool)
        for name in ("anchor_positions", "key_positions"):
            is_noise = is_noise.scatter(1, batch.latents[name], False)
        both = is_noise[:, :-1] & is_noise[:, 1:]
        pairs = torch.stack([batch.inputs[:, :-1][both], batch.inputs[:, 1:][both]], dim=1).unique(dim=0)
        assert pairs[:, 0].unique(return_counts=True)[1].tolist() == [4] * 81


def test_rule_and_surface_differ_on_the_unseen_pair():
    composite = experiments(QUICK)[-1].task
    batch = composite.sample(TASK, 50, 0)
    key = batch.latents["keys"]
    assert torch.equal(batch.answers, key - 10) and torch.equal(batch.rivals["symmetric"], key - 6)


def test_values_by_hand():
    every = learned(((0.6, 0.6), (1.0, 1.0)), composed=(0.9, 0.4), kept=(0.7, 0.6), rise=(0.5, 1.2))
    seen = {EVERY: every, ALONE: learned(rise=(1.0, 2.0))}
    assert values_of(STUDY, seen) == {
        "fits": 1.0,
        "generalises": pytest.approx((0.2 + 0.0 + 0.1 + 0.0) / 4),
        "composes": pytest.approx(0.15),
        "resilient": pytest.approx(0.15),
        "flatter": 0.5,  # the lower middle of 0.5, 0.6, 0.5 and 0.6
    }
    assert set(verdicts_of(STUDY, seen).values()) == {"agrees at small scale"}
    turned = values_of(STUDY, {EVERY: seen[ALONE], ALONE: seen[EVERY]})
    assert turned["generalises"] == pytest.approx(-0.075) and turned["composes"] == pytest.approx(-0.15)
    assert turned["resilient"] == pytest.approx(-0.15) and turned["flatter"] == pytest.approx(1 / 0.6)
    verdicts = verdicts_of(STUDY, {EVERY: seen[ALONE], ALONE: seen[EVERY]})
    assert [name for name, verdict in verdicts.items() if verdict == "agrees at small scale"] == ["fits"]


def test_the_worst_fit_counts():
    worse = learned(composite=(0.9, 0.96))
    assert values_of(STUDY, {EVERY: learned(), ALONE: worse})["fits"] == pytest.approx(0.93)
    assert values_of(STUDY, {EVERY: learned(train=((1.0, 1.0), (0.8, 1.0))), ALONE: worse})["fits"] == pytest.approx(
        0.9
    )


def test_perturbations_are_judged_where_both_losses_fit():
    """The first seed has not learned identity at its largest size under one loss: there only the second counts."""
    every = learned(train=((0.0, 0.0), (0.89, 1.0)), kept=(0.9, 0.6), rise=(0.1, 0.5))
    seen = {EVERY: every, ALONE: learned(train=((1.0, 1.0), (1.0, 0.9)))}
    resilient, flatter = STUDY.claims[-2](seen), STUDY.claims[-1](seen)
    assert resilient.units == pytest.approx((0.4, 0.1))  # of the composite function alone, and of both
    assert resilient.value == pytest.approx((0.4 + 0.1) / 2)
    assert flatter.value == 0.5 and len(flatter.units) == 2
    nothing = {EVERY: learned(train=((1.0, 1.0), (0.0, 0.0)), composite=(0.8, 0.8)), ALONE: learned()}
    assert values_of(STUDY, nothing)["resilient"] is None and values_of(STUDY, nothing)["flatter"] is None


def test_members_without_a_right_answer_are_left_out():
    nan = learned(kept=(math.nan, 0.8))
    assert values_of(STUDY, {EVERY: nan, ALONE: learned()})["resilient"] == pytest.approx(0.3)


def test_members_are_perturbed_on_what_they_were_trained_on():
    experiment = experiments(QUICK)[-1]
    for seed, batch in zip(range(1000, 1004), own_sequences(experiment), strict=True):
        sample = experiment.task.sample("train", 8000, child_seed(seed, "train"))
        assert torch.equal(batch.inputs, sample.inputs[:500]) and torch.equal(batch.targets, sample.targets[:500])
    every, alone = own_sequences(experiments(QUICK)[3]), own_sequences(experiments(QUICK)[-2])
    assert all(torch.equal(one.inputs, other.inputs) for one, other in zip(every, alone, strict=True))
    assert all(batch.positions.tolist() == [8] for batch in every)  # the answer, under both losses


def runs_of(setting):
    """Accuracies by split (fifths), loss (tenths), place (hundredths) and member; weights are the initial ones."""
    found = []
    for index, experiment in enumerate(experiments(setting)):
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
    seen = see(runs, setting)
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
    drawn = analyse(runs, setting)
    assert [len(figure.lines) for figure in drawn.figures] == [2, 2, 4, 4, 4]
    assert [len(table.rows) for table in drawn.tables] == [4, 4]
    first = dict(zip(drawn.tables[1].columns, drawn.tables[1].rows[2], strict=True))
    assert (first["loss on"], first["seed"], first["(3, 4), composed"]) == (ALONE, 1000, pytest.approx(0.52))
