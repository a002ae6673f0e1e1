"""Vocabulary, operation, placement, separation and scoring, each against values worked out by hand."""

import numpy as np
import pytest

from anchorlab.errors import SpecError
from anchorlab.tasks import AnchorBased, ModularResidue, Operation, Placement, Scoring, Vocabulary
from anchorlab.tasks.anchor import Latent


class TestVocabulary:
    def test_items_and_anchors(self) -> None:
        vocabulary = Vocabulary()
        tokens = np.array([3, 19, 20, 100, 101])
        assert vocabulary.item_count == 81
        assert vocabulary.is_item(tokens).tolist() == [False, False, True, True, False]
        assert vocabulary.is_anchor(tokens).tolist() == [True, False, False, False, False]

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"anchors": (25,)}, "anchors: anchor 25 stands among the items 20..100"),
            ({"anchors": (3, 3)}, "anchors: anchor 3 stands there twice"),
            ({"anchors": (201,)}, "anchors: anchor 201 is not a token"),
            ({"anchors": (-1,)}, "anchors: anchor -1 is not a token"),
            ({"anchors": ()}, "anchors"),
            ({"items": (100, 20)}, "items: 100..20 is not a range"),
            ({"items": (20, 201)}, "items: 20..201 is not a range"),
            ({"size": 1}, "size"),
            ({"sizes": 9}, "did you mean 'size'"),
        ],
    )
    def test_mistakes_are_named(self, fields: dict[str, object], message: str) -> None:
        with pytest.raises(SpecError, match=message.replace("..", r"\.\.")):
            Vocabulary.parse(fields)


class TestOperation:
    @pytest.mark.parametrize(
        ("text", "result", "canonical"),
        [
            ("x", 40, "x"),
            ("+5", 45, "+5"),
            (" x + 5 ", 45, "+5"),
            ("-2", 38, "-2"),
            ("*2", 80, "*2"),
            ("+5 then -2", 43, "+5 then -2"),
            ("*2 then +1 then x", 81, "*2 then +1"),
        ],
    )
    def test_text(self, text: str, result: int, canonical: str) -> None:
        operation = Operation.parse(text)
        assert operation(np.array([40])).tolist() == [result]
        assert str(operation) == canonical
        assert Operation.parse(canonical) == operation

    @pytest.mark.parametrize(
        "text", ["", "5", "+", "x*", "__import__('os')", "+5 then", "++5", "+9999999", "+1 then " * 20]
    )
    def test_other_text_is_refused(self, text: str) -> None:
        with pytest.raises(SpecError, match="operation"):
            Operation.parse(text)

    def test_domain_holds_every_step_inside(self) -> None:
        keys = np.array([0, 2, 7, 9, -1])
        assert Operation.parse("+1")(keys).tolist() == [1, 3, 8, 10, 0]
        assert Operation.parse("+1").defined(keys, 10).tolist() == [True, True, True, False, False]
        assert Operation.parse("-3 then +3").defined(keys, 10).tolist() == [False, False, True, True, False]
        assert not Operation.parse(" then ".join(["*65535"] * 16)).defined(np.array([3]), 65_536).any()


class TestPlacement:
    def test_arrangements_are_all_and_only_once(self) -> None:
        vocabulary = Vocabulary(size=12, items=(8, 9), anchors=(1, 2))
        latent = Placement(length=4, offset={1: 1, 2: -2}).arrangements(vocabulary)
        listed = {
            (*anchors, int(start), int(key), int(place))
            for anchors, start, key, place in zip(
                latent.anchors.tolist(), latent.anchor_position, latent.key, latent.key_position, strict=True
            )
        }
        after = {(1, start, key, start + 1) for start in (0, 1, 2) for key in (8, 9)}
        before = {(2, start, key, start - 2) for start in (2, 3) for key in (8, 9)}
        assert listed == after | before and len(latent) == len(listed)

    def test_finds_what_stands_there(self) -> None:
        vocabulary = Vocabulary()
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
        found = Placement().find(sequences, vocabulary)
        assert found.key.tolist() == [20, -1, -1, -1, -1, -1]
        assert found.anchor_position.tolist() == [3, -1, -1, -1, -1, -1]
        assert found.key_position.tolist() == [4, -1, -1, -1, -1, -1]
        assert found.anchors.tolist() == [[3], [-1], [-1], [-1], [-1], [-1]]
        assert Placement(length=8).find(sequences, vocabulary).key.tolist() == [-1] * 6

    def test_finds_two_anchors_only_side_by_side(self) -> None:
        vocabulary = Vocabulary(anchors=(1, 2))
        sequences = np.array([[30, 40, 1, 2, 50], [30, 1, 40, 2, 50], [30, 40, 50, 60, 1], [1, 2, 30, 40, 50]])
        found = Placement(length=5, anchors=2, offset=-1).find(sequences, vocabulary)
        assert found.key.tolist() == [40, -1, -1, -1]
        assert found.anchors.tolist() == [[1, 2], [-1, -1], [-1, -1], [-1, -1]]

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"length": 2, "offset": 2}, "length: 2 is too short for a key at offset 2; use at least 3"),
            (
                {"length": 3, "anchors": 2, "offset": -2},
                "length: 3 is too short for a key at offset -2; use at least 4",
            ),
            ({"offset": 0}, "offset: 0 puts the key where an anchor stands"),
            ({"anchors": 2, "offset": 1}, "offset: 1 puts the key where an anchor stands"),
            ({"length": 1}, "length"),
            ({"offset": "next"}, "offset"),
        ],
    )
    def test_impossible_patterns_are_named(self, fields: dict[str, object], message: str) -> None:
        with pytest.raises(SpecError, match=message):
            Placement.parse(fields)

    @pytest.mark.parametrize(("offset", "length"), [(1, 2), (3, 4), (-1, 2), (-4, 5)])
    def test_the_shortest_length_works(self, offset: int, length: int) -> None:
        assert len(Placement(length=length, offset=offset).starts(offset)) == 1


def latent(anchor: int, position: int, key: int, key_position: int) -> Latent:
    return Latent(np.array([[anchor]]), np.array([position]), np.array([key]), np.array([key_position]))


class TestSeparation:
    def test_default_is_the_reference_rule(self) -> None:
        for position in range(8):
            for key in range(20, 101):
                side = ModularResidue().side(latent(3, position, key, position + 1), Placement())
                assert side.tolist() == [1 if (key - position) % 8 == 0 else 0]

    def test_default_is_the_papers_example_set(self) -> None:
        """Section 3.2.1: the key at 1-based position i is held out when mod(x, n-1) is in {i - 2}."""
        sets = ModularResidue(position="key", by_position={i - 1: (i - 2,) for i in range(2, 10)})
        for i in range(2, 10):
            for key in range(20, 101):
                one = latent(3, i - 2, key, i - 1)
                assert sets.side(one, Placement()).tolist() == ModularResidue().side(one, Placement()).tolist()

    def test_parameters(self) -> None:
        rule = ModularResidue(modulus=9, position="key", residues=(1, -1))
        assert rule.side(latent(3, 2, 31, 3), Placement()).tolist() == [1]  # 28 mod 9 = 1
        assert rule.side(latent(3, 2, 29, 3), Placement()).tolist() == [1]  # 26 mod 9 = 8 = -1
        assert rule.side(latent(3, 2, 30, 3), Placement()).tolist() == [0]

    def test_anchor_based(self) -> None:
        rule = AnchorBased(held_out={1: ((20, 27),), 2: ((28, 35), (90, 90))})
        sides = [rule.side(latent(a, 0, key, 1), Placement()).item() for a, key in ((1, 27), (1, 28), (2, 28), (2, 90))]
        assert sides == [1, 0, 1, 1]
        assert rule.side(latent(3, 0, 20, 1), Placement()).tolist() == [0]


class TestScoring:
    def test_positions_count_from_either_end(self) -> None:
        assert Scoring(positions=(0, -1, -2)).within(9) == (0, 8, 7)

    @pytest.mark.parametrize("positions", [(9,), (-10,), (0, -9), (1, 1), ()])
    def test_impossible_positions(self, positions: tuple[int, ...]) -> None:
        with pytest.raises(SpecError, match="positions"):
            Scoring(positions=positions).within(9)
