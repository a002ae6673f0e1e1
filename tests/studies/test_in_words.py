"""What a profile trains, in words: against sentences written by hand."""

from dataclasses import dataclass, replace

import pytest

from anchorlab.models import AssociativeSpec, DecoderSpec, FNNSpec, LSTMSpec, VectorSpec
from anchorlab.studies import Profile, Reading, Study
from anchorlab.studies.in_words import in_words, listed
from anchorlab.tasks import task
from anchorlab.training import SGD, AdamW, Experiment, FixedSample, Members, Recipe, Stop, Stream, WarmupCosine

IDENTITY = task("anchor/identity")
"""201 tokens on 9 positions: a decoder of width w has 210 w weights in its embeddings, 201 (w + 1) in the projection. A
block of h heads of width v has 4 h v w in its attention, 6 w² in its feed-forward layer, and 2 w in either norm."""

RECIPE = Recipe(data=FixedSample(size=200), optimiser=AdamW(6e-3, weight_decay=0.3), batch=50, duration=600)
FALLING = WarmupCosine(warmup=60, horizon=600, start=0.1, end=0.01)
SMALL = DecoderSpec(layers=2, heads=1, width=10)  # 2100 + 2 (400 + 600 + 40) + 2211 = 6391 weights

ONE = Experiment(IDENTITY, SMALL, RECIPE, Members(seeds=10))


def sized(*sizes: int) -> list[Experiment]:
    return [replace(ONE, recipe=RECIPE.replace(data=FixedSample(size=size))) for size in sizes]


def of_models(*models) -> list[Experiment]:
    return [replace(ONE, model=model) for model in models]


def under(**fields) -> Experiment:
    return replace(ONE, recipe=RECIPE.replace(**fields))


def test_one_experiment():
    assert in_words([ONE]) == (
        "a decoder of 2 layers of 1 head, width 10 (6.39 k parameters); 200 training sequences; "
        "600 steps in batches of 50 (150 epochs); AdamW at 6e-3, weight decay 0.3; 10 seeds"
    )


@pytest.mark.parametrize(
    ("experiments", "words"),
    [
        (sized(200, 600), "200 and 600 training sequences; 600 steps in batches of 50;"),
        (sized(200, 300, 400, 700), "200, 300, 400 and 700 training sequences;"),
        (sized(500, 1000, 1500, 2000, 2500, 3000), "500, 1000, ..., 3000 training sequences (6 sizes);"),
        (sized(200, 300, 400, 700, 1000, 20_000), "200 to 20,000 training sequences (6 sizes);"),
        ([under(data=Stream())], "; new sequences in every batch; 600 steps in batches of 50;"),
        ([under(data=Stream()), ONE], "; new sequences in every batch and 200 training sequences; 600 steps"),
        ([replace(ONE, members=Members(seeds=2, data_size=(100, 200)))], "; 100 and 200 training sequences; 600 steps"),
        ([ONE, replace(ONE, task=task("anchor/composite"))], "; 200 training sequences, 2 tasks;"),
    ],
)
def test_data(experiments, words):
    assert words in in_words(experiments)


@pytest.mark.parametrize(
    ("experiments", "words"),
    [
        ([under(unit="epochs", duration=40)], "; 40 epochs in batches of 50 (160 steps);"),
        ([under(batch=200)], "; 600 steps in batches of 200;"),
        ([under(duration=2)], "; 2 steps in batches of 50;"),
        ([under(duration=1), ONE], "; 1 and 600 steps in batches of 50;"),
        ([under(stop=Stop(metric="accuracy", value=0.99))],
         "; at most 600 steps in batches of 50 (150 epochs), until the test accuracy is 0.99;"),
        ([ONE, replace(ONE, start=under(duration=30))],
         "; 600 steps in batches of 50 (150 epochs), 1 of 2 trainings after 30 steps of another;"),
    ],
)  # fmt: skip
def test_duration(experiments, words):
    assert words in in_words(experiments)


@pytest.mark.parametrize(
    ("experiments", "words"),
    [
        ([under(schedule=FALLING)],
         "; AdamW at up to 6e-3 (warm-up from 6e-4 over 60 steps, cosine to 6e-5 at the end), weight decay 0.3;"),
        ([under(schedule=FALLING, duration=60)], "(warm-up from 6e-4 over 60 steps, cosine to 6e-5 at step 600)"),
        ([under(schedule=WarmupCosine(horizon=600, end=0.5))], "at up to 6e-3 (cosine to 3e-3 at the end),"),
        ([under(schedule=WarmupCosine(warmup=1, horizon=600, end=1.0))], "(warm-up from 0 over 1 step), weight"),
        ([under(schedule=FALLING), ONE], "; AdamW at up to 6e-3, weight decay 0.3;"),
        ([replace(under(schedule=FALLING), members=Members(seeds=2, learning_rate=(0.5, 0.5)))],
         "; AdamW at up to 0.5 (warm-up from 0.05 over 60 steps, cosine to 5e-3 at the end), weight decay 0.3;"),
        ([under(optimiser=AdamW(1e-3, weight_decay=0.0))], "; AdamW at 1e-3, no weight decay;"),
        ([under(optimiser=AdamW(1e-3, undecayed=("bias", "norm")))],
         "; AdamW at 1e-3, weight decay 0.01 (norm and bias weights excluded);"),
        ([ONE, under(optimiser=AdamW(6e-3, weight_decay=0.0))], "; AdamW at 6e-3, weight decay 0.3 and 0;"),
        ([under(optimiser=SGD(0.03, momentum=0.9))], "; SGD at 0.03, momentum 0.9, no weight decay;"),
        ([replace(ONE, members=Members(seeds=2, learning_rate=(4.64e-4, 2.0)))], "; AdamW at 4.64e-4 and 2, weight"),
    ],
)  # fmt: skip
def test_optimiser(experiments, words):
    assert words in in_words(experiments)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([Members(seeds=1)], "; 1 seed"),
        ([Members(seeds=(7, 8, 9)), Members(seeds=3)], "; 3 seeds each"),
        ([Members(seeds=3), Members(seeds=1)], "; 3 and 1 seeds"),
        (
            [Members(seeds=(0, 0, 1, 1), initialisation_scale=(0.0, 2.0) * 2)],
            "; 2 seeds, initial weights times 0 and 2",
        ),
    ],
)
def test_seeds(members, words):
    found = [replace(ONE, members=each) for each in members]
    assert in_words(found).endswith(words)


def test_initialisation_rates():
    members = Members(seeds=(0, 0), gamma={"all": (0.5, 0.8)})
    found = in_words([replace(ONE, model=SMALL.replace(initialisation="gamma"), members=members)])
    assert found.endswith("; 1 seed, γ = 0.5 and 0.8")


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ([SMALL.replace(layers=layers) for layers in (1, 2, 3, 4)],
         "decoders of 1 to 4 layers of 1 head, width 10 (5.35 k to 8.47 k parameters)"),
        ([SMALL.replace(feed_forward=False)],
         "a decoder of 2 layers of 1 head without feed-forward layers, width 10 (5.15 k parameters)"),
        ([SMALL.replace(feed_forward=False, mask=False), SMALL.replace(mask=False)],
         "decoders of 2 layers of 1 head without a mask, width 10 (5.15 k and 6.39 k parameters)"),
        ([DecoderSpec(), DecoderSpec(layers=2, heads=1, head_width=64)],
         "decoders of 4 layers of 4 heads and 2 layers of 1 head, width 400 (5.65 M and 2.29 M parameters)"),
        ([DecoderSpec(layers=2, heads=1, width=width) for width in (10, 40)],
         "decoders of 2 layers of 1 head, widths 10 and 40 (6.39 k and 49 k parameters)"),
    ],
)  # fmt: skip
def test_models(models, words):
    assert in_words(of_models(*models)).startswith(f"{words};")


def test_models_of_several_kinds():
    """An LSTM layer has 8 w² + 8 w weights beside the projection; a block of the network 9 w (2 h + 1) + h, and it ends
    in a map from 9 w to w."""
    found = in_words(of_models(SMALL, LSTMSpec(layers=1, width=10), FNNSpec(layers=1, width=10, hidden=20)))
    assert found.startswith(
        "a decoder of 2 layers of 1 head, width 10 (6.39 k parameters), an LSTM of 1 layer, width 10 (5.1 k parameters)"
        " and a fully connected network of 1 layer, width 10, 20 hidden units (8.93 k parameters);"
    )


def test_models_without_layers_and_on_vectors():
    """The memory's only weights are its matrix."""
    memory = Experiment(task("associative/noisy"), AssociativeSpec(width=3), RECIPE, Members(seeds=1))
    assert in_words([memory]).startswith("an associative memory, width 3 (9 parameters);")
    transformer = Experiment(
        task("retrieval/minimal"), VectorSpec(layers=2, heads=1, width=8), RECIPE.replace(data=Stream()), Members()
    )
    assert in_words([transformer]).startswith("a transformer of 2 layers of 1 head, width 8 (")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([5], "5"),
        ([9, 1, 1, 5], "9, 1 and 5"),
        ([4, 2, 3, 1], "1 to 4"),
        ([4, 2, 7, 1], "1, 2, 4 and 7"),
        ([1, 2, 4, 8, 16, 32], "1 to 32"),
        ([10_000, 20_000, 30_000, 40_000, 50_000, 60_000], "10,000, 20,000, ..., 60,000"),
    ],
)
def test_lists(values, words):
    assert listed(values) == words


def test_beside_others_only_what_differs_is_said_and_no_schedule():
    other = under(duration=60, schedule=FALLING, optimiser=AdamW(1e-3, weight_decay=0.3))
    assert in_words([other], beside=[ONE]) == (
        "60 steps in batches of 50 (15 epochs); AdamW at up to 1e-3, weight decay 0.3"
    )
    assert in_words([under(schedule=FALLING)], beside=[under(schedule=FALLING.replace(start=0.5))]) == ""
    assert in_words([ONE], beside=[ONE]) == ""


@dataclass(frozen=True)
class Setting:
    seeds: int
    duration: int


OURS, THEIRS = Setting(1, 60), Setting(5, 600)
STUDY = Study(
    "anchor/made-up",
    "A study.",
    claims=(),
    profiles={
        "quick": Profile(OURS),
        "paper": Profile(THEIRS, "The seeds are ours.", paper=True),
        "paper-again": Profile(THEIRS),
    },
    trains=lambda setting: {0: replace(under(duration=setting.duration), members=Members(seeds=setting.seeds))},
    reads=Reading,
    smoke=Setting(1, 2),
)
MODEL = "a decoder of 2 layers of 1 head, width 10 (6.39 k parameters); 200 training sequences"


@pytest.mark.parametrize(
    ("profile", "note"),
    [
        ("quick", "Quick profile: {}; 60 steps in batches of 50 (15 epochs); AdamW at 6e-3, weight decay 0.3; 1 seed. "
                  "In the paper profile: 600 steps in batches of 50 (150 epochs); 5 seeds."),
        ("paper", "Paper profile: {}; 600 steps in batches of 50 (150 epochs); AdamW at 6e-3, weight decay 0.3; 5 "
                  "seeds. The seeds are ours."),
        ("paper:1001", "Paper profile: {}; 600 steps in batches of 50 (150 epochs); AdamW at 6e-3, weight decay 0.3; "
                       "1 seed. The seeds are ours. Here seed 1001 alone."),
        ("paper-again", "Paper-again profile: {}; 600 steps in batches of 50 (150 epochs); AdamW at 6e-3, weight decay "
                        "0.3; 5 seeds."),
        ("smoke", "Smoke profile: {}; 2 steps in batches of 50; AdamW at 6e-3, weight decay 0.3; 1 seed. The smallest "
                  "setting that exercises the code."),
    ],
)  # fmt: skip
def test_a_note_begins_with_the_setting(profile, note):
    assert STUDY.note_of(profile) == note.format(MODEL)


def test_the_note_of_a_study_that_trains_nothing_or_changes_what_the_papers_setting_cannot_take():
    exact = replace(STUDY, profiles={"quick": Profile(3, "Up to 3.")}, trains=lambda setting: {}, smoke=None)
    assert exact.note_of("quick") == "Up to 3."

    def refusing(setting):
        return {0: replace(ONE, recipe=RECIPE.replace(batch=50 if setting == OURS else 500))}

    assert "paper" not in replace(STUDY, trains=refusing).note_of("quick")
