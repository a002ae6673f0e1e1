"""Send requests to a server concurrently, within rate limits and budget, with retries."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from anchorlab.errors import AnchorlabError, SpecError
from anchorlab.language.asking.request import Request
from anchorlab.language.endpoint.answer import Answer
from anchorlab.language.endpoint.budget import Budget, Purse
from anchorlab.language.endpoint.client import Client
from anchorlab.language.endpoint.failures import NO_CONTINUING, Rejection, Trouble, explained, given_up
from anchorlab.language.endpoint.journal import Journal
from anchorlab.language.endpoint.pace import Pace, Pacer, Patience
from anchorlab.language.endpoint.secret import Secret
from anchorlab.language.endpoint.server import Server
from anchorlab.language.endpoint.wire import Writer
from anchorlab.rng import generator

_BYTES = 4  # bytes of text per token, for pacing
_NEW_CAP = "max_completion_tokens"  # the name that newer servers have for `max_tokens`


@dataclass
class Tally:
    """Counts of an endpoint's requests and outcomes since it was created.

    Fields
        remembered: answers found in the journal
        answered: answers from the server; `refused` counts refusals among them, `empty` answers without text
        limited, failed, dropped, late, malformed, absent: failed tries by kind, as in `Trouble`
        read, written: input and output tokens, as reported by the server
        cost: the money spent, by the given prices
        models: the number of answers under each model name
    """

    remembered: int = 0
    answered: int = 0
    refused: int = 0
    empty: int = 0
    limited: int = 0
    failed: int = 0
    dropped: int = 0
    late: int = 0
    malformed: int = 0
    absent: int = 0
    read: int = 0
    written: int = 0
    cost: float = 0.0
    models: Counter[str] = field(default_factory=Counter)


class Sender:
    """Sends requests to a server, and keeps the answers and the reasons of failed tries in the journal.

    After an error no further request is sent. Requests in flight are still awaited and kept, since they are paid for.
    """

    def __init__(
        self, server: Server, journal: Journal, secret: Secret, pace: Pace, patience: Patience, budget: Budget
    ) -> None:
        self.tally, self.purse, self.writer = Tally(), Purse(budget, self._sleep), Writer(server)
        self._server, self._journal, self._secret = server, journal, secret
        self._concurrent, self._pacer = pace.concurrent, Pacer(pace, sleep=self._sleep)
        self._patience, self._waits = patience, generator(patience.seed, "waits")
        self._met = False  # whether the server has replied at all
        self._cap = "max_tokens"  # the server's name for the maximum number of output tokens
        self._continues = server.continues

    async def ask(self, requests: Mapping[str, Request], done: Callable[[], None]) -> None:
        """Send all requests, given by their keys in the journal, and keep their answers; call `done` after each.

        The first request goes alone, so that an error common to all shows once.

        Errors: `SpecError` if the server cannot be reached, rejects a request, fails too often or answers under another
        model's name, and if the budget does not allow the next request; `StoreError` if an answer cannot be written.
        """
        left = deque(requests.items())
        self._done, self._error = done, asyncio.get_running_loop().create_future()
        async with aclosing(Client(self._server, self._secret, self._patience.timeout)) as self._client:
            begun = next((item for item in left if item[1].chat and item[1].begun), None)
            if begun is not None and self._server.tokenizer is None:
                await self._check_continues(*begun)
            await self._answer(*left.popleft())
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._concurrent, len(left))):
                    group.create_task(self._work(left))
        self._check_error()

    async def _work(self, left: deque[tuple[str, Request]]) -> None:
        try:
            while left and not self._error.done():
                await self._answer(*left.popleft())
        except AnchorlabError as error:
            if not self._error.done():
                self._error.set_exception(error)

    def _check_error(self) -> None:
        """Raise the error that has ended the round, if one has."""
        if self._error.done():
            self._error.result()

    async def _sleep(self, seconds: float) -> None:
        """Sleep, at most until an error ends the round; then raise it."""
        await asyncio.wait([self._error], timeout=seconds)
        self._check_error()

    async def _answer(self, key: str, request: Request) -> None:
        """Get an answer and keep it."""
        server, begun = self._server, time.monotonic()
        outcome, tries = await self._insist(key, request)
        if isinstance(outcome, Rejection):
            await self._journal.keep_problem(key, request, f"{outcome.status}: {outcome.said}")
            raise explained(outcome, request, server, self._secret.value is not None)
        if outcome.model is not None:
            self.tally.models[outcome.model] += 1
        if not server.is_model(outcome.model):
            problem = f"{server.model!r} was asked and {outcome.model!r} answered"
            await self._journal.keep_problem(key, request, problem)
            raise SpecError("model", problem, "give that name, or allow it (answers_as)")
        cost = self.purse.budget.charge(request, outcome.said)
        await self._journal.keep(key, request, outcome, cost, time.monotonic() - begun, tries)
        self.tally.answered += 1
        self.tally.refused += outcome.said.finish == "refusal"
        self.tally.empty += not outcome.said.text.strip()
        self.tally.read += outcome.said.read or 0
        self.tally.written += outcome.said.written or 0
        self._done()

    async def _insist(self, key: str, request: Request, probe: bool = False) -> tuple[Answer | Rejection, int]:
        """Try until the server answers or rejects a request; return the outcome and the number of tries.

        `probe` asks both to continue the last message and to begin a new one.

        Errors: `SpecError` if the tries are used up, the server cannot be reached, or it asks for too long a wait.
        """
        tries, patience = 0, self._patience
        while True:
            body = self.writer.body(request, self._cap)
            if probe:
                body |= {"continue_final_message": True, "add_generation_prompt": True, self._cap: 1}
            outcome = await self._try(request, body)
            if isinstance(outcome, Rejection) and outcome.status == 400 and _NEW_CAP in outcome.said:
                self._cap = _NEW_CAP
                if "messages" in body and "max_tokens" in body:
                    continue  # this was no try
            tries += 1
            if not isinstance(outcome, Trouble):
                return outcome, tries
            setattr(self.tally, outcome.kind, getattr(self.tally, outcome.kind) + 1)
            await self._journal.keep_problem(key, request, outcome.said)
            if outcome.kind == "absent" and not self._met:
                problem = f"no server at {self._server.url} ({outcome.said})"
                raise SpecError("endpoint", problem, "start it, or check the address")
            if tries >= patience.tries or outcome.wait > patience.longest:
                raise given_up(outcome, tries, self._server, patience.longest)
            if outcome.wait:
                self._pacer.hold(outcome.wait)
            await self._sleep(patience.wait(tries, outcome.wait, self._waits))

    async def _try(self, request: Request, body: dict[str, Any]) -> Answer | Trouble | Rejection:
        """Send a request once, when rate limits and budget allow."""
        self._check_error()
        worst = self.purse.budget.worst(request)
        likely = len(request.text.encode(errors="replace")) / _BYTES + request.tokens
        await self._pacer.take(likely)
        await self.purse.reserve(worst)
        used, cost = likely, worst  # these count if the request is interrupted
        try:
            outcome = await self._client.put(request, body)
            if isinstance(outcome, Answer):
                said, cost = outcome.said, self.purse.budget.charge(request, outcome.said)
                if said.read is not None and said.written is not None:
                    used = said.read + said.written
            elif isinstance(outcome, Rejection) or not outcome.charged:
                cost, used = 0.0, 0.0
        finally:
            self.purse.settle(worst, cost)
            self._pacer.give_back(likely - used)
            self.tally.cost = self.purse.spent
        self._met |= not isinstance(outcome, Trouble) or outcome.kind != "absent"
        return outcome

    async def _check_continues(self, key: str, request: Request) -> None:
        """Find out whether the server supports `continue_final_message`: if so, it rejects a contradictory request.

        It does so before it computes anything. A server without support either ignores the field, and answers, or
        rejects the real requests too.
        """
        if self._continues is None:
            outcome, _ = await self._insist(key, request, probe=True)
            if isinstance(outcome, Rejection) and outcome.status not in (400, 422):
                raise explained(outcome, request, self._server, self._secret.value is not None)
            self._continues = isinstance(outcome, Rejection)
            found = "knows" if self._continues else "ignores"
            await self._journal.keep_problem(key, request, f"asked beforehand: it {found} beginnings")
        if not self._continues:
            raise SpecError("endpoint", f"{self._server.url} does not go on with a begun answer", NO_CONTINUING)
