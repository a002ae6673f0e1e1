"""The vocabulary of an anchor function: its token ids, and which of them are items or anchors."""

import numpy as np
from jaxtyping import Bool, Integer
from pydantic import Field, model_validator

from anchorlab.errors import SpecError
from anchorlab.spec import Spec

LARGEST = 65_536


class Vocabulary(Spec):
    """Token ids `0 .. size-1` with two disjoint subsets: items (keys and noise) and anchors.

    `items` are the first and the last item. The remaining tokens leave room for the results of operations.
    Source: anchor functions, section 4 (anchor 3, items 20..100); the vocabulary of 201 tokens is from its code.
    """

    size: int = Field(201, ge=2, le=LARGEST)
    items: tuple[int, int] = (20, 100)
    anchors: tuple[int, ...] = Field((3,), min_length=1, max_length=256)

    @model_validator(mode="after")
    def _disjoint(self) -> "Vocabulary":
        first, last = self.items
        if not 0 <= first <= last < self.size:
            problem = f"{first}..{last} is not a range within the {self.size} tokens"
            raise SpecError("items", problem, f"give the first and the last item, 0..{self.size - 1}")
        for index, anchor in enumerate(self.anchors):
            if not 0 <= anchor < self.size:
                raise SpecError("anchors", f"anchor {anchor} is not a token", f"choose from 0..{self.size - 1}")
            if first <= anchor <= last:
                raise SpecError("anchors", f"anchor {anchor} is among the items {first}..{last}", "keep them apart")
            if anchor in self.anchors[:index]:
                raise SpecError("anchors", f"anchor {anchor} is listed twice", "name each anchor once")
        return self

    @property
    def item_count(self) -> int:
        """The number of items."""
        return self.items[1] - self.items[0] + 1

    def is_item(self, tokens: Integer[np.ndarray, "*shape"]) -> Bool[np.ndarray, "*shape"]:
        """Return whether each token is an item."""
        return (tokens >= self.items[0]) & (tokens <= self.items[1])

    def is_anchor(self, tokens: Integer[np.ndarray, "*shape"]) -> Bool[np.ndarray, "*shape"]:
        """Return whether each token is an anchor."""
        return np.isin(tokens, self.anchors)
