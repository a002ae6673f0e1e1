"""Placements: where anchors and keys may stand, against positions listed by hand."""

import numpy as np
import pytest

from anchorlab.errors import SpecError
from anchorlab.tasks import Placement, Vocabulary
from anchorlab.tasks.anchor import Layout
from anchorlab.tasks.anchor.pattern import Pattern

VOCABULARY = Vocabulary()


def layout(*patterns: str, vocabulary: Vocabulary = VOCABULARY, **fields: object) -> Layout:
    return Layout.build([Pattern.parse(text) for text in patterns], Placement(**fields), vocabulary)


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

    def test_finds_two_anchors_only_side_by_side(self) -> None:
        sequences = np.array([[30, 40, 1, 2, 50], [30, 1, 40, 2, 50], [30, 40, 50, 60, 1], [1, 2, 30, 40, 50]])
        found = layout("x A B", length=5, vocabulary=Vocabulary(anchors=(1, 2))).find(sequences)
        assert found.keys[:, 0].tolist() == [40, -1, -1, -1]
        assert found.anchors.tolist() == [[1, 2], [-1, -1], [-1, -1], [-1, -1]]

    def test_copies_must_be_equal_and_clashes_are_nothing(self) -> None:
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

    @pytest.mark.parametrize(
        ("patterns", "fields", "message"),
        [
            (["A ... x"], {}, "leaves the position of a key open"),
            (["x ... A"], {}, "leaves the position of a key open"),
            (["A B C D E F G H x"], {}, "frames|combinations"),
        ],
    )
    def test_impossible_patterns_are_named(self, patterns: list[str], fields: dict[str, object], message: str) -> None:
        with pytest.raises(SpecError, match=message):
            layout(*patterns, vocabulary=Vocabulary(anchors=tuple(range(1, 9))), **fields)
