"""A language model behind an OpenAI-compatible server."""

import asyncio
from collections.abc import Container, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

from anchorlab.language.asking.request import OnProgress, Request, Said
from anchorlab.language.endpoint.budget import Budget
from anchorlab.language.endpoint.journal import Journal
from anchorlab.language.endpoint.pace import Pace, Patience
from anchorlab.language.endpoint.secret import read_secret
from anchorlab.language.endpoint.sender import Sender
from anchorlab.language.endpoint.server import Dialect, Server, read_address


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
        secret = read_secret(server.key_variable)
        self.name, self._journal = server.model, Journal(journal, server, secret)
        settings = pace or Pace(), patience or Patience(), budget or Budget()
        self._sender = Sender(server, self._journal, secret, *settings)
        self.tally = self._sender.tally
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
        keys = list(map(self._sender.writer.key, requests))
        asked = dict(zip(keys, requests, strict=True))
        with self._journal as journal:
            new = {key: request for key, request in asked.items() if key not in journal.answers}
            self.tally.remembered += len(asked) - len(new)
            answered = count(len(asked) - len(new) + 1)

            def advance() -> None:
                if progress is not None:
                    progress(next(answered), len(asked))

            if new and not self._asked:
                self._sender.purse.check(new.values())
                self._asked = True
            if new:
                _run(self._sender.ask(new, advance))
            return [journal.answers[key] for key in keys]

    def check(self, requests: Iterable[Request]) -> None:
        """Check, before any request is sent, that the budget covers them all; answers in the journal cost nothing.

        Errors: `SpecError` at `max_cost` if it does not; `StoreError` as `say`.
        """
        asked = {self._sender.writer.key(request): request for request in requests}
        kept: Container[str] = ()
        if self._journal.path.exists():
            with self._journal as journal:
                kept = journal.answers
        self._sender.purse.check(request for key, request in asked.items() if key not in kept)


class Access(Dialect):
    """All settings for requests to a server except its address and the model's name.

    Fields, in addition to `Dialect`
        pace: limits on requests and tokens per minute
        patience: timeouts and retries
        budget: prices, and the maximum to spend on each model
    """

    pace: Pace = Pace()
    patience: Patience = Patience()
    budget: Budget = Budget()

    def open(self, address: str, journal: Path) -> Endpoint:
        """Return the model at an address such as `http://127.0.0.1:8000/v1#NAME`; nothing is sent yet.

        Args:
            address: the server's URL and the model's name
            journal: the file that keeps every request and answer

        Errors: as `read_address`, `Server` and `Endpoint`.
        """
        url, model = read_address(address)
        own = {name: getattr(self, name) for name in Dialect.model_fields}
        return Endpoint(Server(url=url, model=model, **own), journal, self.pace, self.patience, self.budget)


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end, in a thread of its own if an event loop is already running, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()
