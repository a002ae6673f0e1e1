"""Premises and questions as tokens: the vocabulary, the place of each premise, and a check for well-formed texts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from jaxtyping import Int, Shaped

from anchorlab.tasks.retrieval.prompts.formulation import Formulation, Step, Values, pieces

_VALUE = "{value}"


@dataclass(frozen=True)
class Layout:
    """The tokens of a formulation. The texts of a sequence's tokens, joined without spaces, are the sequence's text.

    A token is a word, or the text between two words, such as " lives in ". Premises are numbered step by step, in the
    order of their keys; `mixed` tells whether premises of different steps may be mixed.
    """

    formulation: Formulation
    mixed: bool = False

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """The text of each token: first the words of the premises, then the text between them."""
        steps, found = self.formulation.steps, dict[str, None]()
        for step in steps:
            found |= dict.fromkeys(word for pool in step.pools for word in pool)
            found |= dict.fromkeys(word for key in step.keys for word in key)
        templates = [*(step.template for step in steps), *self.formulation.questions.values()]
        found |= dict.fromkeys(one for template in templates for one in pieces(template) if one[0] != "{")
        return tuple(found)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The token of each text."""
        return {text: token for token, text in enumerate(self.vocabulary)}

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """The number of each step's first premise, then the total number of premises."""
        return (0, *np.cumsum([len(step.keys) for step in self.formulation.steps]).tolist())

    @property
    def premises(self) -> int:
        """The number of premises."""
        return self.offsets[-1]

    @cached_property
    def value_columns(self) -> Int[np.ndarray, "premise"]:
        """The index of each premise's value among the premise's tokens."""
        return np.repeat(
            [pieces(step.template).index(_VALUE) for step in self.formulation.steps], np.diff(self.offsets)
        )

    @cached_property
    def lengths(self) -> Int[np.ndarray, "premise"]:
        """The number of tokens of each premise."""
        return np.repeat([len(pieces(step.template)) for step in self.formulation.steps], np.diff(self.offsets))

    @property
    def length(self) -> int:
        """The number of positions that all premises take."""
        return int(self.lengths.sum())

    @cached_property
    def pools(self) -> tuple[Int[np.ndarray, "premise value"], ...]:
        """For each step, the tokens of each premise's pool, -1 after its end."""
        return tuple(_table([self._tokens(pool) for pool in step.pools])[[*step.pool_indices]] for step in self._steps)

    @property
    def _steps(self) -> tuple[Step, ...]:
        return self.formulation.steps

    @cached_property
    def _lines(self) -> Int[np.ndarray, "premise column"]:
        """The tokens of each premise, with -1 in place of the value and after the end."""
        return _table(
            [
                [-1 if piece == _VALUE else self._token(piece, key) for piece in pieces(step.template)]
                for step in self._steps
                for key in step.keys
            ]
        )

    def _token(self, piece: str, key: Sequence[str]) -> int:
        """Return the token of a piece of a template; the slots `{0}` and `{1}` stand for the words of the key."""
        return self.ids[key[int(piece[1:-1])] if piece[0] == "{" else piece]

    def _tokens(self, words: Sequence[str]) -> list[int]:
        return [self.ids[word] for word in words]

    def lay_out(
        self, values: Values, order: Int[np.ndarray, "batch premise"]
    ) -> tuple[Int[np.ndarray, "batch position"], Int[np.ndarray, "batch premise"]]:
        """Return the premises as tokens, and the position of each premise's first token.

        `order` holds the number of the premise at each place.
        """
        rows = len(order)
        # one copy of all premises per sequence, in the order of their numbers: `[batch premise column]`
        lines = np.repeat(self._lines[None], rows, axis=0)
        # the values index each premise's own pool: look up the token of each value, step by step
        tokens = [
            np.take_along_axis(np.broadcast_to(pool, (rows, *pool.shape)), value[:, :, None], axis=2)[:, :, 0]
            for pool, value in zip(self.pools, values, strict=True)
        ]
        # fill the one slot that `_lines` left open, which is at another column in each step's template
        lines[:, np.arange(self.premises), self.value_columns] = np.concatenate(tokens, axis=1)
        # premises have different lengths, so the place of a premise depends on the lengths before it in this order:
        # an exclusive sum gives the position of the first token at each place
        lengths = self.lengths[order]
        first = np.cumsum(lengths, axis=1) - lengths
        # move all tokens that are not padding to their positions at once: the premise at `place` begins at `first`,
        # and its tokens follow column by column
        columns = np.arange(lines.shape[2])
        kept = columns < lengths[:, :, None]
        placed = np.empty((rows, self.length), dtype=np.int64)
        row, place, column = np.nonzero(kept)
        placed[row, first[row, place] + column] = np.take_along_axis(lines, order[:, :, None], axis=1)[kept]
        # invert the order: `first` is indexed by place, and callers ask by the number of the premise
        starts = np.empty_like(first)
        np.put_along_axis(starts, order, first, axis=1)
        return placed, starts

    def question(self, depth: int, hops: Sequence[Int[np.ndarray, "batch"]]) -> Int[np.ndarray, "batch position"]:
        """Return the tokens of the questions of one depth; `hops` gives each hop's premise, counted within its step."""
        heads = [hop for hop, level in enumerate(self.formulation.levels) if level == depth]
        keys = [(self._steps[self.formulation.reads[hop]].keys, hops[hop]) for hop in heads]
        words = np.concatenate([np.array(list(map(self._tokens, own)))[rows] for own, rows in keys], axis=1)
        columns = [
            words[:, int(piece[1:-1])] if piece[0] == "{" else np.full(len(words), self.ids[piece])
            for piece in pieces(self.formulation.questions[depth])
        ]
        return np.stack(columns, axis=1)

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens; an unknown token becomes �, which no text contains."""
        return "".join(self.vocabulary[token] if 0 <= token < len(self.vocabulary) else "�" for token in tokens)

    @cached_property
    def _legal(self) -> dict[str, tuple[int, int, int]]:
        """For the text of each possible premise: the step, the index of the key, and the value's index in its pool."""
        return {
            step.template.format(*key, value=value): (number, place, index)
            for number, step in enumerate(self._steps)
            for place, (key, pool) in enumerate(zip(step.keys, step.pool_indices, strict=True))
            for index, value in enumerate(step.pools[pool])
        }

    def well_formed(self, text: str, ordered: Sequence[bool], depths: Sequence[int]) -> bool:
        """Return whether a text has every premise once, different values within each pool, and a possible question.

        ordered: for each step, whether its premises must be in the order of their keys
        depths: the depths at which the question may begin
        """
        # in turn: every line is a possible premise, each key occurs once, and steps are not mixed unless allowed
        *lines, question = text.split("\n")
        found = [self._legal.get(f"{line}\n") for line in lines]
        known = [one for one in found if one is not None]
        if len(known) != self.premises or len(found) != self.premises:
            return False
        if len({(step, place) for step, place, _ in known}) != self.premises:
            return False
        if not self.mixed and [step for step, _, _ in known] != sorted(step for step, _, _ in known):
            return False
        values = [np.empty((1, len(step.keys)), dtype=np.int64) for step in self._steps]
        used = Counter[tuple[int, int, int]]()
        for step, place, index in known:
            values[step][0, place] = index
            used[step, self._steps[step].pool_indices[place], index] += 1
        # ordered steps list their keys in order; no pool gives one value twice; the values allow the question
        in_order = all(
            [place for own, place, _ in known if own == step] == list(range(len(self._steps[step].keys)))
            for step, must in enumerate(ordered)
            if must
        )
        return in_order and max(used.values()) == 1 and question in self._askable(values, depths)

    def _askable(self, values: Values, depths: Sequence[int]) -> set[str]:
        """Return all questions of these depths that one row of values allows."""
        roots = np.array(list(product(*map(range, self.formulation.roots))))
        hops = self.formulation.hops([np.repeat(one, len(roots), axis=0) for one in values], roots)
        return {self.text(tokens) for depth in depths for tokens in self.question(depth, hops).tolist()}


def _table(rows: Sequence[Sequence[int]]) -> Int[np.ndarray, "row column"]:
    """Return rows of different lengths as one array, filled with -1."""
    longest = max(map(len, rows))
    return np.array([[*row, *[-1] * (longest - len(row))] for row in rows])


def order_premises(
    layout: Layout, shuffled: Sequence[bool], random: Shaped[np.ndarray, "batch premise"]
) -> Int[np.ndarray, "batch premise"]:
    """Return an order of the premises from random numbers in [0, 1).

    shuffled: for each step, whether its premises are in random order; if not, they are in the order of their keys
    """
    if layout.mixed:
        return np.argsort(random, axis=1)
    sizes = np.diff(layout.offsets)
    # the sort key is the number of the step plus a fraction below 1, so premises of different steps never mix; the
    # fraction is random in shuffled steps, and the rank of the key in the others
    step = np.repeat(np.arange(len(sizes)), sizes)
    listed = np.concatenate([np.arange(size) / size for size in sizes])
    return np.argsort(step + np.where(np.repeat(shuffled, sizes), random, listed), axis=1, kind="stable")
