"""Score a model's answers to prompts: the right word, wrong words of the same kind, and words such as "the"."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.language.encode import ABSENT, TokenisedPrompts, tokenise_prompts, word_tokens
from anchorlab.language.model import LanguageModel
from anchorlab.language.prompts import Prompt, generic_words
from anchorlab.language.start import start_token
from anchorlab.models.model import Weights, predict
from anchorlab.models.precision import at_least_float32

_ENTERING = {
    **dict.fromkeys(("W_Q", "W_K", "W_V"), "ln1.hook_normalized"),
    **dict.fromkeys(("W_in", "W_gate"), "ln2.hook_normalized"),
    "W_O": "attn.hook_z",
    "W_out": "mlp.hook_post",
}  # the site of each matrix's input, by matrix
_MOST = 1024  # predictions of the next token that are held at a time: 0.6 GB with 150,000 tokens


@dataclass(frozen=True)
class Answers:
    """Log-probabilities and ranks of next words; NaN if a prompt lacks the word, or if no token tells it from others.

    The right word and the wrong candidates of a prompt are scored by their tokens up to the first that tells a word
    from the others, given what all of them share, such as a space before digits; most words by their first token.
    `words` are scored by their first token.

    Fields
        right: the log-probability of the right word
        right_rank: its rank among all tokens, 1 is the likeliest; the largest rank if several tokens are scored
        others: the log of the wrong candidates' summed probability
        right_place: the rank of the right word among the right word and the wrong candidates; 1 is the likeliest
        words: the log-probability of each further word, such as "the"
        word_ranks: their ranks among all tokens
        notes: which token of a word is scored, for words of several tokens, and why a word is not scored
    """

    right: Float[Tensor, "*edit prompt"]
    right_rank: Float[Tensor, "*edit prompt"]
    others: Float[Tensor, "*edit prompt"]
    right_place: Float[Tensor, "*edit prompt"]
    words: Float[Tensor, "*edit prompt word"]
    word_ranks: Float[Tensor, "*edit prompt word"]
    notes: tuple[str, ...] = ()

    def __getitem__(self, which: int | slice | Shaped[Tensor, "index"]) -> "Answers":
        """Return the answers at an index, or at several, of the first axis."""
        return Answers(**{name: value[which] for name, value in self.tensors.items()}, notes=self.notes)

    @property
    def tensors(self) -> dict[str, Float[Tensor, "..."]]:
        """The fields by name, without the notes."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "notes"}


def combine(
    answers: Sequence[Answers], how: Callable[[list[Float[Tensor, "*axes"]]], Float[Tensor, "*joined"]] = torch.stack
) -> Answers:
    """Merge answers about the same words into one: stack them along a new first axis, or join them with `torch.cat`."""
    joined = {name: how([one.tensors[name] for one in answers]) for name in answers[0].tensors}
    return Answers(**joined, notes=answers[0].notes)


class Questions:
    """Prompts for one model, scored repeatedly with some of its weights replaced.

        asked = Questions(model, facts())
        asked.answers().right.exp().mean()  # the probability of the right country
        asked.answers({"blocks.3.mlp.W_in": torch.zeros(576, 1536)})

    The stream that enters an edited block does not depend on the edit and is computed once. Prompts of one length are
    computed together, so there is no padding. At most 1024 predictions of the next token are held at a time.

    Args:
        model: a pretrained model with its tokenizer
        prompts: at least one
        words: further words to score after each prompt; None: the truncation paper's generic words
        begun: whether each prompt begins with the `start_token` or the special tokens that the tokenizer adds

    Errors: `SpecError` as `tokenise_prompts`.
    """

    def __init__(
        self,
        model: LanguageModel,
        prompts: Sequence[Prompt],
        words: Sequence[str] | None = None,
        begun: bool = True,
    ) -> None:
        start = start_token(model.tokenizer) if begun else None
        self.model, self.prompts = model, tuple(prompts)
        self.words = generic_words() if words is None else tuple(words)
        self.tokens = tokenise_prompts(model.tokenizer, self.prompts, model.context, start, begun)
        self.word_ids, notes = word_tokens(model.tokenizer, self.words)
        self.notes = tuple(dict.fromkeys((*self.tokens.notes, *notes)))

    @torch.no_grad()
    def answers(self, weights: Weights | None = None) -> Answers:
        """Return the model's answers with some weights replaced; `weights` are by name, without a member axis."""
        found = zip(self._log_probabilities(weights), self._parts, strict=True)
        read = combine([read_answers(values, part, self.word_ids) for values, part in found], torch.cat)
        return replace(read[self._order.argsort()], notes=self.notes)

    @torch.no_grad()
    def log_probabilities(self, weights: Weights | None = None) -> Float[Tensor, "prompt token"]:
        """Return the log-probabilities of the token after each prompt, with some weights replaced.

        They are computed in float32 also for weights of half precision.
        """
        after = torch.cat([values[:, 0] for values in self._log_probabilities(weights)])
        return after[self._order.argsort()]

    def _log_probabilities(self, weights: Weights | None) -> Iterator[Float[Tensor, "prompt place token"]]:
        """Yield, part by part, the log-probabilities after each prompt and each token of its answer that follows it."""
        first = first_block(weights or {})
        for at, part in enumerate(self._parts):
            inputs = part.inputs.to(self.model.device)
            places = _last(inputs) - torch.arange(int(part.following[0]), -1, -1, device=inputs.device)
            entering = (first, self._streams[at][first]) if first else None
            found = predict(self.model, inputs, places, weights and dict(weights), entering=entering)
            yield at_least_float32(found.cpu()).log_softmax(-1)

    @torch.no_grad()
    def entering(self, weight: str) -> Float[Tensor, "token input"]:
        """Return the input of a block's matrix at every token of the prompts, in the full model.

        Errors: `SpecError` for a matrix outside the blocks.
        """
        block, _, kind = weight.rpartition(".")
        if kind not in _ENTERING:
            raise SpecError("weight", f"{weight!r} is not a matrix of a block", "name one such as blocks.1.mlp.W_in")
        site = f"{block.rpartition('.')[0]}.{_ENTERING[kind]}"
        seen = [value for part in self._parts for value in self._seen(part.inputs, site)]
        return torch.cat([value.flatten(2).flatten(0, 1) for value in seen])

    def _seen(self, inputs: Int[Tensor, "prompt position"], ending: str) -> list[Tensor]:
        """Return the values at the sites whose names have an ending, in the full model."""
        kept: list[Tensor] = []

        def tap(site: str, value: Tensor) -> Tensor:
            if site.endswith(ending):
                kept.append(value)
            return value

        inputs = inputs.to(self.model.device)
        predict(self.model, inputs, _last(inputs), tap=tap)
        return kept

    @cached_property
    def _rows(self) -> list[Int[Tensor, "prompt"]]:
        """The prompts of each part: of one length and one number of following tokens, at most `_MOST` predictions."""
        kinds = list(zip(self.tokens.lengths.tolist(), self.tokens.following.tolist(), strict=True))
        rows: list[Tensor] = []
        for kind in sorted(set(kinds)):
            alike = torch.tensor([row for row, one in enumerate(kinds) if one == kind])
            rows += torch.split(alike, max(_MOST // (kind[1] + 1), 1))
        return rows

    @cached_property
    def _order(self) -> Int[Tensor, "prompt"]:
        """The prompts in the order of the parts."""
        return torch.cat(self._rows)

    @cached_property
    def _parts(self) -> list[TokenisedPrompts]:
        """The prompts of each part, without padding."""
        return [self.tokens.part(rows) for rows in self._rows]

    @cached_property
    def _streams(self) -> list[list[Float[Tensor, "prompt position width"]]]:
        """For each part, the stream that enters each block."""
        return [self._seen(part.inputs, ".hook_resid_pre") for part in self._parts]


def read_answers(
    log_probabilities: Float[Tensor, "prompt place token"], prompts: TokenisedPrompts, words: Int[Tensor, "word"]
) -> Answers:
    """Score prompts by the log-probabilities after each prompt and after each token of its answer that follows it.

    `words` are the token ids of the further words.
    """
    after_prompt, rows = log_probabilities[:, 0], torch.arange(len(log_probabilities))
    none, unscored = prompts.answers == ABSENT, words == ABSENT
    steps = torch.arange(log_probabilities.shape[1] - 1)
    begin = prompts.lengths - prompts.following
    path = prompts.inputs.gather(1, (begin.unsqueeze(1) + steps).clamp_max(prompts.inputs.shape[1] - 1))
    scored = (steps >= prompts.shared.unsqueeze(1)) & (steps < prompts.following.unsqueeze(1))
    each = log_probabilities[:, :-1].gather(2, path.unsqueeze(2)).squeeze(2)
    before = each.where(scored, 0).cumsum(dim=1)
    before = torch.cat([before.new_zeros(len(before), 1), before], dim=1)

    own = log_probabilities[rows, prompts.following]
    last = own.gather(1, prompts.answers.clamp_min(0).unsqueeze(1))
    right = before.gather(1, prompts.following.unsqueeze(1)) + last
    ranks = [_ranks(log_probabilities[:, step], each[:, [step]]).where(scored[:, [step]], 1) for step in steps.tolist()]
    right_rank = torch.cat([_ranks(own, last), *ranks], dim=1).amax(dim=1)

    listed = log_probabilities[rows.unsqueeze(1), prompts.places, prompts.candidates.clamp_min(0)]
    listed = (before.gather(1, prompts.places) + listed).masked_fill(prompts.candidates == ABSENT, -torch.inf)
    followed = after_prompt[:, words.clamp_min(0)]
    no_others = (prompts.candidates == ABSENT).all(dim=1)
    return Answers(
        right=right[:, 0].masked_fill(none, torch.nan),
        right_rank=right_rank.masked_fill(none, torch.nan),
        others=listed.logsumexp(dim=1).masked_fill(no_others, torch.nan),
        right_place=_ranks(listed, right)[:, 0].masked_fill(none | no_others, torch.nan),
        words=followed.masked_fill(unscored, torch.nan),
        word_ranks=_ranks(after_prompt, followed).masked_fill(unscored, torch.nan),
    )


def first_block(weights: Iterable[str]) -> int:
    """Return the first block that reads one of these weights; 0 for weights outside the blocks, such as embeddings."""
    layers = [int(name.split(".")[1]) if name.startswith("blocks.") else 0 for name in weights]
    return min(layers, default=0)


def _ranks(log_probabilities: Float[Tensor, "prompt token"], own: Float[Tensor, "prompt word"]) -> Tensor:
    """Return the ranks of words, from 1, NaN for NaN; words that tie share the best rank.

    NumPy counts, row by row: on a CPU PyTorch takes fifty times as long to sum a mask.
    """
    pairs = zip(log_probabilities.numpy(), own.numpy(), strict=True)
    higher = [[np.count_nonzero(row > value) for value in values] for row, values in pairs]
    return (torch.tensor(higher, dtype=torch.float32).reshape(own.shape) + 1).masked_fill(own.isnan(), torch.nan)


def _last(inputs: Tensor) -> Tensor:
    return torch.tensor([inputs.shape[1] - 1], device=inputs.device)
