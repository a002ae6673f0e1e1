"""A local model that answers requests with the likeliest text, or with text sampled by the request's own seed."""

from collections import defaultdict
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.language.asking.chat import chat_text
from anchorlab.language.asking.request import OnProgress, Request, Said
from anchorlab.language.model import LanguageModel
from anchorlab.language.start import added_before, beginning, begun_once, start_token
from anchorlab.rng import torch_generator

if TYPE_CHECKING:
    from transformers import Cache

End = Literal["stop", "length"]

AT_ONCE = 4096
"""The maximum number of tokens in one batch."""


class LocalSpeaker:
    """A local pretrained model with the interface of an endpoint.

    Only requests of equal length share a batch. So no request is padded, and an answer depends on the other requests
    only through rounding. The prefix that all requests of a batch share, such as worked examples, is computed once. The
    cache of the last batch is kept, so asking the same requests again, or scoring candidates after them, costs no
    further pass over them.

    Args:
        model: a pretrained model with a tokenizer
        start: whether a text begins with the model's start token; None: plain text does, and in a chat the template
            decides

    Errors: `SpecError` for a model without a tokenizer.
    """

    def __init__(self, model: LanguageModel, start: bool | None = None) -> None:
        if model.tokenizer is None:
            raise SpecError("tokenizer", f"{model.name} has none", "open a model with one")
        self.model, self.name, self.tokenizer, self.start = model, model.name, model.tokenizer, start
        self._rows: dict[tuple[int, ...], int] = {}
        self._read: tuple[Tensor, Cache] | None = None

    def ids(self, request: Request) -> list[int]:
        """Return a request as token ids, with one start token at most.

        Errors: `SpecError` for a chat without a template, and for a request longer than the model's context.
        """
        text = chat_text(self.tokenizer, request, self.name) if request.chat else request.text
        found: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if self.start is None and not request.chat:
            start, added = start_token(self.tokenizer), added_before(self.tokenizer)
            found = begun_once([] if start is None else [start], begun_once(added, found))
        if self.start and (begin := beginning(self.tokenizer)) is not None:
            found = begun_once([begin], found)
        if len(found) + request.tokens > self.model.context:
            problem = (
                f"has {len(found)} tokens, and with {request.tokens} more the context of {self.model.context} ends"
            )
            raise SpecError("request", problem, "ask shorter questions, or give fewer worked examples")
        return found

    def say(self, requests: Sequence[Request], progress: OnProgress | None = None) -> list[Said]:
        """Return the model's reply to each request; `progress` is called after every batch."""
        rows = [self.ids(request) for request in requests]
        said: dict[int, Said] = {}
        for batch in batches(rows):
            found = self._say([requests[index] for index in batch], torch.tensor([rows[index] for index in batch]))
            said |= dict(zip(batch, found, strict=True))
            if progress is not None:
                progress(len(said), len(requests))
        return [said[index] for index in range(len(requests))]

    @torch.no_grad()
    def read(self, ids: Int[Tensor, "batch position"]) -> "tuple[Float[Tensor, 'batch token'], Cache]":
        """Return `read_prompt`'s result with a copy of the cache; the last batch is reused if it holds all rows."""
        rows = [tuple(row) for row in ids.tolist()]
        if self._read is None or not all(row in self._rows for row in rows):
            self._read = None  # frees the memory first
            self._read = read_prompt(self.model, ids)
            self._rows = {row: index for index, row in enumerate(rows)}
        logits, cache = self._read[0], deepcopy(self._read[1])
        chosen = torch.tensor([self._rows[row] for row in rows])
        if len(chosen) != len(logits) or not bool((chosen == torch.arange(len(logits))).all()):
            cache.batch_select_indices(chosen.to(self.model.device))
        return logits[chosen], cache

    @torch.no_grad()
    def _say(self, requests: Sequence[Request], ids: Int[Tensor, "batch position"]) -> list[Said]:
        """Return the model's replies to requests of one length, given as token ids."""
        running = self.model.hugging_face
        device, own_ends = self.model.device, running.generation_config.eos_token_id
        ends = frozenset(own_ends if isinstance(own_ends, list) else [own_ends])
        draws = [torch_generator(request.seed, "said") for request in requests]
        logits, cache = self.read(ids)
        written: list[list[int]] = [[] for _ in requests]
        finish: list[End | None] = [None] * len(requests)
        while True:
            chosen = [
                _choose(row, one.temperature, draw) for row, one, draw in zip(logits, requests, draws, strict=True)
            ]
            for index, (token, one) in enumerate(zip(chosen, requests, strict=True)):
                if finish[index] is None:
                    finish[index] = self._add(written[index], token, one, ends)
            if all(finish):
                break
            step = running(
                input_ids=torch.tensor(chosen, device=device)[:, None], past_key_values=cache, use_cache=True
            )
            logits, cache = step.logits[:, -1].float().cpu(), step.past_key_values
        return [
            Said(text.split(one.stop)[0] if one.stop else text, end or "stop", read=ids.shape[1], written=len(own))
            for own, one, end in zip(written, requests, finish, strict=True)
            for text in [self._decoded(own)]
        ]

    def _add(self, written: list[int], token: int, request: Request, ends: frozenset[int]) -> End | None:
        """Append a token; return the reason if the text ends here, else None."""
        if token in ends:
            return "stop"
        written.append(token)
        if request.stop and request.stop in self._decoded(written):
            return "stop"
        return "length" if len(written) == request.tokens else None

    def _decoded(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))


def batches(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the row indices in batches of equal length, each of at most `AT_ONCE` tokens or of a single row."""
    by_length = defaultdict[int, list[int]](list)
    for index, row in enumerate(rows):
        by_length[len(row)].append(index)
    return [
        own[start : start + size]
        for length, own in sorted(by_length.items())
        for size in [max(1, AT_ONCE // max(1, length))]
        for start in range(0, len(own), size)
    ]


def read_prompt(
    model: LanguageModel, ids: Int[Tensor, "batch position"]
) -> tuple[Float[Tensor, "batch token"], "Cache"]:
    """Return the logits after each row, in float32 on the CPU, and the cache of keys and values.

    The prefix that all rows share is computed once.
    """
    running, device = model.hugging_face, model.device
    same = (ids == ids[:1]).all(dim=0).int().cumprod(0).sum()
    shared = min(int(same), ids.shape[1] - 1)  # which leaves one token to read
    options: dict[str, Any] = {"use_cache": True, "logits_to_keep": 1}
    if len(ids) > 1 and shared > 0:
        cache = running(input_ids=ids[:1, :shared].to(device), **options).past_key_values
        cache.batch_repeat_interleave(len(ids))
        options["past_key_values"], ids = cache, ids[:, shared:]
    out = running(input_ids=ids.to(device), **options)
    return out.logits[:, -1].float().cpu(), out.past_key_values


def _choose(logits: Float[Tensor, "token"], temperature: float, draw: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    return int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=draw))
