"""Separations of splits, on latents written by hand."""

from dataclasses import replace

import numpy as np

from anchorlab.tasks import AnchorBased, Combined, CompositeAnchor, ModularResidue
from anchorlab.tasks.anchor import Latent
from anchorlab.tasks.anchor.separation import MovingKeys


def latent(anchor: int, position: int, key: int, key_position: int) -> Latent:
    columns = (np.array([[value]]) for value in (anchor, position, key, key_position))
    return Latent(np.array([0]), *columns)


class TestSeparation:
    def test_default_is_the_reference_rule(self) -> None:
        for position in range(8):
            for key in range(20, 101):
                side = ModularResidue().side(latent(3, position, key, position + 1), 9)
                assert side.tolist() == [1 if (key - position) % 8 == 0 else 0]

    def test_default_is_the_papers_example_set(self) -> None:
        """Section 3.2.1: the key at 1-based position i is held out when mod(x, n-1) is in {i - 2}."""
        sets = ModularResidue(position="key", by_position={i - 1: (i - 2,) for i in range(2, 10)})
        for i in range(2, 10):
            for key in range(20, 101):
                one = latent(3, i - 2, key, i - 1)
                assert sets.side(one, 9).tolist() == ModularResidue().side(one, 9).tolist()

    def test_parameters(self) -> None:
        rule = ModularResidue(modulus=9, position="key", residues=(1, -1))
        assert rule.side(latent(3, 2, 31, 3), 9).tolist() == [1]  # 28 mod 9 = 1
        assert rule.side(latent(3, 2, 29, 3), 9).tolist() == [1]  # 26 mod 9 = 8 = -1
        assert rule.side(latent(3, 2, 30, 3), 9).tolist() == [0]

    def test_two_keys_are_both_held_out_or_neither(self) -> None:
        keys = np.array([[24, 24], [24, 25], [25, 25]])
        places = np.tile([0, 8], (3, 1))
        two = Latent(np.zeros(3, dtype=int), np.full((3, 1), 3), np.full((3, 1), 4), keys, places)
        assert ModularResidue(position="key").side(two, 9).tolist() == [1, -1, 0]

    def test_keys_that_move_with_the_position(self) -> None:
        rule = MovingKeys()
        assert [rule.side(latent(3, 4, key, 5), 9).item() for key in (23, 24, 28, 103, 104)] == [-1, 0, 1, 0, -1]
        both = Combined(parts=(rule, AnchorBased(held_out={3: ((50, 50),)})))
        assert [both.side(latent(3, 4, key, 5), 9).item() for key in (23, 49, 50, 104)] == [-1, 0, 1, -1]

    def test_anchor_based(self) -> None:
        rule = AnchorBased(held_out={1: ((20, 27),), 2: ((28, 35), (90, 90))})
        sides = [rule.side(latent(a, 0, key, 1), 9).item() for a, key in ((1, 27), (1, 28), (2, 28), (2, 90))]
        assert sides == [1, 0, 1, 1]
        assert rule.side(latent(3, 0, 20, 1), 9).tolist() == [0]

    def test_composite_anchor_and_its_combination(self) -> None:
        pairs = np.array([[1, 2], [3, 4], [4, 4], [1, 2], [3, 4]])
        keys = np.array([[25], [25], [25], [24], [24]])
        places = np.tile([[1, 2]], (5, 1))
        some = Latent(np.zeros(5, dtype=int), pairs, places, keys, np.zeros((5, 1), dtype=int))
        rule = CompositeAnchor(unseen=((3, 4),), seen=((1, 2),))
        assert rule.splits == ("train", "test")
        assert rule.side(some, 9).tolist() == [0, 1, -1, 0, 1]
        both = Combined(parts=(ModularResidue(position="key"), rule))
        assert both.splits == ("train", "test on data", "test on task")
        assert both.side(some, 9).tolist() == [0, 2, -1, 1, 2]
        assert both.side(replace(some, rule=np.full(5, -1)), 9).tolist() == [-1] * 5
