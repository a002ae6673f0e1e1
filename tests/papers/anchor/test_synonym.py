"""What synonyms teach, on runs made by hand."""

from dataclasses import replace

import pytest
import torch

from anchorlab.papers.anchor import synonym
from anchorlab.tasks import task
from tests.papers.hand_made_runs import HandMadeRun, results_of, seen_by_hand, values_of

NEVER = float("nan")


def test_the_compared_pairs_are_groups_and_figure_9b_has_the_papers_sizes():
    with_synonyms = task("anchor/synonym", total=1000)
    for split, pairs in (("test on task", synonym.UNSEEN), ("test on data", synonym.TWINS)):
        batch = with_synonyms.sample(split, 500, seed=0)
        drawn = {batch.groups[int(group)] for group in batch.group.unique()}
        assert set(pairs) <= drawn
    plain = task("anchor/synonym", total=1000, synonyms=False)
    drawn = plain.sample("train", 500, seed=0)
    assert not {drawn.groups[int(group)] for group in drawn.group.unique()} & {*synonym.UNSEEN, *synonym.TWINS}
    assert synonym.shown([1000, 2000, 3000, 4000, 6000]) == (3000, 4000)
    assert synonym.shown([1000, 4000, 10_000]) == (4000, 10_000)
    assert synonym.shown([1000]) == (1000,)


def arm(sizes, on_task, on_data) -> synonym.Arm:
    train = torch.full((len(sizes), 2), 0.123)
    return synonym.Arm(
        sizes, {synonym.TRAIN: train, synonym.DATA: torch.tensor(on_data), synonym.TASK: torch.tensor(on_task)}
    )


# the embeddings of 1, 2, 4, 3 and 9, by seed: in the first 9 is nearest to 3, in the second to 1, which is as far but
# turned less
NEAR = [[[1.0, 0.0], [-1.0, 0.0], [0.0, -1.0], [3.0, 9.0], [0.0, 1.0]]]
FAR = [[[2.0, 9.0], [-1.0, 0.0], [0.0, -1.0], [1.0, 1.0], [0.0, 1.0]]]


def by_hand(synonyms, plain, sizes, unseen, twins, embeddings=NEAR + FAR) -> synonym.Seen:
    return seen_by_hand(
        synonym.Seen,
        embeddings=torch.tensor(embeddings),
        arms={"synonyms": synonyms, "plain": plain},
        sizes=sizes,
        unseen=torch.tensor(unseen),
        twins=torch.tensor(twins),
    )


def test_synonyms_that_teach():
    seen = by_hand(
        # the second seed has not learned the trained pairs at 1000, so its 0.9 is not judged
        arm((1000, 4000), [[0.3, 0.9], [1.0, 0.98]], [[0.95, 0.94], [1.0, 1.0]]),
        # at 2000 the trained pairs are not learned, so its 0.8 is not judged
        arm((2000, 4000, 9000), [[0.8, 0.8], [0.1, 0.2], [0.4, 0.5]], [[0.94, 0.94], [0.96, 0.96], [1.0, 1.0]]),
        sizes=(3000, 4000),
        unseen=[[120.0, 300.0, 130.0], [220.0, NEVER, NEVER]],
        twins=[[100.0, NEVER, 100.0], [200.0, 100.0, NEVER]],
    )
    expected = {
        "enough-data": 0.99,
        "little-data": 0.3,
        "plain-fails": 0.45,
        "helps": 0.54,
        "later": 1.0,
        "synonyms-nearest": 0.5,
    }
    delay = ((1.2 + 1.1) / 2 + 1.3) / 2  # of a seed at both sizes, and one at one
    assert values_of(synonym.STUDY, seen) == pytest.approx(expected | {"slightly-later": delay})


def test_synonyms_that_do_not():
    seen = by_hand(
        embeddings=FAR + FAR,
        synonyms=arm((1000, 4000), [[0.5, 0.6], [0.9, 0.9]], [[1.0, 1.0], [1.0, 1.0]]),
        plain=arm((1000, 4000), [[0.2, 0.2], [0.8, 0.6]], [[1.0, 1.0], [0.95, 1.0]]),
        sizes=(1000, 4000),
        unseen=[[100.0, 150.0], [100.0, 400.0]],
        twins=[[200.0, 100.0], [100.0, 100.0]],
    )
    # at the same step is not later
    expected = {
        "enough-data": 0.9,
        "little-data": 0.55,
        "plain-fails": 0.7,
        "helps": 0.2,
        "later": 0.5,
        "synonyms-nearest": 0.0,
    }
    assert values_of(synonym.STUDY, seen) == pytest.approx(expected | {"slightly-later": (0.5 + 1.5 + 1 + 4) / 4})


def test_a_seed_is_one_unit_of_both_sizes_and_what_is_never_learned_is_not_judged():
    one = arm((1000,), [[0.1, 0.2]], [[1.0, 1.0]])
    unseen, twins = [[120.0, 90.0], [220.0, NEVER]], [[100.0, 100.0], [200.0, NEVER]]
    found = results_of(synonym.STUDY, by_hand(one, one, (3000, 4000), unseen, twins))
    assert found["later"].units == (1.0, 0.0)
    assert found["later"].value == 0.5  # and not two of three runs
    assert found["slightly-later"].units == pytest.approx((1.15, 0.9))
    one = arm((1000,), [[0.1, 0.2]], [[0.5, 0.5]])
    never = [[NEVER, NEVER]]
    found = values_of(synonym.STUDY, by_hand(one, one, (1000,), never, twins=[[10.0, 20.0]]))
    unknown = [name for name, value in found.items() if value is None]
    assert unknown == ["little-data", "plain-fails", "later", "slightly-later"]
    one = arm((1000,), [[0.1, 0.2]], [[1.0, 1.0]])
    two = by_hand(one, one, (1000,), [[20.0, 30.0]], [[10.0, 20.0]])
    assert values_of(synonym.STUDY, two)["later"] is None and values_of(synonym.STUDY, two)["slightly-later"] is None
    three = by_hand(one, one, (1000,), [[20.0, 30.0, 20.0]], [[10.0, 20.0, 20.0]])
    assert values_of(synonym.STUDY, three)["later"] == pytest.approx(2 / 3)


STEPS = [0, 100, 200]


def run(experiment, on_task, pairs):
    """A run of two members whose accuracy on each pair is given along training; elsewhere it is of no use."""
    accuracy = ("accuracy", "none")
    ends = [[0.0, 0.0, one] for one in on_task]
    # without synonyms there is no pair with 3
    groups = {(synonym.DATA, *accuracy, pair): pairs[pair] for pair in synonym.TWINS if pair in pairs}
    groups |= {(synonym.TASK, *accuracy, pair): pairs[pair] for pair in synonym.UNSEEN if pair in pairs}
    values = {
        (synonym.TASK, "accuracy"): ends,
        (synonym.DATA, "accuracy"): [[0, 0, 0.96]] * 2,
        (synonym.TRAIN, "accuracy"): [[0, 0, 1]] * 2,
        (synonym.DATA, *accuracy, "1,2"): [[0.33] * 3] * 2,
    }
    return HandMadeRun(experiment, STEPS, values | groups)


def test_arms_pairs_and_splits_are_read_in_their_order():
    setting = replace(
        synonym.QUICK,
        synonyms=tuple(replace(one, seeds=2) for one in synonym.QUICK.synonyms),
        plain=tuple(replace(one, seeds=2) for one in synonym.QUICK.plain),
    )
    early, late = [[0, 0.9, 1], [0, 0.8, 1]], [[0, 0, 0.9], [0, 0.4, 0.6]]
    pairs = {
        synonym.TWINS[0]: early,
        synonym.TWINS[1]: [[0, 0.9, 1], [0, 1, 1]],  # the mean is 0.9 at 100 for both members
        synonym.UNSEEN[0]: late,
        synonym.UNSEEN[1]: [[0, 0, 0.9], [0, 0.4, 0.6]],  # at 200, and never
    }
    scores = [[0.1, 0.2], [0.5, 0.6], [0.97, 0.99], [0.3, 0.3], [0.4, 0.2]]
    runs = [run(one, score, pairs) for one, score in zip(synonym.experiments(setting).values(), scores, strict=True)]
    seen = synonym.STUDY.see(runs, setting)
    for found, expected in ((seen.arms["synonyms"], scores[:3]), (seen.arms["plain"], scores[3:])):
        torch.testing.assert_close(found.accuracy[synonym.TASK], torch.tensor(expected))
        assert found.accuracy[synonym.DATA].unique().tolist() == pytest.approx([0.96])
        assert found.accuracy[synonym.TRAIN].unique().tolist() == [1]
    assert {name: one.sizes for name, one in seen.arms.items()} == {
        "synonyms": (1000, 4000, 10_000),
        "plain": (4000, 10_000),
    }
    assert seen.sizes == (4000, 10_000)
    torch.testing.assert_close(seen.twins, torch.tensor([[100.0, 100.0]] * 2, dtype=torch.float64))
    torch.testing.assert_close(seen.unseen, torch.tensor([[200.0, NEVER]] * 2).double(), equal_nan=True)
    assert seen.both.tolist() == [[True, False]] * 2
