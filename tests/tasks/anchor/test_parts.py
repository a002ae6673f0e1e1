"""Vocabularies, placements, separations, noise, scoring and labels, each by itself against values listed by hand."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from anchorlab import tasks
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks import AnchorBased, AnchorFunction, Batch, Labels, MarkovNoise, ModularResidue, Scoring, Vocabulary
from anchorlab.tasks.anchor import Latent, Layout
from anchorlab.tasks.anchor.pattern import Pattern
from anchorlab.tasks.anchor.separation import MovingKeys


def test_items_and_anchors_of_a_vocabulary() -> None:
    vocabulary = Vocabulary()
    tokens = np.array([3, 19, 20, 100, 101])
    assert vocabulary.item_count == 81
    assert vocabulary.is_item(tokens).tolist() == [False, False, True, True, False]
    assert vocabulary.is_anchor(tokens).tolist() == [True, False, False, False, False]


# Placements: where anchors and keys may stand, against positions listed by hand.
VOCABULARY = Vocabulary()


def layout(*patterns: str, vocabulary: Vocabulary = VOCABULARY, **fields: object) -> Layout:
    return Layout.build([Pattern.parse(text) for text in patterns], tasks.Placement(**fields), vocabulary)


class TestLayout:
    def test_frames_are_all_and_only_once(self) -> None:
        vocabulary = Vocabulary(size=12, items=(8, 9), anchors=(1, 2))
        frames = layout("1 x", "2 . x", length=4, vocabulary=vocabulary).frames
        listed = list(
            zip(
                frames.rule.tolist(), frames.anchors[:, 0].tolist(), frames.anchor_positions[:, 0].tolist(),
                frames.key_positions[:, 0].tolist(), strict=True,
            )
        )  # fmt: skip
        assert sorted(listed) == [(0, 1, p, p + 1) for p in range(3)] + [(1, 2, p, p + 2) for p in range(2)]

    def test_distinct_and_chosen_anchors(self) -> None:
        vocabulary = Vocabulary(anchors=(1, 2, 3))
        frames = layout("A B x", length=3, choices={"A": (1, 2)}, distinct=True, vocabulary=vocabulary).frames
        assert sorted(frames.anchors.tolist()) == [[1, 2], [1, 3], [2, 1], [2, 3]]

    def test_finds_what_stands_there(self) -> None:
        sequences = np.array(
            [
                [43, 33, 13, 3, 20, 89, 44, 24, 56],  # the paper's example
                [43, 33, 13, 3, 20, 89, 44, 3, 56],  # two anchors
                [43, 33, 13, 23, 20, 89, 44, 24, 56],  # none
                [43, 33, 13, 23, 20, 89, 44, 24, 3],  # no room for the key
                [3, 33, 3, 23, 20, 89, 44, 24, 56],
                [43, 33, 13, 3, 120, 89, 44, 24, 56],  # the key is no item
            ]
        )
        found = layout("A x").find(sequences)
        assert found.keys[:, 0].tolist() == [20, -1, -1, -1, -1, -1]
        assert found.anchor_positions[:, 0].tolist() == [3, -1, -1, -1, -1, -1]
        assert found.key_positions[:, 0].tolist() == [4, -1, -1, -1, -1, -1]
        assert found.anchors[:, 0].tolist() == [3, -1, -1, -1, -1, -1]
        assert layout("A x", length=8).find(sequences).rule.tolist() == [-1] * 6

    def test_anchors_side_by_side_equal_copies_and_clashes(self) -> None:
        sequences = np.array([[30, 40, 1, 2, 50], [30, 1, 40, 2, 50], [30, 40, 50, 60, 1], [1, 2, 30, 40, 50]])
        found = layout("x A B", length=5, vocabulary=Vocabulary(anchors=(1, 2))).find(sequences)
        assert found.keys[:, 0].tolist() == [40, -1, -1, -1]
        assert found.anchors.tolist() == [[1, 2], [-1, -1], [-1, -1], [-1, -1]]
        both = layout("m 3 n ... m $", "m 3 n ... n $", length=6)
        sequences = np.array([[30, 3, 40, 50, 60, 30], [30, 3, 40, 50, 60, 40], [30, 3, 40, 50, 60, 50],
                              [30, 3, 30, 50, 60, 30]])  # fmt: skip
        assert both.find(sequences).rule.tolist() == [0, 1, -1, -1]
        assert not both.alone and layout("A x").alone

    def test_writes_what_it_finds(self) -> None:
        """Every frame of a pattern with copies, written into noise and read back."""
        one = layout("A x . B y ... A x $", vocabulary=Vocabulary(anchors=(1, 2)), length=9)
        frames = one.frames
        keys = np.random.default_rng(0).integers(20, 101, size=(len(frames), 2))
        latent = frames.with_keys(keys)
        sequences = np.random.default_rng(1).integers(20, 101, size=(len(frames), 9))
        one.write(sequences, np.arange(len(frames)), latent)
        assert np.array_equal(one.find(sequences).columns(), latent.columns())
        assert np.array_equal(sequences[:, 7:], np.column_stack([frames.anchors[:, 0], keys[:, 0]]))


# Separations of splits, on latents written by hand.
def latent(anchor: int, position: int, key: int, key_position: int) -> Latent:
    columns = (np.array([[value]]) for value in (anchor, position, key, key_position))
    return Latent(np.array([0]), *columns)


class TestSeparation:
    def test_sides_of_every_separation(self) -> None:
        """Section 3.2.1: the key at 1-based position i is held out when mod(x, n-1) is in {i - 2}."""
        sets = ModularResidue(position="key", by_position={i - 1: (i - 2,) for i in range(2, 10)})
        for i in range(2, 10):
            for key in range(20, 101):
                one = latent(3, i - 2, key, i - 1)
                assert sets.side(one, 9).tolist() == ModularResidue().side(one, 9).tolist()
        rule = ModularResidue(modulus=9, position="key", residues=(1, -1))
        assert rule.side(latent(3, 2, 31, 3), 9).tolist() == [1]  # 28 mod 9 = 1
        assert rule.side(latent(3, 2, 29, 3), 9).tolist() == [1]  # 26 mod 9 = 8 = -1
        assert rule.side(latent(3, 2, 30, 3), 9).tolist() == [0]
        keys = np.array([[24, 24], [24, 25], [25, 25]])
        places = np.tile([0, 8], (3, 1))
        two = Latent(np.zeros(3, dtype=int), np.full((3, 1), 3), np.full((3, 1), 4), keys, places)
        assert ModularResidue(position="key").side(two, 9).tolist() == [1, -1, 0]
        rule = MovingKeys()
        assert [rule.side(latent(3, 4, key, 5), 9).item() for key in (23, 24, 28, 103, 104)] == [-1, 0, 1, 0, -1]
        both = tasks.Combined(parts=(rule, AnchorBased(held_out={3: ((50, 50),)})))
        assert [both.side(latent(3, 4, key, 5), 9).item() for key in (23, 49, 50, 104)] == [-1, 0, 1, -1]
        rule = AnchorBased(held_out={1: ((20, 27),), 2: ((28, 35), (90, 90))})
        sides = [rule.side(latent(a, 0, key, 1), 9).item() for a, key in ((1, 27), (1, 28), (2, 28), (2, 90))]
        assert sides == [1, 0, 1, 1]
        assert rule.side(latent(3, 0, 20, 1), 9).tolist() == [0]

    def test_composite_anchor_and_its_combination(self) -> None:
        pairs = np.array([[1, 2], [3, 4], [4, 4], [1, 2], [3, 4]])
        keys = np.array([[25], [25], [25], [24], [24]])
        places = np.tile([[1, 2]], (5, 1))
        some = Latent(np.zeros(5, dtype=int), pairs, places, keys, np.zeros((5, 1), dtype=int))
        rule = tasks.CompositeAnchor(unseen=((3, 4),), seen=((1, 2),))
        assert rule.splits == ("train", "test")
        assert rule.side(some, 9).tolist() == [0, 1, -1, 0, 1]
        both = tasks.Combined(parts=(ModularResidue(position="key"), rule))
        assert both.splits == ("train", "test on data", "test on task")
        assert both.side(some, 9).tolist() == [0, 2, -1, 1, 2]
        assert both.side(replace(some, rule=np.full(5, -1)), 9).tolist() == [-1] * 5


# Noise on a chain: counted on drawn sequences, against the chain's own definition.
ITEMS = (20, 100)


def drawn(noise: MarkovNoise, rows: int = 20_000, length: int = 5) -> np.ndarray:
    return noise.draw(generator(0), rows, length, ITEMS)


def followers(tokens: np.ndarray) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for before, after in zip(tokens[:, :-1].ravel().tolist(), tokens[:, 1:].ravel().tolist(), strict=True):
        found.setdefault(before, set()).add(after)
    return found


@pytest.mark.parametrize("successors", [1, 3, 81])
def test_every_item_has_so_many_successors_and_predecessors(successors):
    after = followers(drawn(MarkovNoise(successors=successors)))
    assert set(after) == set(range(20, 101))
    assert {len(one) for one in after.values()} == {successors}
    before = [token for one in after.values() for token in one]
    assert {before.count(token) for token in range(20, 101)} == {successors}


def test_items_are_equally_frequent_and_successors_equally_likely_on_a_chain_that_is_fixed():
    rows = 81_000
    tokens = drawn(MarkovNoise(successors=2), rows)
    for position in range(5):
        counts = np.unique(tokens[:, position], return_counts=True)[1]
        assert len(counts) == 81 and abs(counts - rows / 81).max() < 5 * math.sqrt(rows / 81)
    first = tokens[:, 0] == 20
    counts = np.unique(tokens[first, 1], return_counts=True)[1]
    assert len(counts) == 2 and abs(counts[0] - first.sum() / 2) < 5 * math.sqrt(first.sum() / 4)
    one = followers(drawn(MarkovNoise(successors=2)))
    again = followers(MarkovNoise(successors=2).draw(generator(9), 20_000, 5, ITEMS))
    assert one == again != followers(drawn(MarkovNoise(successors=2, chain=1)))


def test_sequences_of_a_task_keep_their_keys_and_answers():
    """With one successor noise is certain. It goes on beneath anchor and key by two steps, and not from the key."""
    of = tasks.task("anchor/identity", successors=1)
    batch = of.sample("train", 3000, seed=0)
    key_at, keys = batch.latents["key_positions"][:, 0], batch.latents["keys"][:, 0]
    answer = of.oracle(batch.inputs)
    assert torch.equal(answer.answers, batch.answers) and bool(answer.known.all())
    assert bool((of.split_of(batch.inputs) == 0).all())
    assert torch.equal(batch.inputs.gather(1, key_at[:, None])[:, 0], keys)
    after = {token: next(iter(one)) for token, one in followers(drawn(MarkovNoise(successors=1))).items()}
    follows = 0
    for row, place in zip(batch.inputs.tolist(), key_at.tolist(), strict=True):
        noise = [(at, token) for at, token in enumerate(row) if at not in (place - 1, place)]
        for (at, token), (following_at, following) in pairwise(noise):
            for _ in range(following_at - at):
                token = after[token]
            assert token == following
        follows += place < 8 and row[place + 1] == after[row[place]]
    assert follows < 3000 * 4 / 81  # after the key, noise goes on from the noise before: by chance one in 81


def test_it_is_written_only_where_it_is_chosen():
    """Runs with independent noise keep their addresses."""
    assert "noise" not in AnchorFunction().model_dump(mode="json")
    chosen = AnchorFunction(noise=MarkovNoise(successors=2))
    assert chosen.model_dump(mode="json")["noise"] == {"successors": 2, "chain": 0}
    assert AnchorFunction.parse(chosen.model_dump(mode="json")) == chosen != AnchorFunction()
    AnchorFunction(
        vocabulary=Vocabulary(items=(20, 101)), noise=MarkovNoise(successors=82)
    )  # as many as there are items


# The scored positions, and what training scores beside the answer, by hand.
def scored_batch(targets, answers, positions) -> Batch:
    rivals = {"other": torch.tensor([[5], [6]]).expand(2, len(positions))}
    inputs = torch.tensor([[20, 21, 22, 23], [30, 31, 32, 33]])
    return Batch(inputs, targets, answers, positions, "train", rivals=rivals)


def test_positions_count_from_either_end_and_every_token_is_written_only_where_it_is_chosen():
    assert Scoring(positions=(0, -1, -2)).within(9) == (0, 8, 7)
    # Runs of the answer alone keep their addresses.
    assert Scoring().model_dump(mode="json") == {"positions": [-1]}
    chosen = Scoring(every_token=True)
    assert chosen.model_dump(mode="json") == {"positions": [-1], "every_token": True}
    assert Scoring.parse(chosen.model_dump(mode="json")) == chosen != Scoring()


def test_training_scores_the_following_tokens_beside_the_answer():
    batch = scored_batch(torch.tensor([[70], [80]]), torch.tensor([[71], [80]]), torch.tensor([3]))
    trained = Scoring(every_token=True).for_training(batch, 100)
    assert trained.positions.tolist() == [0, 1, 2, 3]
    assert trained.targets.tolist() == [[21, 22, 23, 70], [31, 32, 33, 80]]
    assert trained.answers.tolist() == [[21, 22, 23, 71], [31, 32, 33, 80]]
    assert trained.rivals["other"].tolist() == [[-1, -1, -1, 5], [-1, -1, -1, 6]]
    assert trained.inputs is batch.inputs and trained.weights is None
    assert Scoring().for_training(batch, 100) is batch


def test_an_answer_takes_the_place_of_a_following_token():
    answers = torch.tensor([[70, 70], [80, 80]])
    trained = Scoring(positions=(-1, 1), every_token=True).for_training(
        scored_batch(answers, answers, torch.tensor([3, 1])), 100
    )
    assert trained.positions.tolist() == [0, 2, 3, 1]
    assert trained.targets.tolist() == [[21, 23, 70, 70], [31, 33, 80, 80]]
    first = Scoring(positions=(0,), every_token=True).for_training(
        scored_batch(answers[:, :1], answers[:, :1], torch.tensor([0])), 100
    )
    assert first.positions.tolist() == [1, 2, 0]  # nothing follows the last token
    assert first.targets.tolist() == [[22, 23, 70], [32, 33, 80]]


def test_following_tokens_are_certain_where_targets_are_distributions():
    soft = torch.full((2, 1, 40), 1 / 40)
    trained = Scoring(every_token=True).for_training(scored_batch(soft, soft, torch.tensor([3])), 40)
    assert trained.targets.shape == (2, 4, 40) and trained.targets.dtype == soft.dtype
    assert trained.targets[:, :3].argmax(dim=-1).tolist() == [[21, 22, 23], [31, 32, 33]]
    assert trained.targets[:, :3].amax(dim=-1).eq(1).all() and torch.equal(trained.targets[:, 3:], soft)


def test_copies_with_another_label_are_exact() -> None:
    random = np.random.default_rng(0)
    assert Labels(copies=5).changed_rows(12, random).nonzero()[0].tolist() == [4, 9]
    assert Labels(copies=4, changed=3).share == 0.75
    share = Labels(probability=0.3).changed_rows(100_000, random).mean()
    assert abs(share - 0.3) < 5 * (0.21 / 100_000) ** 0.5


def test_an_answer_keeps_its_label_where_the_change_would_leave_the_vocabulary() -> None:
    labels = Labels(change=tasks.Operation.parse("+5"), probability=0.25, targets="distribution")
    found = labels.distribution(torch.tensor([[2], [6]]), size=10)
    assert found[0, 0].tolist() == pytest.approx([0, 0, 0.75, 0, 0, 0, 0, 0.25, 0, 0])
    assert found[1, 0].tolist() == pytest.approx([0, 0, 0, 0, 0, 0, 1, 0, 0, 0])


def test_the_total_variation_of_an_answer_that_keeps_its_label_is_from_the_answer_alone() -> None:
    """0.7 on the answer, 0.1 on the next token and 0.2 elsewhere; token 9 of 10 has no next one, so 0.3 elsewhere."""
    answers = torch.tensor([[8], [9]])
    batch = replace(scored_batch(answers, answers, torch.tensor([3])), rivals={"changed": torch.tensor([[9], [9]])})
    outputs = torch.full((2, 1, 10), 0.2 / 8).scatter(2, torch.tensor([[[9]], [[8]]]), 0.1)
    outputs = outputs.scatter(2, answers.unsqueeze(-1), 0.7).log()
    found = Labels(probability=0.2).metrics(outputs, batch)["total variation"]
    assert found.flatten().tolist() == pytest.approx([0.2, 0.3])


MANY = Vocabulary(anchors=tuple(range(1, 9)))
REFUSED = [
    (lambda: Vocabulary(anchors=(25,)), r"anchors: anchor 25 is among the items 20\.\.100"),
    (lambda: Vocabulary(anchors=(3, 3)), "anchors: anchor 3 is listed twice"),
    (lambda: Vocabulary(anchors=(201,)), "anchors: anchor 201 is not a token"),
    (lambda: Vocabulary(anchors=(-1,)), "anchors: anchor -1 is not a token"),
    (lambda: Vocabulary(anchors=()), "anchors"),
    (lambda: Vocabulary(items=(100, 20)), r"items: 100\.\.20 is not a range"),
    (lambda: Vocabulary(items=(20, 201)), r"items: 20\.\.201 is not a range"),
    (lambda: Vocabulary(size=1), "size"),
    (lambda: Vocabulary.parse({"sizes": 9}), "did you mean 'size'"),
    *((lambda other=other: layout("A x", other), f"pattern: `{other}` lacks an anchor or a key; write both")
      for other in ("3", "A ... B", "x")),
    (lambda: layout("A ... x", vocabulary=MANY), "leaves the position of a key open"),
    (lambda: layout("x ... A", vocabulary=MANY), "leaves the position of a key open"),
    (lambda: layout("A B C D E F G H x", vocabulary=MANY), "frames|combinations"),
    (lambda: AnchorFunction(noise=MarkovNoise(successors=82)), "noise.successors: 82 are more than the 81 items"),
    *((lambda wrong=wrong: Scoring(positions=wrong).within(9), "positions")
      for wrong in ((9,), (-10,), (0, -9), (1, 1), ())),
    (lambda: Labels(copies=5, changed=5), "changed: 5 of 5 copies"),
    (lambda: Labels(changed=2), "changed: counts copies, and there are none; give copies"),
    (lambda: tasks.task("anchor/statistical", probability=0.4), "probability: is given together with copies; give one"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "message"), REFUSED)
def test_parts_that_cannot_be_name_their_field(build, message):
    with pytest.raises(SpecError, match=message):
        build()
