"""A language model behind an OpenAI-compatible server."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from anchorlab.errors import SpecError, from_extra
from anchorlab.language.address import read_address
from anchorlab.language.asking.request import OnProgress, Request, Said
from anchorlab.language.endpoint.access import Access
from anchorlab.language.endpoint.journal import Journal
from anchorlab.language.endpoint.wire import Writer, is_of_model, read_reply
from anchorlab.printable import printable

_NO_CONTINUING = "give the model's tokenizer, or ask without a beginning, or in plain text (chat=False)"
_LATER = "run it again later; no question is asked twice"
_LONGEST = 300  # characters of a server's words


class Endpoint:
    """A model behind an OpenAI-compatible server, as a `Speaker`.

        model = Endpoint("http://127.0.0.1:8000/v1#Qwen/Qwen3-0.6B", Path("answers.jsonl"), Access(concurrent=16))
        model.say([Request((Turn("user", "a = 5. What is a?"),))])

    The `openai` client waits and tries again. The journal keeps every answer, and no question that has one is sent
    again. An error or a kill loses at most the answers in flight.

    Errors: `SpecError` for an invalid address, for a tokenizer that is not on this machine, and without `openai`.
    """

    def __init__(self, address: str, journal: Path | str, access: Access | None = None) -> None:
        with from_extra("openai", "language"):
            import openai
            from anyio.from_thread import start_blocking_portal
        self._openai, self._portal = openai, start_blocking_portal
        self._url, self.name = read_address(address)
        self._access, self._journal = access or Access(), Journal(Path(journal))
        self._writer = Writer(self._url, self.name, self._access)
        self._found, self._continues = False, self._access.continues

    def say(self, requests: Sequence[Request], progress: OnProgress | None = None) -> list[Said]:
        """Return the model's reply to each request; equal requests are sent once.

        `progress` is called after every answer with the number of distinct requests answered, and their total.

        Errors: `SpecError`, of one line, if the server does not reply, rejects a request or answers under another
        model's name; `StoreError` as `Journal.opened`.
        """
        keys = [self._writer.key(request) for request in requests]
        asked = dict(zip(keys, requests, strict=True))
        with self._journal.opened():
            left = {key: request for key, request in asked.items() if key not in self._journal.answers}
            try:
                if left:
                    with self._portal() as portal:  # in another thread, since a notebook runs an event loop in this one
                        portal.call(self._ask, left, len(asked), progress)
            except ExceptionGroup as failed:
                error = failed.exceptions[0]
                raise self._explained(error) if isinstance(error, self._openai.APIError) else error from None
            return [self._journal.answers[key] for key in keys]

    async def _ask(self, left: dict[str, Request], total: int, progress: OnProgress | None) -> None:
        """Send the requests in `left`, and remove each once its answer is kept."""
        access, api_key = self._access, os.environ.get(self._access.key_variable, "").strip()
        if not (api_key.isascii() and api_key.isprintable()):  # the client's error would show it
            raise SpecError("key", f"${access.key_variable} holds signs that no key has", "set it to the key alone")
        place, turn = asyncio.Semaphore(access.concurrent), asyncio.Lock()

        async def ask(key: str, request: Request) -> None:
            async with place:
                async with turn:
                    await asyncio.sleep(60 / access.requests_a_minute if access.requests_a_minute else 0)
                self._journal.keep(key, request, *await self._answer(request))
            del left[key]
            if progress is not None:
                progress(total - len(left), total)

        self._options = {} if api_key else {"headers": {"Authorization": self._openai.Omit()}}
        client = self._openai.AsyncOpenAI(
            base_url=self._url, api_key=api_key or "none", max_retries=access.tries - 1, timeout=access.timeout
        )
        async with client as self._client, asyncio.TaskGroup() as group:
            await self._check([request for request in left.values() if request.chat and request.begun])
            for key, request in left.items():
                group.create_task(ask(key, request))

    async def _check(self, begun: Sequence[Request]) -> None:
        """Check that a server is there and, for begun answers, that it continues them."""
        if not self._found:
            with suppress(self._openai.APIStatusError):  # not every server lists its models
                await self._client.with_options(max_retries=0).get("/models", cast_to=str, options=self._options)
            self._found = True
        if begun and self._access.tokenizer is None:
            if self._continues is None:  # ask for a contradiction, which a server that knows the field rejects
                try:
                    await self._post(self._writer.body(begun[0]) | {"add_generation_prompt": True, "max_tokens": 1})
                    self._continues = False
                except (self._openai.BadRequestError, self._openai.UnprocessableEntityError):
                    self._continues = True
            if not self._continues:
                raise SpecError("endpoint", f"{self._url} does not go on with a begun answer", _NO_CONTINUING)

    async def _post(self, body: dict[str, Any]) -> Any:
        path = "/chat/completions" if "messages" in body else "/completions"
        return await self._client.post(path, cast_to=object, body=body, options=self._options)

    async def _answer(self, request: Request) -> tuple[Said, str]:
        """Return an answer, and the name under which the model gives it."""
        try:
            reply = await self._post(self._writer.body(request))
            said, name = read_reply(reply, request), str(reply.get("model") or "")
        except self._openai.APIError as error:
            if error.code in ("content_filter", "content_policy_violation"):
                return Said("", "refusal"), ""
            raise self._explained(error, request) from None
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
            raise SpecError("endpoint", f"{self._url} replied without an answer", "check the address") from None
        if name != self._access.answers_as and not is_of_model(name, self.name):
            problem = f"{self.name!r} was asked and {printable(name)[:_LONGEST]!r} answered"
            raise SpecError("model", problem, "give that name, or allow it (answers_as)")
        return said, name

    def _explained(self, error: Any, request: Request | None = None) -> SpecError:
        """Return the error for a failed request: the field to change, the server's words and the remedy."""
        status, words = getattr(error, "status_code", None), error.body or str(error)
        words = words.get("message") or words.get("detail") or words if isinstance(words, dict) else words
        words = printable(" ".join(str(words).split()))[:_LONGEST].rstrip(".")
        if status is None:
            late = isinstance(error, self._openai.APITimeoutError)
            remedy = "give it more seconds (timeout)" if late else "start it, or check the address"
            return SpecError("endpoint", f"no answer from {self._url}: {words}", remedy)
        said = f"{self._url} says {status}: {words}"
        if status in (401, 403):
            return SpecError("key", said, f"set the key in ${self._access.key_variable}")
        if status in (400, 404) and (self.name.lower() in words.lower() or "model" in str(error.code)):
            return SpecError("model", said, f"give a name that {self._url}/models lists")
        if status in (404, 405):
            return SpecError("endpoint", said, "give the address up to and with /v1")
        if status in (400, 422) and request and request.chat and request.begun and not self._access.tokenizer:
            return SpecError("endpoint", f"does not go on with a begun answer; {said}", _NO_CONTINUING)
        return SpecError("endpoint", said, "change the request" if status in (400, 422) else _LATER)
