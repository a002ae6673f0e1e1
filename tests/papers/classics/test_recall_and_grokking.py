"""The width that pairs need, and when training and unseen pairs are learned, on runs made by hand."""

from dataclasses import replace
from math import cos, exp, log, pi

import pytest
import torch
from torch import nn

from anchorlab.models.embedding import TokenEmbedding
from anchorlab.papers.classics.associative_recall import PAPER, QUICK, STUDY, experiments, needed
from anchorlab.papers.classics.grokking import grokking
from tests.lens.hand_built import stacked
from tests.papers.hand_made_runs import HandMadeRun, ends, results_of, values_of

# final accuracies of two seeds by number of pairs and width; two pairs, then four
WIDTHS = (16, 32, 64)
ATTENTION = {2: ((1, 1), (1, 0.99), (1, 1)), 4: ((0.96, 1), (1, 1), (0.98, 0.97))}
LSTM = {2: ((0.5, 0.9), (0.9, 0.95), (1, 0.95)), 4: ((0.25, 0.4), (0.4, 0.85), (0.89, 0.91))}
MAMBA = {2: ((0.5, 0.75), (0.9, 1), (1, 1)), 4: ((0.25, 0.4), (0.7, 0.7), (1, 1))}  # needs 32, then 64
GATED = {2: ((1, 1), (1, 1), (1, 1)), 4: ((1, 1), (1, 1), (1, 1))}
LEARNERS = tuple(
    replace(one, rates=one.rates[:1], widths=WIDTHS, seeds=2, recipe=QUICK.learners[0].recipe) for one in QUICK.learners
)
SETTING = replace(QUICK, tasks=QUICK.tasks[::2], batches=(64, 64), learners=LEARNERS)


def runs(attention=ATTENTION, lstm=LSTM, mamba=MAMBA, gated=GATED):
    of = {"decoder": attention, "lstm": lstm, "mamba": mamba, "gated-linear-attention": gated}

    def accuracy(one):
        return of[one.model.kind][one.task.pairs][WIDTHS.index(one.model.width)]

    return [
        HandMadeRun(one, (0, one.steps), {("test", "accuracy"): ends(*accuracy(one))})
        for one in experiments(SETTING).values()
    ]


def seen(*given, **changed):
    return STUDY.see(runs(*given, **changed), SETTING)


def test_values_of_runs_made_by_hand():
    assert values_of(STUDY, seen()) == {
        "attention-solves": pytest.approx((0.96 + 0.97) / 2),
        "width-grows": (64 / 32 + 64 / 16) / 2,  # no width suffices the first seed for four pairs
        "width-grows-mamba": 2.0,
        "width-grows-gated": 1.0,
        # known: with two pairs 2 a - 1, with four (4 a - 1) / 3
        "overflows": pytest.approx(
            ((0 + 0.8 + 1) / 3 - (0 + 0.2 + 2.56 / 3) / 3 + (0.8 + 0.9 + 0.9) / 3 - (0.2 + 0.8 + 2.64 / 3) / 3) / 2
        ),
        "overflows-mamba": pytest.approx(((0 + 0.8 + 1 - 0 - 0.6 - 1) / 3 + (0.5 + 1 + 1 - 0.2 - 0.6 - 1) / 3) / 2),
        "overflows-gated": 0.0,
        "wider-knows-more": pytest.approx(((1 + 2.56 / 3) / 2 + (0.1 + 2.04 / 3) / 2) / 2),
        "wider-knows-more-mamba": pytest.approx(((1 + 1) / 2 + (0.5 + 0.8) / 2) / 2),
        "wider-knows-more-gated": 0.0,
        "attention-ahead": pytest.approx((0.96 - 0.25 + 1 - 0.4) / 2),
        "attention-ahead-mamba": pytest.approx((0.96 - 0.25 + 1 - 0.4) / 2),
        "attention-ahead-gated": pytest.approx((0.96 - 1 + 1 - 1) / 2),
        "learns": pytest.approx((1 + 0.95) / 2),
        "learns-mamba": 1.0,
        "learns-gated": 1.0,
    }


def test_guessing_is_no_knowledge_and_needed_is_the_smallest_width_from_the_level_on():
    # its accuracy of 1 / D falls with D, and the share that is known does not
    guesses = {pairs: ((1 / pairs, 1 / pairs),) * 3 for pairs in (2, 4)}
    found = values_of(STUDY, seen(lstm=guesses))
    assert found["overflows"] == found["wider-knows-more"] == pytest.approx(0, abs=1e-6)
    assert found["width-grows"] is None
    judged = {one.claim.id.rpartition("/")[2]: one.value for one in STUDY.judge(seen(lstm=guesses), "quick")}
    unknown = {name for name, value in judged.items() if value is None}
    assert unknown == {"width-grows", "overflows", "wider-knows-more", "attention-ahead"}  # the others learned
    accuracy = torch.tensor([[[0.89, 0.9, 0.5], [0.1, 0.2, 0.3]]], dtype=torch.float64)
    found = needed(WIDTHS, accuracy)
    assert found[0, 0] == 32 and found[0, 1].isnan()


def test_each_seed_counts_at_its_best_learning_rate():
    rates = replace(SETTING, learners=(replace(LEARNERS[0], rates=(1e-3, 1e-2)), *LEARNERS[1:]))
    asked = list(experiments(rates).values())
    assert asked[0].members.seeds == (1000, 1001) * 2
    assert asked[0].members.learning_rate == (1e-3, 1e-3, 1e-2, 1e-2)
    found = [
        HandMadeRun(one, (0, one.steps), {("test", "accuracy"): ends(*(0.3, 0.7, 0.5, 0.6)[: len(one.members)])})
        for one in asked
    ]
    best = torch.tensor([0.5, 0.7], dtype=torch.float64)[:, None, None].expand(2, 2, 3)
    torch.testing.assert_close(STUDY.see(found, rates).accuracy["attention"].double(), best, rtol=0, atol=1e-6)


def test_more_seeds_of_one_learner_are_compared_with_attention_on_the_seeds_of_both():
    more = replace(SETTING, learners=(*LEARNERS[:2], replace(LEARNERS[2], widths=(16, 64), seeds=4), LEARNERS[3]))
    found = []
    for label, one in experiments(more).items():
        # four pairs at the smallest width: 1 for attention; of Mamba's seeds the last two are left out
        values = (0.5, 0.25, 0, 0) if label == ("Mamba", 4, 16) else (1.0,) * 4
        found.append(HandMadeRun(one, (0, one.steps), {("test", "accuracy"): ends(*values[: len(one.members)])}))
    read = STUDY.see(found, more)
    assert results_of(STUDY, read)["attention-ahead-mamba"].units == (0.5, 0.75)
    assert results_of(STUDY, read)["width-grows-mamba"].units == (4.0,) * 4
    by_seed = {one.title: one.rows for draw in STUDY.draws for one in listed(draw(read)) if "seed by seed" in one.title}
    assert by_seed["Width needed, seed by seed: Mamba"] == tuple((seed, 16, 64) for seed in range(1000, 1004))
    assert by_seed["Width needed, seed by seed: LSTM"] == ((1000, 16, 16), (1001, 16, 16))


def listed(drawn):
    return drawn if isinstance(drawn, list) else [drawn]


@pytest.mark.parametrize("setting", [QUICK, PAPER], ids=["quick", "paper"])
def test_the_smallest_width_and_the_first_seeds_of_all_learners_are_the_same(setting):
    assert len({one.widths[0] for one in setting.learners}) == 1
    seeds = [one.members.seeds for one in experiments(setting).values()]
    assert len({one[: min(learner.seeds for learner in setting.learners)] for one in seeds}) == 1


def test_experiments_differ_in_model_pairs_and_width_alone_and_have_the_sources_sizes():
    asked = list(experiments(SETTING).values())
    kinds = ("decoder", "lstm", "mamba", "gated-linear-attention")
    assert [(one.model.kind, one.task.pairs, one.model.width) for one in asked] == [
        (kind, pairs, width) for kind in kinds for pairs in (2, 4) for width in WIDTHS
    ]
    assert all(one.model.head_width == one.model.width for one in asked[:6])
    assert {one.task.replace(pairs=2, length=6) for one in asked} == {asked[0].task}
    assert all(one.recipe == asked[0].recipe for one in asked)
    assert {one.members.learning_rate for one in asked[6:]} == {(1e-2, 1e-2)}
    asked = list(experiments(PAPER).values())
    assert {(one.task.pairs, one.task.length, one.recipe.batch) for one in asked} == {
        (4, 64, 512), (8, 128, 512), (16, 256, 256), (64, 512, 128),
    }  # fmt: skip
    assert {one.model.width for one in asked} == {64, 128, 256, 512}
    assert asked[0].members.learning_rate == pytest.approx([10 ** (-4 + 2 * place / 3) for place in range(4)], rel=1e-2)


ADDRESSES = {
    ("quick", "attention, 2 pairs, width 16"): "a48caf78033f399f0f69",
    ("quick", "LSTM, 4 pairs, width 128"): "e386e53eb1b3724cec1f",
    ("paper", "attention, 64 pairs, width 512"): "f720ecf13a930048c058",
    ("paper", "LSTM, 4 pairs, width 64"): "9fe60860590b31c4fa3a",
}


def test_addresses_from_before_further_learners():
    now = {(name, one.label): one.cell.address for name in ("quick", "paper") for one in STUDY.experiments_of(name)}
    assert {label: now[label] for label in ADDRESSES} == ADDRESSES


STEPS = (0, 100, 200, 300, 400)
# accuracies of two seeds; 0.95 is reached halfway from 0.9 to 1
TRAIN = {
    grokking.DECAY: [[0, 0.9, 1, 1, 1], [0, 0, 0.9, 1, 1]],  # at 150 and 250
    grokking.PLAIN: [[0, 0.9, 1, 1, 1], [0, 0.9, 1, 1, 1]],
    grokking.MORE: [[0, 0.9, 1, 1, 1], [0, 0.9, 1, 1, 0.98]],
}
TEST = {
    grokking.DECAY: [[0, 0.1, 0.2, 0.9, 1], [0, 0, 0.2, 0.4, 0.95]],  # at 350 and 400
    grokking.PLAIN: [[0, 0, 0.1, 0.2, 0.3], [0, 0, 0, 0.95, 1]],  # never, and at 300
    grokking.MORE: [[0, 0, 0.95, 1, 1], [0, 0.95, 1, 1, 1]],  # at 200 and 100
}


def grokked(train=TRAIN, test=TEST, setting=grokking.QUICK, checkpoints=None):
    made = grokking.experiments(replace(setting, seeds=2)).values()
    accuracy = [{("train", "accuracy"): train[one.label], ("test", "accuracy"): test[one.label]} for one in made]
    runs = [HandMadeRun(one, STEPS, values, checkpoints) for one, values in zip(made, accuracy, strict=True)]
    return grokking.STUDY.see(runs, setting)


def test_values_and_experiments_of_grokking():
    # memorised at 200 and 300; the second seed generalises sooner without decay
    expected = {"long-after": (350 / 150 + 400 / 250) / 2, "memorised-first": (0.2 + 0.4) / 2, "decay-sooner": 0.5}
    expected |= {"less-data-later": (350 / 200 + 400 / 100) / 2, "memorised": (1 + 0.98) / 2}
    assert values_of(grokking.STUDY, grokked()) == pytest.approx(expected)
    never = {**TEST, grokking.DECAY: [[0] * 5, [0, 0, 0, 1, 1]]}
    found = values_of(grokking.STUDY, grokked(test=never))
    assert found["long-after"] is found["less-data-later"] is None
    assert found["decay-sooner"] == 0.5  # 295 before 300
    unfit = {**TRAIN, grokking.DECAY: [[0] * 5, [0, 1, 1, 1, 1]]}
    assert values_of(grokking.STUDY, grokked(unfit))["memorised-first"] is None
    decay, plain, more = grokking.experiments(grokking.QUICK).values()
    assert (decay.recipe.optimiser.weight_decay, plain.recipe.optimiser.weight_decay) == (1.0, 0.0)
    assert decay.task == plain.task and decay.task.training_pairs == round(0.6 * 41**2) == decay.recipe.data.size
    assert more.task == decay.task.replace(fraction=0.75) and more.recipe.data.size == round(0.75 * 41**2)
    assert more.recipe.replace(data=decay.recipe.data) == decay.recipe


class Circle(nn.Module):
    """Adds the angles of two numbers on a circle, or subtracts them if `sign` is -1; compares with each output's angle.

    From one number to the next along the cycle are 2πk / n. Outputs outside the cycle have the logit 0.
    """

    def __init__(self, cycle, vocabulary, outputs, frequency, amplitude, sign=1):
        super().__init__()
        angles = torch.arange(len(cycle)) * 2 * pi * frequency / len(cycle)
        self.embed = TokenEmbedding(vocabulary, 2)
        rows = torch.zeros(vocabulary, 2)
        rows[cycle] = torch.stack([angles.cos(), angles.sin()], dim=1)
        self.embed.W_E = nn.Parameter(rows)
        self.out = nn.Parameter(amplitude * rows[:outputs])
        self.sign = sign

    def forward(self, tokens):
        (x, across), (y, up) = (self.embed.W_E[tokens[:, place]].T for place in (0, 2))
        added = torch.stack([x * y - self.sign * across * up, across * y + self.sign * x * up], dim=1)
        return (added @ self.out.T).unsqueeze(1).expand(-1, 4, -1)


@pytest.mark.parametrize(
    ("setting", "cycle", "sign"),
    [
        (grokking.QUICK, range(41), 1),
        (grokking.PAPER, [pow(5, power, 97) for power in range(96)], -1),  # 5 is the least generator modulo 97
    ],
)
def test_progress_of_models_that_add_angles_on_one_circle(setting, cycle, sign):
    def members(*amplitudes):
        made = zip((3, 17), amplitudes, strict=True)
        prime = setting.prime
        return stacked(*(Circle(list(cycle), prime + 2, prime, k, amplitude, sign) for k, amplitude in made))

    def loss(amplitude, frequency):
        angles = [2 * pi * frequency * n / len(cycle) for n in range(len(cycle))]
        return log(sum(exp(amplitude * cos(one)) for one in angles) + setting.prime - len(cycle)) - amplitude

    seen = grokked(setting=setting, checkpoints={100: members(0.0, 0.0), 400: members(5.0, 9.0)})
    figure, table = (draw(seen) for draw in grokking.STUDY.draws[-2:])
    curves = {one.label: one for one in figure.lines}
    guess, ends = log(setting.prime), (loss(5, 3), loss(9, 17))
    assert list(curves) == ["training pairs", "unseen pairs", "restricted loss", "excluded loss"]
    restricted, excluded = curves["restricted loss"], curves["excluded loss"]
    assert restricted.x == excluded.x == (100, 400)
    assert restricted.mean == pytest.approx([guess, sum(ends) / 2], rel=1e-5)
    assert (restricted.low[1], restricted.high[1]) == pytest.approx((min(ends), max(ends)), rel=1e-5)
    assert excluded.mean == pytest.approx([guess, guess], rel=1e-5)
    assert [row[:2] for row in table.rows] == [(1100, "3"), (1101, "17")]
    assert [row[2:] for row in table.rows] == [pytest.approx((end, guess, 1), rel=1e-5) for end in ends]


def test_nothing_is_drawn_of_progress_without_weights_or_without_a_cycle():
    runs = grokked().runs
    other = replace(
        runs[grokking.DECAY].experiment, task=runs[grokking.DECAY].experiment.task.replace(operation="x2+y2")
    )
    light = type("LightRun", (HandMadeRun,), {"has_weights": False})
    for run in (HandMadeRun(other, STEPS, {}), light(runs[grokking.PLAIN].experiment, STEPS, {})):
        seen = grokking.STUDY.see([run, run, run], grokking.QUICK)
        assert [draw(seen) for draw in grokking.STUDY.draws[-2:]] == [None, None]
