"""Send one request through the `openai` client, read a bounded reply, and classify the outcome."""

import asyncio
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from anchorlab.errors import SpecError
from anchorlab.language.asking.request import Request, Said
from anchorlab.language.endpoint.answer import Answer, MalformedError, read_answer
from anchorlab.language.endpoint.failures import Rejection, Trouble
from anchorlab.language.endpoint.secret import Secret
from anchorlab.language.endpoint.server import Server
from anchorlab.printable import printable

if TYPE_CHECKING:
    from httpx2 import Response
    from openai import APIStatusError

MOST_BYTES = 16 * 2**20
"""The size limit of a reply, in bytes; an answer of 100,000 tokens has about half a megabyte."""

_PASSING = (408, 409, 425)  # statuses worth a retry, as well as 429 and 5xx
_LONGEST = 300  # characters of a server's words
_INNER = ("message", "detail", "error")  # fields of an error's body that may hold the message
_FILTERED = ("content_filter", "content_policy_violation")


class Client:
    """A connection to a server, to be closed in the end.

    Only uncompressed replies of at most `MOST_BYTES` are read, and no redirect is followed, because a key belongs to
    one server.

    Errors: `SpecError` if `openai` is not installed.
    """

    def __init__(self, server: Server, secret: Secret, timeout: float) -> None:
        try:
            import httpx2
            import openai
        except ImportError as error:
            raise SpecError("openai", "is not installed", "run pip install 'anchorlab[language]'") from error
        self._httpx2, self._openai, self._secret, self._timeout = httpx2, openai, secret, timeout
        self._client = openai.AsyncOpenAI(
            base_url=server.url,
            api_key=secret.value or "none",
            max_retries=0,  # every try counts for pace and budget, and is kept in the journal
            http_client=openai.DefaultAsyncHttpxClient(
                timeout=timeout, follow_redirects=False, event_hooks={"response": [self._read_bounded]}
            ),
        )
        headers = {"Accept-Encoding": "identity"} | ({} if secret.value else {"Authorization": openai.Omit()})
        self._options = {"cast_to": httpx2.Response, "options": {"headers": headers}}

    async def aclose(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def put(self, request: Request, body: dict[str, Any]) -> Answer | Trouble | Rejection:
        """Send a request's body to the server once."""
        messages = "messages" in body
        path = "/chat/completions" if messages else "/completions"
        try:
            async with asyncio.timeout(self._timeout):
                text = (await self._client.post(path, body=body, **self._options)).text
        except (TimeoutError, self._openai.APIConnectionError) as error:
            return self._unanswered(error)
        except MalformedError as error:
            return Trouble("malformed", self._short(str(error)))
        except self._openai.APIStatusError as error:
            return self._status(error)
        try:
            return read_answer(text, request, messages, self._secret)
        except MalformedError as error:
            return Trouble("malformed", f"{error}: {self._short(text)!r}")

    async def _read_bounded(self, reply: "Response") -> None:
        """Read a reply. Errors: `MalformedError` if it is compressed, and could expand to any size, or too long."""
        packing = reply.headers.get("content-encoding", "").strip().lower()
        if packing not in ("", "identity"):
            raise MalformedError(f"the reply is packed ({packing:.20}), though a plain one was asked for")
        reply.encoding = "utf-8"  # the encoding of JSON; the reply's own charset could name a codec that decompresses
        content = bytearray()
        async for part in reply.stream:
            content += part
            if len(content) > MOST_BYTES:
                raise MalformedError(f"the reply is longer than {MOST_BYTES // 2**20} MiB")
        await reply.stream.aclose()
        reply.stream = self._httpx2.ByteStream(bytes(content))

    def _unanswered(self, error: Exception) -> Trouble:
        cause = error.__cause__
        if isinstance(cause, self._httpx2.ConnectError | self._httpx2.ConnectTimeout):
            return Trouble("absent", self._short(str(cause)) or "no connection")
        if isinstance(error, TimeoutError | self._openai.APITimeoutError):
            return Trouble("late", f"no reply in {self._timeout:g} s")
        # only the cause's type: its message may quote a header
        return Trouble("dropped", f"the connection was lost ({type(cause).__name__})")

    def _status(self, error: "APIStatusError") -> Answer | Trouble | Rejection:
        status, headers, said = error.status_code, error.response.headers, self._words(error.body)
        code = str(error.code or error.type or "")
        if status == 400 and code in _FILTERED:
            return Answer(Said(said, "refusal", 0, 0), None)
        if (status == 429 and code != "insufficient_quota") or status in _PASSING or (status >= 500 and status != 501):
            return Trouble("limited" if status == 429 else "failed", f"{status}: {said}", seconds_asked_for(headers))
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


def seconds_asked_for(headers: Mapping[str, str]) -> float:
    """Return the wait that a server asks for in its headers, in seconds; 0 if it asks for none.

    `Retry-After` holds seconds or a time of day, which is compared with the server's own `Date`.
    """
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        with suppress(ValueError):
            if math.isfinite(seconds := float(headers.get(name, "")) * scale):
                return max(0.0, seconds)
    try:
        until, now = (parsedate_to_datetime(headers.get(name, "")) for name in ("retry-after", "date"))
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0
