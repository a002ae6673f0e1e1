"""Studies with other values: what is trained, what is kept, and what is claimed."""

from dataclasses import replace

import pytest

from anchorlab.errors import SpecError
from anchorlab.findings import at_least
from anchorlab.models import DecoderSpec
from anchorlab.runs import Store
from anchorlab.studies import STUDIES, Profile, Reading, Study, at_end, kept_findings, reading, run_study, study
from anchorlab.studies.vary import name_of
from anchorlab.tasks import task
from anchorlab.training import Evaluation, Experiment, FixedSample, Members, Recipe
from tests.studies.made_up_claims import made_up

above = made_up("above", at_least(0.0), lambda seen: seen.loss, at="Fig 1")


def trains(setting) -> dict[int, Experiment]:
    """One for each size of training data."""
    return {
        size: Experiment(
            task("anchor/identity"),
            DecoderSpec(layers=1, heads=1, width=8, head_width=8),
            Recipe(data=FixedSample(size=size), batch=10, duration=2, evaluation=Evaluation(every=2, size=10)),
            Members(seeds=2),
            f"{size} sequences",
        )
        for size in (20, 40)
    }


class Seen(Reading):
    @reading
    def loss(self):
        assert [run.experiment.label for run in self.runs.values()] == ["20 sequences", "40 sequences"]
        return at_end(self.first, "test", "loss")


PAPERS = Study(
    "anchor/made-up",
    "A study.\n\nOf sizes.\n",
    (above,),
    {"quick": Profile(None, "A note."), "paper": Profile(None, "", paper=True)},
    reads=Seen,
    trains=trains,
    smoke=None,
)


def test_values_and_seeds_of_all_experiments_and_their_starts():
    one = PAPERS.vary({"model.heads": 2, "recipe.optimiser.learning_rate": 0.5}, seeds=[3, 5, 7])
    for before, after in zip(PAPERS.experiments_of("quick"), one.experiments_of("quick"), strict=True):
        assert after == replace(
            before,
            model=before.model.replace(heads=2),
            recipe=before.recipe.replace(optimiser=before.recipe.optimiser.replace(learning_rate=0.5)),
            members=Members(seeds=(3, 5, 7)),
        )
    (one, _) = PAPERS.vary({"members.initialisation_scale": 0.5}).experiments_of("quick")
    assert one.members.initialisation_scale == (0.5, 0.5)

    # also fields that a specification leaves out at their defaults
    (one, _) = PAPERS.vary({"model.norm": "pre", "recipe.data.nested": True}).experiments_of("quick")
    assert one.model.norm == "pre" and one.recipe.data.nested

    def after_another(setting):
        base = trains(setting)[20]
        return {20: replace(base, start=base, recipe=base.recipe.replace(duration=4))}

    found = replace(PAPERS, trains=after_another).vary({"model.heads": 2, "recipe.duration": 6}, seeds=3)
    (one,) = found.experiments_of("quick")
    assert one.start is not None
    assert (one.model.heads, one.start.model.heads) == (2, 2)
    assert (one.recipe.duration, one.start.recipe.duration) == (6, 2)
    assert one.members.seeds == one.start.members.seeds == (0, 1, 2)


@pytest.mark.parametrize(
    ("values", "seeds", "name", "words"),
    [
        ({"model.heads": 2}, None, "anchor/made-up-heads-2", "model.heads = 2"),
        ({}, range(3), "anchor/made-up-seeds-0-to-2", "seeds 0 to 2"),
        ({}, [4, 9], "anchor/made-up-seeds-4-9", "seeds 4, 9"),
        ({"model.heads": 2, "recipe.optimiser.learning_rate": 0.5}, 2,
         "anchor/made-up-heads-2-optimiser-learning-rate-0-5-seeds-0-1",
         "model.heads = 2 and recipe.optimiser.learning_rate = 0.5 and seeds 0, 1"),
    ],
)  # fmt: skip
def test_names_and_words(values, seeds, name, words):
    one = PAPERS.vary(values, seeds)
    assert (one.name, one.title) == (name, f"A study, with {words}")
    assert one.summary == "Of sizes."
    assert one.profile("quick").note == f"A note. Changed from anchor/made-up: {words}."
    assert PAPERS.vary(values, seeds, name="own/that").name == "own/that"


def test_values_that_differ_in_sign_have_names_of_their_own():
    """Findings are kept by name."""
    values = ("+5", "-5", [1, -2], [1, 2], 1e-05)
    ends = ("5", "minus-5", "1-minus-2", "1-2", "1e-05")
    assert [name_of("a/b", {"task.shift": one}, None) for one in values] == [f"a/b-shift-{end}" for end in ends]


def test_names_of_one_s_own_and_long_ones():
    values = {"recipe.optimiser.learning_rate": 0.12345678, "recipe.optimiser.weight_decay": 0.12345678}
    one, other = (PAPERS.vary({**values, "model.heads": heads}).name for heads in (1, 2))
    assert one != other and len(one) < 30
    one = PAPERS.vary(seeds=[7], name="own/that")
    assert (one.claim(above).source, one.has_own_claims) == ("anchor functions, Fig 1", False)


def test_claims_remain_the_papers_with_other_seeds_alone(tmp_path):
    store = Store(tmp_path)
    same = run_study(PAPERS.vary(seeds=[7]), "paper", store, workers=1)
    other = run_study(PAPERS.vary({"model.heads": 2}), "paper", store, workers=1)
    assert [one.scope for one in (*same.claims, *other.claims)] == ["paper", "own"]
    assert {one.study for one in kept_findings(store)} == {"anchor/made-up-seeds-7", "anchor/made-up-heads-2"}
    assert other.claims[0].claim.id == "anchor/made-up-heads-2/above"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({}, "values"),
        ({"model.head": 2}, r"model\.head"),
        ({"heads": 2}, "heads"),
        ({"model.heads": 0}, r"model\.heads"),
        ({"recipe.data.nest": True}, r"recipe\.data\.nest: unknown field"),
        ({"recipe.data.size": 60}, r"recipe\.data\.size: is what anchor/made-up compares: 20, 40"),
    ],
)
def test_values_that_cannot_be_varied_are_named(values, field):
    with pytest.raises(SpecError, match=f"^{field}"):
        PAPERS.vary(values).experiments_of("quick")


def test_what_a_start_is_trained_on_without_is_compared_too():
    """Fine-tuning with noise, after training without: noise in both would be another study."""
    found = study("truncation/noise-first")
    with pytest.raises(SpecError, match=r"^task\.alpha: is what truncation/noise-first compares: 0\.5, 0\.0; vary"):
        found.vary({"task.alpha": 0.3}).experiments_of("smoke")
    tuned = found.vary({"task.length": 20}).experiments_of("smoke")[1]
    assert (tuned.task.length, tuned.start.task.length, tuned.start.task.alpha) == (20, 20, 0.0)


TRAINED = {name: study(name).experiments_of("smoke") for name in STUDIES if study(name).observe is None}
SEEDS = {name: {len(one.members) for one in experiments} for name, experiments in TRAINED.items()}


@pytest.mark.parametrize("name", ["language/heads", *(name for name, counts in SEEDS.items() if not counts)])
def test_a_study_that_trains_nothing_is_refused(name):
    with pytest.raises(SpecError, match=f"{name} trains nothing"):
        study(name).vary(seeds=3)


@pytest.mark.parametrize("name", [name for name, counts in SEEDS.items() if len(counts) == 1])
def test_every_study_of_as_many_seeds_throughout_takes_others(name):
    seeds = range(200, 200 + min(SEEDS[name]))
    assert all(one.members.seeds == tuple(seeds) for one in study(name).vary(seeds=seeds).experiments_of("smoke"))
