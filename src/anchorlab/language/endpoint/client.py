"""Send one request through the `openai` client, and classify the outcome."""

import asyncio
import json
from typing import TYPE_CHECKING, Any

from anchorlab.errors import SpecError
from anchorlab.language.asking.request import Request, Said
from anchorlab.language.endpoint.answer import Answer, MalformedError, read_answer
from anchorlab.language.endpoint.failures import Rejection, Trouble
from anchorlab.language.endpoint.retry_policy import seconds_asked_for
from anchorlab.language.endpoint.secret import Secret
from anchorlab.language.endpoint.server import Server
from anchorlab.printable import printable

if TYPE_CHECKING:
    from openai import APIConnectionError, APIStatusError, AsyncOpenAI

_PASSING = (408, 409, 425)  # statuses worth a retry, as well as 429 and 5xx
_LONGEST = 300  # characters of a server's words
_INNER = ("message", "detail", "error")  # fields of an error's body that may hold the message
_FILTERED = ("content_filter", "content_policy_violation")
_OPENAI_S = ("messages", "prompt", "model", "temperature", "seed", "stop", "max_tokens", "max_completion_tokens")


class Client:
    """A connection to a server, within `async with`. Errors: `SpecError` if `openai` is not installed."""

    def __init__(self, server: Server, secret: Secret, timeout: float, connections: int) -> None:
        try:
            import openai

            from anchorlab.language.endpoint.reply_limits import PLAIN, UnwelcomeError, http_client
        except ImportError as error:
            raise SpecError("openai", "is not installed", "run pip install 'anchorlab[language]'") from error
        self._openai, self._secret, self._timeout = openai, secret, timeout
        self._unwelcome = UnwelcomeError
        self._client: AsyncOpenAI = openai.AsyncOpenAI(
            base_url=server.url,
            api_key=secret.value or "none",
            max_retries=0,  # every try counts for pace and budget
            http_client=http_client(timeout),
            default_headers=PLAIN,
        )
        self._headers = {} if secret.value else {"Authorization": openai.Omit()}

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def put(self, request: Request, body: dict[str, Any]) -> Answer | Trouble | Rejection:
        """Send a request's body to the server once."""
        known = {name: body[name] for name in _OPENAI_S if name in body}
        further = {name: value for name, value in body.items() if name not in _OPENAI_S}
        messages = "messages" in body
        where = self._client.chat.completions if messages else self._client.completions
        try:
            async with asyncio.timeout(self._timeout):
                reply = await where.with_raw_response.create(**known, extra_body=further, extra_headers=self._headers)
                text = reply.http_response.text
        except TimeoutError:
            return self._late()
        except self._unwelcome as error:
            return Trouble("malformed", self._short(str(error)), charged=True)
        except self._openai.APITimeoutError as error:
            return self._absent(error) if type(error.__cause__).__name__ == "ConnectTimeout" else self._late()
        except self._openai.APIConnectionError as error:
            return self._absent(error) if type(error.__cause__).__name__ == "ConnectError" else self._dropped(error)
        except self._openai.APIStatusError as error:
            return self._status(error)
        try:
            return read_answer(text, request, messages, self._secret)
        except MalformedError as error:
            return Trouble("malformed", f"{error}: {self._short(text)!r}", charged=True)

    def _late(self) -> Trouble:
        return Trouble("late", f"no reply in {self._timeout:g} s", charged=True)

    def _absent(self, error: "APIConnectionError") -> Trouble:
        return Trouble("absent", self._short(str(error.__cause__)) or "no connection")

    def _dropped(self, error: "APIConnectionError") -> Trouble:
        # only the cause's type: its message may quote a header
        return Trouble("dropped", f"the connection was lost ({type(error.__cause__).__name__})", charged=True)

    def _status(self, error: "APIStatusError") -> Answer | Trouble | Rejection:
        status, headers, said = error.status_code, error.response.headers, self._words(error.body)
        code = str(error.code or error.type or "")
        if status == 400 and code in _FILTERED:
            return Answer(Said(said, "refusal", 0, 0), None)
        if (status == 429 and code != "insufficient_quota") or status in _PASSING or (status >= 500 and status != 501):
            asked = [headers.get(name) for name in ("retry-after", "retry-after-ms", "date")]
            return Trouble("limited" if status == 429 else "failed", f"{status}: {said}", seconds_asked_for(*asked))
        if 300 <= status < 400:
            said = self._short(headers.get("location", ""))
        return Rejection(status, said, self._secret.hide(code))

    def _words(self, body: object) -> str:
        """Return the message in an error's body: `message`, `detail` or `error` at any depth, else the whole body."""
        while isinstance(body, dict) and (inner := [body[name] for name in _INNER if body.get(name)]):
            body = inner[0]
        try:
            return self._short(body if isinstance(body, str) else json.dumps(body, default=str))
        except RecursionError:
            return "words that are nested too deeply to read"

    def _short(self, text: str) -> str:
        return printable(self._secret.hide(" ".join(text.split())))[:_LONGEST]
