"""Score candidate answers by their likelihood, without generating text."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.language.asking.local import LocalSpeaker, batches
from anchorlab.language.asking.request import Request

Scoring = Literal["sum", "mean", "sum over prior", "mean over prior"]
SCORINGS: tuple[Scoring, ...] = ("sum", "mean", "sum over prior", "mean over prior")
"""How candidates are compared: by the log-likelihood of all their tokens, or by its mean over tokens. `over prior`
subtracts the log-likelihood without the premises, so that a word the model always favours has no advantage."""


@dataclass(frozen=True)
class Likelihoods:
    """The log-likelihoods of the candidates of each question; -inf fills rows with fewer candidates.

    Fields
        total: the log-likelihood of all tokens of the candidate
        lengths: the number of tokens of each candidate
        prior: the same log-likelihood as `total`, after the question without its premises
    """

    total: Float[Tensor, "question candidate"]
    lengths: Int[Tensor, "question candidate"]
    prior: Float[Tensor, "question candidate"]

    def choose(self, scoring: Scoring = "sum") -> Int[Tensor, "question"]:
        """Return the index of the best candidate of each question."""
        kept = self.total.isfinite()
        value = self.total - self.prior if scoring.endswith("over prior") else self.total
        value = value / self.lengths if scoring.startswith("mean") else value
        return value.where(kept, -torch.inf).argmax(dim=1)


def likelihoods(
    speaker: LocalSpeaker,
    requests: Sequence[Request],
    candidates: Sequence[Sequence[str]],
    priors: Sequence[Request],
) -> Likelihoods:
    """Return the log-likelihoods of candidates as answers to requests.

    A candidate is scored after a space if the request begins the answer, and directly after the request if not.

    Args:
        speaker: a local model
        requests: the questions
        candidates: the candidate answers, one list for each question
        priors: the questions without their premises

    Errors: `SpecError` as `LocalSpeaker.ids`, for different numbers of requests, candidates and priors, and for a
    request without candidates.
    """
    if not len(requests) == len(candidates) == len(priors):
        raise SpecError("candidates", f"{len(candidates)} for {len(requests)} requests", "give some for each")
    if empty := [place for place, words in enumerate(candidates) if not words]:
        raise SpecError(f"candidates[{empty[0]}]", "there are none", "give at least one")
    ids = [
        [_ids(speaker, request, word) for word in words] for request, words in zip(requests, candidates, strict=True)
    ]
    widest = max(map(len, candidates), default=0)
    lengths = torch.tensor([[len(one) for one in own] + [1] * (widest - len(own)) for own in ids])
    return Likelihoods(_totals(speaker, requests, ids, widest), lengths, _priors(speaker, priors, ids, widest))


def _priors(
    speaker: LocalSpeaker, priors: Sequence[Request], ids: Sequence[Sequence[Sequence[int]]], widest: int
) -> Float[Tensor, "question candidate"]:
    """Return the log-likelihoods after questions without premises; equal questions are computed once."""
    own = [(request, tuple(map(tuple, words))) for request, words in zip(priors, ids, strict=True)]
    different = list(dict.fromkeys(own))
    totals = _totals(speaker, [request for request, _ in different], [words for _, words in different], widest)
    place = {one: index for index, one in enumerate(different)}
    return totals[[place[one] for one in own]]


@torch.no_grad()
def _totals(
    speaker: LocalSpeaker, requests: Sequence[Request], ids: Sequence[Sequence[Sequence[int]]], widest: int
) -> Float[Tensor, "question candidate"]:
    rows = [speaker.ids(request) for request in requests]
    totals = torch.full((len(rows), widest), -torch.inf)
    for batch in batches(rows):
        logits, cache = speaker.read(torch.tensor([rows[index] for index in batch]))
        first = logits.log_softmax(-1)
        for column in range(max(len(ids[index]) for index in batch)):
            words = [ids[index][min(column, len(ids[index]) - 1)] for index in batch]
            total = first.gather(1, torch.tensor([[word[0]] for word in words]))[:, 0]
            total = total + _rest(speaker, cache, words)
            for place, index in enumerate(batch):
                if column < len(ids[index]):
                    totals[index, column] = total[place]
    return totals


def _rest(speaker: LocalSpeaker, cache: object, words: Sequence[Sequence[int]]) -> Float[Tensor, "batch"]:
    """Return the log-likelihood of each word's tokens after the first; the cache is copied, not changed."""
    longest = max(map(len, words)) - 1
    if longest == 0:
        return torch.zeros(len(words))
    model, padded = speaker.model, torch.tensor([[*word, *[0] * (longest + 1 - len(word))] for word in words])
    out = model.hugging_face(input_ids=padded[:, :-1].to(model.device), past_key_values=deepcopy(cache), use_cache=True)
    steps: Tensor = out.logits.float().cpu().log_softmax(-1).gather(2, padded[:, 1:, None])[:, :, 0]
    kept = torch.arange(1, longest + 1) < torch.tensor([[len(word)] for word in words])
    return steps.where(kept, 0).sum(dim=1)


def _ids(speaker: LocalSpeaker, request: Request, word: str) -> list[int]:
    """Return the tokens that a candidate adds after a request. Errors: `SpecError` if it adds none of its own."""
    context, space = (request.begun, " ") if request.begun else ("\n", "")
    whole: list[int] = speaker.tokenizer(context + space + word, add_special_tokens=False)["input_ids"]
    own: list[int] = speaker.tokenizer(context, add_special_tokens=False)["input_ids"]
    if whole[: len(own)] != own or len(whole) == len(own):
        raise SpecError("candidates", f"{word!r} has no tokens of its own", "choose other words")
    return whole[len(own) :]
