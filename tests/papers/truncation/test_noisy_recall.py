"""Studies of noisy recall: what they share, and what each reads from runs made by hand."""

import math
from dataclasses import replace

import pytest

from anchorlab.papers.truncation import (
    feedforward_choices,
    feedforward_noise,
    noise_first,
    noisy_recall,
    richer_noise,
    stability,
)
from anchorlab.studies import study
from anchorlab.tasks import task
from tests.papers.hand_made_runs import HandMadeRun, values_of, verdicts_of

NAMES = ("feedforward-noise", "noise-first", "avoided-noise", "memories", "feedforward-choices")


@pytest.mark.parametrize("profile", ["quick", "paper", "smoke"])
def test_what_several_studies_ask_for_is_trained_once(profile):
    of_each = [study(f"truncation/{name}").experiments_of(profile) for name in NAMES]
    if profile == "quick":  # the first two have more seeds than the others
        of_each = [[one.take(range(14)) for one in experiments] for experiments in of_each]
    assert len({experiments[0].cell.address for experiments in of_each}) == 1
    first, avoided = of_each[1:3]
    assert [one.cell.address for one in first] == [one.cell.address for one in avoided]
    every = {experiment.cell.address for experiments in of_each for experiment in experiments}
    assert len(every) == 1 + 1 + 1 + 3  # noisy, fine-tuned, five triggers, three other choices of layers


def test_the_paper_profile_and_the_triggers_are_the_papers():
    experiment = noisy_recall.PAPER.experiment()
    law, model, recipe = experiment.task, experiment.model, experiment.recipe
    assert (law.length, law.alpha, law.scored, law.noise, law.width) == (256, 0.5, "last", "appended", 1)
    assert (model.width, model.factored_values) == (256, False)
    assert (recipe.batch, recipe.duration, recipe.optimiser.learning_rate) == (512, 2000, 0.03)
    assert noisy_recall.PAPER.experiment(feed_forward=("none", "none")).model.factored_values
    characters = task("recall/noisy")
    assert [characters.text_of(token) for token in noisy_recall.FIVE] == ["space", "a", "e", "o", "t"]
    quick = noisy_recall.QUICK
    assert quick.experiment(triggers=noisy_recall.FIVE).task.max_scored == 2 * quick.experiment().task.max_scored == 24


def test_fine_tuning_starts_from_a_training_without_noise():
    noisy, tuned = noisy_recall.noisy_and_tuned(noisy_recall.QUICK).values()
    assert (noisy.task.alpha, tuned.task.alpha, tuned.start.task.alpha) == (0.5, 0.5, 0.0)
    recipes = [one.recipe for one in (noisy, tuned, tuned.start)]
    durations = [noisy_recall.QUICK.recipe.duration, 600, 600]
    assert [one.duration for one in recipes] == [one.schedule.horizon for one in recipes] == durations
    for one in recipes:  # the range of appendix A.5
        assert 0.001 <= one.optimiser.learning_rate * one.schedule.end <= one.optimiser.learning_rate <= 0.03
    assert noisy.start is None
    assert tuned.start.start is None


@pytest.mark.parametrize("first", ["mlp", "linear", "none"])
@pytest.mark.parametrize("second", ["mlp", "linear", "none"])
def test_every_layer_that_is_there_is_dropped(first, second):
    edits = noisy_recall.truncations((first, second))
    assert (noisy_recall.WITHOUT_F1 in edits) == (first != "none")
    assert (noisy_recall.WITHOUT_F2 in edits) == (second != "none")
    assert edits
    assert noisy_recall.FULL not in edits
    noisy_recall.SMOKE.experiment(feed_forward=(first, second))  # and the edits fit the model


@pytest.mark.parametrize("name", [*NAMES, "stability"])
def test_every_profile_says_that_scores_are_divided(name):
    """The paper prints x W_KQ xᵀ alone."""
    found = study(f"truncation/{name}")
    for profile in {*found.profiles} - {"smoke"}:
        assert {one.model.scale_scores for one in found.experiments_of(profile)} == {True}
        assert "divided by the root of the width" in found.profile(profile).note


def richer_run(experiment, full, cut):
    """A run whose members end with these probabilities of the right token and of all noise tokens, full and cut."""
    edits = dict.fromkeys((noisy_recall.FULL, *experiment.recipe.evaluation.edits), [(9, 9, 9)] * 2)
    values = {
        ("clean", metric, edit): [[9, (*member, 9)[place]] for member in members]
        for edit, members in (edits | {noisy_recall.FULL: full, noisy_recall.WITHOUT_F2: cut}).items()
        for place, metric in enumerate(("right", "noise", "loss"))
    }
    return HandMadeRun(experiment, (0, 3000), values)


def test_gains_and_noise_left_with_several_noise_tokens():
    chance, trigger = richer_noise.experiments(replace(noisy_recall.QUICK, seeds=2)).values()
    assert (chance.task.noises, chance.task.by_trigger, chance.task.triggers) == (4, False, (noisy_recall.SPACE,))
    assert (trigger.task.noises, trigger.task.by_trigger, trigger.task.triggers) == (5, True, noisy_recall.FIVE)
    assert chance.task.shape.output_size == 65 + 4 and trigger.task.shape.output_size == 65 + 5
    runs = [
        richer_run(chance, full=[(0.5, 0.5), (0.4, 0.6)], cut=[(0.9, 0.02), (1.0, 0)]),
        richer_run(trigger, full=[(0.5, 0.5), (0.5, 0.5)], cut=[(0.5, 0.4), (0.6, 0.2)]),
    ]
    found = richer_noise.STUDY.see(runs, noisy_recall.QUICK)
    assert values_of(richer_noise.STUDY, found) == pytest.approx({
        "chance-gain": (0.4 + 0.6) / 2 / 0.5,
        "chance-noise": 0.01,
        "trigger-gain": 0.1 / 2 / 0.5,
        "trigger-noise": 0.3,
    })  # fmt: skip
    agree = {one.claim.id.rpartition("/")[2]: one.agrees for one in richer_noise.STUDY.judge(found, "quick")}
    assert agree == {"chance-gain": True, "chance-noise": True, "trigger-gain": False, "trigger-noise": False}


def test_a_varied_study_of_noise_measures_with_its_own_alpha(monkeypatch):
    """The gain is at most alpha; noise is learned at alpha and the right token at half of 1 - alpha."""
    varied = richer_noise.STUDY.vary({"task.alpha": 0.2}, seeds=(0, 1)).experiments_of("quick")
    made = [richer_run(one, full=[(0.7, 0.2), (0.8, 0.2)], cut=[(0.9, 0), (0.9, 0)]) for one in varied]
    found = richer_noise.STUDY.see(made, noisy_recall.QUICK)
    assert values_of(richer_noise.STUDY, found)["chance-gain"] == pytest.approx((0.2 / 0.2 + 0.1 / 0.2) / 2)
    (one,) = feedforward_noise.STUDY.vary({"task.alpha": 0.2}, seeds=(0, 1)).experiments_of("quick")
    values = {("clean", "noise"): [[0, 0.4, 0.4]] * 2, ("clean", "right"): [[0, 0, 0.8]] * 2}
    early = feedforward_noise.STUDY.see([HandMadeRun(one, (0, 2, 102), values)], noisy_recall.QUICK)
    assert early.learned["noisy"].tolist() == pytest.approx([1, 1])
    assert early.recalled["noisy"].tolist() == pytest.approx([52, 52])
    monkeypatch.setattr(noisy_recall, "ideal_scores", lambda task, split: {"right": 0.8})
    panel = noisy_recall.clean_panel(early.first, "right", {noisy_recall.FULL: "full"}, "title", "α = {alpha}.")
    assert panel.caption.startswith("α = 0.2.")


STABLE_STEPS = (0, 10, 300, 900)
STABLE = (0.9, 0.5, 0.97)
"""A member's early fraction, the noise at its end, and the right token without F_2; with F_2 it is 1 less the noise."""


def stability_runs(
    early=((0.9, 0.9),) * 3, whole=(STABLE,) * 6, longer=((STABLE, STABLE),) * 4, few=((0.9, 0.2, 0.97),) * 2,
    many=((0.9, 0.8, 0.97),) * 2, main=(STABLE, STABLE),
):  # fmt: skip
    """Two seeds, which at other learning rates follow one another, rate by rate; longer trainings are one run each."""
    experiments = stability.experiments(replace(noisy_recall.QUICK, seeds=2)).values()
    first = [(share, 9, 9) for rate in early for share in rate]
    made = []
    for experiment, members in zip(experiments, (main, first, whole, *longer, few, many), strict=True):
        values = {
            ("train", "predicts_noise"): [[1.0, 0.2, early, 1.0] for early, _, _ in members],
            ("clean", "predicts_noise"): [[1.0] * 4] * len(members),
            ("clean", "noise"): [[9, 9, 9, noise] for _, noise, _ in members],
            ("clean", "right"): [[9, 9, 9, 1 - noise] for _, noise, _ in members],
            ("clean", "right", noisy_recall.WITHOUT_F2): [[9, 9, 9, right] for _, _, right in members],
        }
        made.append(HandMadeRun(experiment, STABLE_STEPS, values))
    return made


def test_values_and_figures_at_other_rates_and_noises():
    # how these began does not count; the lowest at the end are 0.1 and 0.96
    whole = [(0.1, 0.5, right) for right in (0.1, 0.98, 0.97, 0.96, 0.97, 0.97)]
    # gains of 0.4, 0.3, 0.45 and 0.2 for the first seed, of 0.46, 0.35, 0.1 and 0.47 for the second; alpha is 0.5
    longer = (
        ((0.9, 0.5, 0.9), (0.9, 0.51, 0.95)), ((0.9, 0.4, 0.9), (0.9, 0.4, 0.95)),
        ((0.9, 0.5, 0.95), (0.9, 0.9, 0.2)), ((0.9, 0.6, 0.6), (0.9, 0.5, 0.97)),
    )  # fmt: skip
    made = stability_runs(
        longer=longer,
        early=((0.88, 0.9), (0.9, 0.8), (0.9, 0.9)), whole=whole,
        main=((0.85, 0.52, 0.96), (0.95, 0.5, 1.0)), many=((0.9, 0.8, 0.97), (0.9, 0.8, 0.93)),
    )  # fmt: skip
    found = stability.STUDY.see(made, noisy_recall.QUICK)
    assert list(found.rates) == [*stability.RATES, 0.03]
    assert list(found.alphas) == [0.2, 0.5, 0.8]
    # the gain over alpha: at 0.2 0.17 / 0.2 for both seeds; at 0.5 0.48 / 0.5 and 1; at 0.8 0.77 / 0.8 and 0.73 / 0.8
    assert values_of(stability.STUDY, found) == pytest.approx(
        {
            "rates-noise-first": (0.85 + 0.8) / 2,
            "rates-dropped": (0.1 + 0.96) / 2,
            "rates-gain": (0.4 + 0.2) / 2,
            "alphas-gain": 0.85,
        },
        abs=1e-6,
    )
    first, dropped, longest, gain = (one(found) for one in stability.STUDY.claims)
    assert longest.units == pytest.approx((0.4, 0.2))
    assert longest.detail == "0.86 at 0.001, 0.65 at 0.003, 0.55 at 0.01, 0.67 at 0.03"
    assert first.detail == "0.89 at 0.001, 0.85 at 0.003, 0.9 at 0.01, 0.9 at 0.03"
    assert first.units == pytest.approx((0.85, 0.8)) and gain.units == pytest.approx((0.85, 0.85))
    assert dropped.units == pytest.approx((0.1, 0.96))
    assert dropped.detail == "0.54 at 0.001, 0.965 at 0.003, 0.97 at 0.01, 0.98 at 0.03"
    by_rate, by_steps, by_alpha = stability.STUDY.analysis(made, noisy_recall.QUICK).figures
    assert by_rate.lines[0].x == by_steps.lines[0].x == (*stability.RATES, 0.03)
    assert by_steps.lines[2].mean == pytest.approx((0.925, 0.925, 0.575, 0.785))
    by_alpha = stability.STUDY.analysis(stability_runs(), noisy_recall.QUICK).figures[2]
    assert by_alpha.lines[0].x == (0.2, 0.5, 0.8)
    assert by_alpha.lines[1].mean == pytest.approx((0.2, 0.5, 0.8))
    table = stability.STUDY.analysis(stability_runs(), noisy_recall.QUICK).tables[0]
    assert [row[0] for row in table.rows][4:8] == [
        f"learning rate {rate}, steps in inverse proportion" for rate in ("0.001", "0.003", "0.01", "0.03")
    ]
    assert [row[0] for row in table.rows][-2:] == ["α = 0.5", "α = 0.8"]
    assert table.rows[-1][1:] == pytest.approx((0.9, 0.8, 0.97, 0.77))


def test_seeds_and_steps_of_stability():
    experiments = stability.experiments(noisy_recall.QUICK)
    usual, first, whole, *longer, few, many = experiments.values()
    assert usual.cell.address == noisy_recall.QUICK.experiment().cell.address  # trained once for all studies
    assert (first.recipe.duration, whole.recipe.duration) == (300, 3000)
    assert first.recipe.schedule == whole.recipe.schedule == usual.recipe.schedule
    assert whole.members.learning_rate == (0.001,) * 3 + (0.003,) * 3 + (0.01,) * 3
    assert whole.members.seeds == usual.members.seeds[:3] * 3
    assert first.members.seeds == usual.members.seeds * 3
    assert first.members.learning_rate == (0.001,) * 14 + (0.003,) * 14 + (0.01,) * 14
    for rate, one in zip(("0.001", "0.003", "0.01", "0.03"), longer, strict=True):
        label = f"learning rate {rate}, longer"
        assert (one.label, experiments[label]) == (f"noisy recall, {label}", one)
    # as many steps times rate as the other studies, and a schedule that ends with them
    assert [one.recipe.duration for one in longer] == [90_000, 30_000, 9000, 3000]
    assert [one.recipe.optimiser.learning_rate for one in longer] == [0.001, 0.003, 0.01, 0.03]
    assert [one.recipe.schedule.horizon for one in longer] == [one.recipe.duration for one in longer]
    assert all(one.members.seeds == usual.members.seeds[:3] and one.recipe.batch == 16 for one in longer)
    assert [one.task.alpha for one in (usual, first, whole, few, many)] == [0.5, 0.5, 0.5, 0.2, 0.8]
    assert few.members.seeds == many.members.seeds == usual.members.seeds[:5]


FIRST_STEPS = (0, 5, 10, 20, 100)
# two members; fractions of predicting the noise, with peaks of 0.85 and 0.77 afresh, of 0.7 and 0.92 in fine-tuning
AFRESH = ((0.1, 0.85, 0.2, 1.0, 0.41), (0.9, 0.3, 0.77, 1.0, 0.45))
TUNED = ((0.2, 0.7, 0.6, 1.0, 0.6), (1.0, 0.1, 0.92, 1.0, 0.58))
KNEW = ((0.95, 0.2, 0.2, 0.2, 0.2), (0.87, 0.2, 0.2, 0.2, 0.2))
OTHER = ((0.33, 0.34, 0.35, 0.36, 0.37),) * 2
# probabilities of the noise, which end at 0.47 on average afresh and at 0.55 in fine-tuning
NOISES = (
    ((0.3, 0.9, 0.2, 0.1, 0.41), (0.3, 0.7, 0.2, 0.1, 0.53)),
    ((0.2, 0.5, 0.9, 0.3, 0.58), (0.2, 0.5, 0.9, 0.3, 0.52)),
)


def noise_first_run(experiment, noisy, clean_right, probability):
    values = {
        ("train", "predicts_noise"): noisy, ("train", "noise"): probability, ("train", "right"): OTHER,
        ("clean", "right"): clean_right,
    }  # fmt: skip
    return HandMadeRun(experiment, FIRST_STEPS, values)


def noise_first_runs():
    experiments = noisy_recall.noisy_and_tuned(replace(noisy_recall.QUICK, seeds=2)).values()
    return list(map(noise_first_run, experiments, (AFRESH, TUNED), (OTHER, KNEW), NOISES))


def test_values_and_figures_of_noise_that_is_learned_first(monkeypatch):
    found = noise_first.STUDY.see(noise_first_runs(), noisy_recall.QUICK)
    assert values_of(noise_first.STUDY, found) == pytest.approx(
        {"pretraining-settles": 0.47, "tuning-peak": 0.81, "tuning-settles": 0.55, "tuning-knew": 0.91}, abs=1e-6
    )
    ideal = {"noise": 0.6, "right": 0.3}
    monkeypatch.setattr(noise_first, "ideal_scores", lambda task, split: ideal if split == "train" else {})
    analysis = noise_first.STUDY.analysis(noise_first_runs(), noisy_recall.QUICK)
    for panel, noisy, probability in zip(analysis.figures, (AFRESH, TUNED), NOISES, strict=True):
        fraction, noise, right = panel.lines
        assert fraction.mean == pytest.approx([(first + second) / 2 for first, second in zip(*noisy, strict=True)])
        assert noise.mean == pytest.approx([sum(two) / 2 for two in zip(*probability, strict=True)])
        assert right.mean == pytest.approx(OTHER[0])
        assert fraction.x == (1, 6, 11, 21, 101)
        assert [one.value for one in panel.references] == [0.6, 0.3]
    assert [row[0] for row in analysis.tables[0].rows] == ["from the start", "fine-tuned"]
    assert analysis.tables[0].rows[0][1:] == pytest.approx((0.5, 0.3, 0.33, 0.81, 0.43, 0.47, 0.37))
    assert analysis.tables[0].rows[1][1:] == pytest.approx((0.6, 0.2, 0.33, 0.81, 0.59, 0.55, 0.37))


def test_a_seed_that_diverges_in_fine_tuning_is_left_out_at_the_end_and_counted(monkeypatch):
    monkeypatch.setattr(noise_first, "ideal_scores", lambda task, split: {"noise": 0.6, "right": 0.3})
    runs = noise_first_runs()
    lost = (*NOISES[1][1][:3], math.nan, math.nan)
    runs[1] = noise_first_run(runs[1].experiment, TUNED, KNEW, (NOISES[1][0], lost))
    found = noise_first.STUDY.see(runs, noisy_recall.QUICK)
    assert values_of(noise_first.STUDY, found) == pytest.approx(
        {"pretraining-settles": 0.47, "tuning-peak": 0.81, "tuning-settles": 0.58, "tuning-knew": 0.91}, abs=1e-6
    )
    details = {one.name: one(found) for one in noise_first.STUDY.claims if one.name.endswith("settles")}
    assert details["pretraining-settles"].detail == "the most probable token in 0.43"
    assert details["tuning-settles"].detail == "the most probable token in 0.6; 1 of 2 seeds diverged"
    analysis = noise_first.STUDY.analysis(runs, noisy_recall.QUICK)
    assert analysis.figures[1].lines[1].mean == pytest.approx(NOISES[1][0])
    assert analysis.tables[0].rows[1][1:] == pytest.approx((0.6, 0.2, 0.33, 0.81, 0.6, 0.58, 0.37))


STEPS = (0, 1, 10, 15, 100)
EDITS = (
    noisy_recall.FULL, "rho=0.5", "rho=0.25", "rho=0.1", "rho=0.05", noisy_recall.WITHOUT_F2, noisy_recall.WITHOUT_F1,
)  # fmt: skip
# the last values of two members, in the order of the edits
RIGHT = ((0.5, 0.48), (0.6, 0.6), (0.7, 0.7), (0.8, 0.8), (0.9, 0.9), (0.94, 0.98), (0.1, 0.1))
NOISE = ((0.42, 0.54), (0.4, 0.4), (0.3, 0.3), (0.2, 0.2), (0.1, 0.1), (0.03, 0.05), (0.7, 0.7))
LOSS = ((0.8, 0.64), (0.5, 0.5), (0.3, 0.3), (0.4, 0.22), (0.2, 0.2), (0.2, 0.4), (3.0, 3.0))
# before the end, of the full model alone: noise is highest at 10 (of steps 1 to 10) and reaches 0.5 at 1 and before
EARLY_NOISE = ((0.0, 0.5, 0.9, 0.95), (0.99, 0.3, 0.72, 0.8))
# the right token reaches 0.25 at 15 + 85 / 2 and at 12.5
EARLY_RIGHT = ((0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.5))


def seen_without_layers(early_right=EARLY_RIGHT, early_noise=EARLY_NOISE, **changed):
    """A run in which some ends are `changed`, given as `noise={edit: (first member, second)}`."""
    values = {}
    for metric, numbers in (("right", RIGHT), ("noise", NOISE), ("loss", LOSS), ("accuracy", RIGHT)):
        early = {"right": early_right, "noise": early_noise}.get(metric, ((9.0,) * 4,) * 2)
        for edit, last in (dict(zip(EDITS, numbers, strict=True)) | changed.get(metric, {})).items():
            before = early if edit == noisy_recall.FULL else ((9.0,) * 4,) * 2
            values["clean", metric, edit] = [[*curve, end] for curve, end in zip(before, last, strict=True)]
    values["clean", "predicts_noise"] = [[*curve, 0.0] for curve in early_noise]
    experiment = replace(noisy_recall.QUICK, seeds=2).experiment()
    return feedforward_noise.STUDY.see([HandMadeRun(experiment, STEPS, values)], noisy_recall.QUICK)


def test_values_and_figures_without_feed_forward_layers(monkeypatch):
    assert values_of(feedforward_noise.STUDY, seen_without_layers()) == pytest.approx(
        {
            "full-noise": 0.48, "dropped-right": 0.96, "dropped-noise": 0.04, "clean-loss-falls": 0.72 - 0.3,
            "loss-order": 0.3 - 0.2, "noise-first": 0.81, "recall-later": (15 + 85 / 2 + 12.5) / 2,
        },
        abs=1e-6,
    )  # fmt: skip
    ideal = {"right": 0.3, "noise": 0.6, "loss": 1.1}
    monkeypatch.setattr(noisy_recall, "ideal_scores", lambda task, split: ideal if split == "clean" else {})
    analysis = feedforward_noise.STUDY.analysis([seen_without_layers().first], noisy_recall.QUICK)
    *panels, against = analysis.figures
    for panel, numbers, references in zip(panels, (RIGHT, NOISE, LOSS), ((0.98, 0.3), (0.6,), (1.1,)), strict=True):
        drawn = [line.mean[-1] for line in panel.lines]
        assert drawn == pytest.approx([(first + second) / 2 for first, second in numbers[:-1]])
        assert tuple(one.value for one in panel.references) == references
        assert panel.lines[0].x == (1, 2, 11, 16, 101)
    assert against.lines[0].x == (0, 0.05, 0.1, 0.25, 0.5, 1)
    assert against.lines[0].mean == pytest.approx((0.3, 0.2, 0.31, 0.3, 0.5, 0.72))
    rows = {row[0]: row[1:] for row in analysis.tables[0].rows}
    assert rows["full model (ρ = 1)"] == pytest.approx((0.49, 0.48, 0.72, 0.49))
    assert rows["ρ = 0"] == pytest.approx((0.96, 0.04, 0.3, 0.96))


def test_the_loss_falls_at_every_step_and_delays_have_all_seeds_as_units():
    found = seen_without_layers(loss={noisy_recall.WITHOUT_F2: (0.15, 0.15)})
    order = values_of(feedforward_noise.STUDY, found)["loss-order"]
    assert order == pytest.approx(0.01, abs=1e-6)  # from rho = 0.25 to 0.1
    found = seen_without_layers(loss={noisy_recall.WITHOUT_F2: (0.3, 0.36)})
    assert values_of(feedforward_noise.STUDY, found)["loss-order"] is None
    assert feedforward_noise.recall_later(seen_without_layers()).tolist() == pytest.approx([15 + 85 / 2, 12.5])
    # the noise reaches 0.5 at 5.5, and at 0
    later = seen_without_layers(early_noise=((0.0, 0.0, 1.0, 0.9), (0.6, 0.6, 0.6, 0.6)))
    assert feedforward_noise.recall_later(later).tolist() == pytest.approx([(15 + 85 / 2) / 5.5, 12.5])
    never = seen_without_layers(right={noisy_recall.FULL: (0.2, 0.48)})  # the first member
    assert feedforward_noise.recall_later(never) is None


# (right, noise, loss) at the end by edit, in the order of the choices of layers
BOTH = {"none": (0.5, 0.5, 0.7), "without F1": (0.2, 0.75, 2.0), "without F2": (0.96, 0.0, 0.05)}
THEN_LINEAR = {"none": (0.5, 0.5, 0.7), "without F1": (0.62, 0.4, 0.6), "without F2": (0.7, 0.1, 0.5)}
THEN_MLP = {"none": (0.5, 0.5, 0.7), "without F1": (0.1, 0.61, 3.0), "without F2": (0.9, 0.2, 0.1)}
NEITHER = {
    "none": (0.5, 0.5, 0.7), "rho=0.05": (0.58, 0.4, 0.5), "rho=0.01": (0.1, 0.15, 4.0), "rho=0": (0.03, 0.02, 5.0),
}  # fmt: skip
APART = 0.02  # the first member lies so far below the ends, the second above


def choice_runs(*choices):
    """Runs of four choices of layers; what is not given of an edit, a split or a step is never to be read."""
    made = []
    experiments = feedforward_choices.experiments(replace(noisy_recall.QUICK, seeds=2)).values()
    for experiment, given in zip(experiments, choices, strict=True):
        values = {}
        for edit in ("none", *experiment.recipe.evaluation.edits):
            for at, metric in enumerate(("right", "noise", "loss")):
                last = given.get(edit, (0.44, 0.45, 0.46))[at]
                values["clean", metric, edit] = [[9.0, last - APART], [9.0, last + APART]]
        made.append(HandMadeRun(experiment, (0, 9), values))
    return made


def test_values_and_figures_of_choices_of_layers(monkeypatch):
    ratio = (0.08 / 0.48 + 0.12 / 0.52) / 2
    expected = {
        "mlp-mlp-without-f1": 0.75,
        "mlp-linear-without-f2": 0.2,
        "mlp-linear-without-f1": 0.12,
        "mlp-linear-f1-is-better": -0.1,
        "linear-mlp-without-f2": 0.4,
        "linear-mlp-without-f1": 0.11,
        "none-best": 0.08,
        "none-less": 0.2 - 0.08,  # the better layer to drop: 0.46, 0.2 and 0.4
        "none-destroyed": ratio,
    }

    def seen(*choices):
        return feedforward_choices.STUDY.see(choice_runs(*choices), noisy_recall.QUICK)

    found = seen(BOTH, THEN_LINEAR, THEN_MLP, NEITHER)
    assert values_of(feedforward_choices.STUDY, found) == pytest.approx(expected, abs=1e-6)
    nothing = {edit: (float("nan"),) * 3 for edit in ("none", "without F1", "without F2")}
    for choices in ((BOTH, nothing, THEN_MLP, NEITHER), (nothing, THEN_LINEAR, THEN_MLP, NEITHER)):
        assert verdicts_of(feedforward_choices.STUDY, seen(*choices))["none-less"] == "not measured"
    ideal = {"right": 0.3, "noise": 0.6, "loss": 1.1}
    monkeypatch.setattr(noisy_recall, "ideal_scores", lambda task, split: ideal)
    analysis = feedforward_choices.STUDY.analysis(choice_runs(BOTH, THEN_LINEAR, THEN_MLP, NEITHER), noisy_recall.QUICK)
    *panels, against = analysis.figures
    all_given = [given for given in (BOTH, THEN_LINEAR, THEN_MLP, NEITHER) for _ in range(3)]
    for at, (panel, given) in enumerate(zip(panels, all_given, strict=True)):
        drawn = [line.mean[-1] for line in panel.lines]
        assert sorted(drawn) == pytest.approx(sorted(numbers[at % 3] for numbers in given.values()))
        assert panel.lines[0].mean[-1] == pytest.approx((0.5, 0.5, 0.7)[at % 3])
        assert [one.value for one in panel.references] == [(0.3, 0.6, 1.1)[at % 3]]
        assert panel.title.endswith((": the right token", ": the noise token", ": the loss")[at % 3])
    assert against.lines[0].x == (0, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1)
    assert against.lines[0].mean == pytest.approx((0.03, 0.1, 0.44, 0.58, 0.44, 0.44, 0.44, 0.5))
    assert against.lines[1].mean == pytest.approx((0.02, 0.15, 0.45, 0.4, 0.45, 0.45, 0.45, 0.5))
    rows = {row[:3]: row[3:] for row in analysis.tables[0].rows}
    assert rows["mlp", "linear", "without F₂"] == pytest.approx(THEN_LINEAR["without F2"])
    assert rows["linear", "mlp", "without F₁"] == pytest.approx(THEN_MLP["without F1"])
    assert rows["none", "none", "ρ = 0.01"] == pytest.approx(NEITHER["rho=0.01"])
