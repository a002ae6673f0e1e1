"""Vocabularies: which tokens are items and anchors, and what is refused."""

import numpy as np
import pytest

from anchorlab.errors import SpecError
from anchorlab.tasks import Vocabulary


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
            ({"anchors": (25,)}, "anchors: anchor 25 is among the items 20..100"),
            ({"anchors": (3, 3)}, "anchors: anchor 3 is listed twice"),
            ({"anchors": (201,)}, "anchors: anchor 201 is not a token"),
            ({"anchors": (-1,)}, "anchors: anchor -1 is not a token"),
            ({"anchors": ()}, "anchors"),
            ({"items": (100, 20)}, "items: 100..20 is not a range"),
            ({"items": (20, 201)}, "items: 20..201 is not a range"),
            ({"size": 1}, "size"),
            ({"sizes": 9}, "did you mean 'size'"),
        ],
    )
    def test_tokens_that_overlap_or_do_not_exist_are_named(self, fields: dict[str, object], message: str) -> None:
        with pytest.raises(SpecError, match=message.replace("..", r"\.\.")):
            Vocabulary.parse(fields)
