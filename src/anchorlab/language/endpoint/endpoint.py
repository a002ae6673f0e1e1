"""A language model behind an OpenAI-compatible server."""

import asyncio
from collections.abc import Container, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from anchorlab.language.asking.request import OnProgress, Request, Said
from anchorlab.language.endpoint.budget import Budget, Purse
from anchorlab.language.endpoint.chat_template import open_writer
from anchorlab.language.endpoint.client import Client
from anchorlab.language.endpoint.journal import Journal
from anchorlab.language.endpoint.rate_limit import Pace, Pacer
from anchorlab.language.endpoint.retry_policy import Patience
from anchorlab.language.endpoint.round import Known, Means, Round
from anchorlab.language.endpoint.secret import read_secret
from anchorlab.language.endpoint.server import Server
from anchorlab.language.endpoint.tally import Tally
from anchorlab.language.endpoint.wire import identity, text_of
from anchorlab.rng import generator


class Endpoint:
    """A model behind an OpenAI-compatible server, as a `Speaker`.

        server = Server(url="http://127.0.0.1:8000/v1", model="Qwen/Qwen3-0.6B")
        endpoint = Endpoint(server, Path("answers.jsonl"), Pace(requests=600))
        endpoint.say([Request((Turn("user", "a = 5. What is a?"),))])

    Every answer is written to the journal before it is used. A question with an answer in the journal is never sent
    again: not by this process, not by the next one after a kill, and not by another study that uses the same file. A
    kill loses at most the answers in flight, up to `pace.concurrent`; their questions are sent again.

    Fields
        name: the model's name
        tally: counts of requests and outcomes
    """

    def __init__(
        self,
        server: Server,
        journal: Path,
        pace: Pace | None = None,
        patience: Patience | None = None,
        budget: Budget | None = None,
    ) -> None:
        """Prepare the endpoint; nothing is sent yet.

        Args:
            server: which server and model.
            journal: the file that keeps every request and answer; created if missing.
            pace: the number of concurrent requests, and the limits on requests and tokens per minute; None: 8 requests
                at a time, without limits.
            patience: timeouts and retries.
            budget: prices, and the maximum to spend.

        Errors: `SpecError` for a key that no header can carry, and for a tokenizer that is not on this machine.
        """
        self.name, self.tally = server.model, Tally()
        self._pace, patience = pace or Pace(), patience or Patience()
        self._secret = read_secret(server.key_variable)
        self._journal = Journal(journal, self._secret)
        self._means = Means(
            server,
            patience,
            Pacer(self._pace),
            Purse(budget or Budget()),
            self.tally,
            Known(),
            None if server.tokenizer is None else open_writer(server.tokenizer),
            generator(patience.seed, "waits"),
            has_key=self._secret.value is not None,
        )
        self._asked = False

    def say(self, requests: Sequence[Request], progress: OnProgress | None = None) -> list[Said]:
        """Return the model's reply to each request; equal requests are sent once.

        `progress` is called after every answer with the number of distinct requests answered, journal included, and
        their total.

        Errors: `SpecError`, of one line, if the server cannot be reached, asks for a key, does not know the model,
        answers under another model's name, rejects a request or fails too often; if the budget could be exceeded (the
        first call checks all its requests in advance, later calls each request in turn); and if `openai` is missing.
        Answers that arrived before the error are kept. `StoreError` if the journal is damaged, in use by another
        process, or cannot be written.
        """
        keys = [self._identity(request) for request in requests]
        with self._journal as journal:
            new = _without(journal.answers, keys, requests)
            self.tally.remembered += len(set(keys)) - len(new)
            if new and not self._asked:
                self._means.purse.check(new.values())
                self._asked = True
            if new:
                _run(self._ask(new, len(set(keys)), progress))
            return [journal.answers[key] for key in keys]

    def check(self, requests: Iterable[Request]) -> None:
        """Check, before any request is sent, that the budget covers them all; answers in the journal cost nothing.

        Errors: `SpecError` at `max_cost` if it does not; `StoreError` as `say`.
        """
        requests = tuple(requests)
        kept: Container[str] = ()
        if self._journal.path.exists():
            with self._journal as journal:
                kept = journal.answers
        self._means.purse.check(_without(kept, map(self._identity, requests), requests).values())

    def _identity(self, request: Request) -> str:
        return identity(request, self._means.server, text_of(request, self._means.writer))

    async def _ask(self, requests: dict[str, Request], total: int, progress: OnProgress | None) -> None:
        done = total - len(requests)

        def advance() -> None:
            nonlocal done
            done += 1
            if progress is not None:
                progress(done, total)

        means = self._means
        async with Client(means.server, self._secret, means.patience.timeout, self._pace.concurrent) as client:
            await Round(means, client, self._journal, advance).ask(requests, self._pace.concurrent)


def _without(kept: Container[str], keys: Iterable[str], requests: Sequence[Request]) -> dict[str, Request]:
    """Return the requests without an answer in `kept`, by key; equal requests count once."""
    return {key: each for key, each in zip(keys, requests, strict=True) if key not in kept}


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end, in a thread of its own if an event loop is already running, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()
