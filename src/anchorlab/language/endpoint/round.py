"""Send requests to a server concurrently, within rate limits and budget, with retries."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from anchorlab.errors import AnchorlabError, SpecError
from anchorlab.language.asking.request import Request
from anchorlab.language.endpoint import wire
from anchorlab.language.endpoint.answer import Answer
from anchorlab.language.endpoint.budget import Purse
from anchorlab.language.endpoint.chat_template import Writer
from anchorlab.language.endpoint.client import Client
from anchorlab.language.endpoint.error_messages import NO_CONTINUING, absent, explained, given_up, other_model
from anchorlab.language.endpoint.failures import Rejection, Trouble
from anchorlab.language.endpoint.journal import Journal
from anchorlab.language.endpoint.rate_limit import Pacer
from anchorlab.language.endpoint.retry_policy import Patience
from anchorlab.language.endpoint.server import Server
from anchorlab.language.endpoint.tally import Tally

Outcome = Answer | Trouble | Rejection


@dataclass
class Known:
    """What an endpoint has learned about its server.

    Fields
        answered: whether the server has replied at all
        cap: the server's name for the maximum number of output tokens
        continues: whether the server continues a given beginning of the answer; None before the first check
    """

    answered: bool = False
    cap: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    continues: bool | None = None


@dataclass
class Means:
    """The parts of an endpoint that its rounds share; they outlive each round."""

    server: Server
    patience: Patience
    pacer: Pacer
    purse: Purse
    tally: Tally
    known: Known
    writer: Writer | None
    waits: np.random.Generator
    has_key: bool


class Round:
    """One round of requests, each with its key in the journal.

    After an error no further request is sent. Requests in flight are still awaited and kept, since they are paid for.
    """

    def __init__(self, means: Means, client: Client, journal: Journal, done: Callable[[], None]) -> None:
        self._means, self._client, self._journal, self._done = means, client, journal, done
        self._error: AnchorlabError | None = None

    async def ask(self, requests: Mapping[str, Request], concurrent: int) -> None:
        """Send all requests and keep their answers. The first goes alone, so that an error common to all shows once.

        Errors: `SpecError` if the server cannot be reached, rejects a request, fails too often or answers under another
        model's name, and if the budget does not allow the next request; `StoreError` if an answer cannot be written.
        """
        left = deque(requests.items())
        if not left:
            return
        begun = next((item for item in left if item[1].chat and item[1].begun), None)
        if begun is not None and self._means.writer is None:
            await self._check_continues(*begun)
        await self._answer(*left.popleft())
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrent, len(left))):
                group.create_task(self._work(left))
        if self._error is not None:
            raise self._error

    async def _work(self, left: deque[tuple[str, Request]]) -> None:
        while left and not self._stopped():
            try:
                await self._answer(*left.popleft())
            except AnchorlabError as error:
                self._error = self._error or error

    def _stopped(self) -> bool:
        return self._error is not None

    async def _answer(self, key: str, request: Request) -> None:
        """Get an answer and keep it; return without an answer if an error elsewhere has stopped the round."""
        means, begun = self._means, time.monotonic()
        came = await self._insist(key, request, self._body)
        if came is None:
            return
        outcome, tries = came
        if isinstance(outcome, Rejection):
            await self._journal.keep_problem(key, request, means.server, f"{outcome.status}: {outcome.said}")
            raise explained(outcome, request, means.server, means.has_key)
        if outcome.model is not None and not means.server.is_model(outcome.model):
            means.tally.models[outcome.model] += 1
            error = other_model(outcome.model, means.server)
            await self._journal.keep_problem(key, request, means.server, error.problem)
            raise error
        cost, took = self._cost(request, outcome), time.monotonic() - begun
        await self._journal.keep(key, request, means.server, outcome, cost, took, tries)
        self._count(outcome, cost)
        self._done()

    async def _insist(
        self, key: str, request: Request, body: Callable[[Request], dict[str, Any]]
    ) -> tuple[Answer | Rejection, int] | None:
        """Try until the server answers or rejects a request; return the outcome and the number of tries.

        Return None if the round stops first.

        Errors: `SpecError` if the tries are used up, the server cannot be reached, or it asks for too long a wait.
        """
        means, tries = self._means, 0
        while (outcome := await self._try(request, put := body(request))) is not None:
            if isinstance(outcome, Rejection) and self._learned(outcome, put):
                continue
            tries += 1
            if not isinstance(outcome, Trouble):
                return outcome, tries
            setattr(means.tally, outcome.kind, getattr(means.tally, outcome.kind) + 1)
            await self._journal.keep_problem(key, request, means.server, outcome.said)
            if outcome.kind == "absent" and not means.known.answered:
                raise absent(outcome, means.server)
            if tries >= means.patience.tries or outcome.wait > means.patience.longest:
                raise given_up(outcome, tries, means.server, means.patience.longest)
            if outcome.wait:
                means.pacer.hold(outcome.wait)
            await self._pause(means.patience.wait(tries, outcome.wait, means.waits))
        return None

    async def _try(self, request: Request, body: dict[str, Any]) -> Outcome | None:
        """Send a request once, when rate limits and budget allow; return None if the round stops first."""
        means, likely, worst = self._means, wire.likely(request), self._means.purse.budget.worst(request)
        if not await means.pacer.take(likely, self._stopped):
            return None
        if not await means.purse.reserve(worst, self._stopped):
            return None
        used, cost = likely, worst  # these count if the request is interrupted
        try:
            outcome = await self._client.put(request, body)
            if isinstance(outcome, Answer):
                said, cost = outcome.said, self._cost(request, outcome)
                if said.read is not None and said.written is not None:
                    used = said.read + said.written
            elif isinstance(outcome, Rejection) or not outcome.charged:
                cost, used = 0.0, 0.0
        finally:
            means.purse.settle(worst, cost)
            means.pacer.give_back(likely - used)
            means.tally.cost = means.purse.spent
        means.known.answered |= not isinstance(outcome, Trouble) or outcome.kind != "absent"
        return outcome

    async def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._stopped():
            await asyncio.sleep(min(left, 0.1))

    def _body(self, request: Request) -> dict[str, Any]:
        means = self._means
        return wire.body(request, means.server, wire.text_of(request, means.writer), means.known.cap)

    def _learned(self, rejection: Rejection, put: Mapping[str, Any]) -> bool:
        """Adopt `max_completion_tokens` if the rejection asks for it; return whether the request is worth repeating."""
        if rejection.status != 400 or "max_completion_tokens" not in rejection.said:
            return False
        self._means.known.cap = "max_completion_tokens"
        return "messages" in put and "max_tokens" in put

    async def _check_continues(self, key: str, request: Request) -> None:
        """Find out whether the server supports `continue_final_message`: if so, it rejects a contradictory request.

        A server without support either ignores the field, and answers, or rejects the real requests too.
        """
        means = self._means
        if means.server.continues is None and means.known.continues is None:
            came = await self._insist(key, request, lambda _: wire.contradiction(self._body(request), means.known.cap))
            outcome = came[0] if came is not None else None
            if isinstance(outcome, Rejection) and outcome.status not in (400, 422):
                raise explained(outcome, request, means.server, means.has_key)
            means.known.continues = isinstance(outcome, Rejection)
            found = "knows" if means.known.continues else "ignores"
            await self._journal.keep_problem(key, request, means.server, f"asked beforehand: it {found} beginnings")
        if not (means.known.continues if means.server.continues is None else means.server.continues):
            raise SpecError("endpoint", f"{means.server.url} does not go on with a begun answer", NO_CONTINUING)

    def _cost(self, request: Request, reply: Answer) -> float:
        """Return the cost of an answer; the worst cost if the server does not report token counts."""
        said, budget = reply.said, self._means.purse.budget
        if said.read is None or said.written is None:
            return budget.worst(request)
        return budget.cost(said.read, said.written)

    def _count(self, reply: Answer, cost: float) -> None:
        tally, said = self._means.tally, reply.said
        tally.answered += 1
        tally.refused += said.finish == "refusal"
        tally.empty += not said.text.strip()
        tally.read += said.read or 0
        tally.written += said.written or 0
        if reply.model is not None:
            tally.models[reply.model] += 1
