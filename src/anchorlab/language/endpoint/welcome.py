"""Which replies are read at all: plain ones up to a size, since a small packed one can unpack to any."""

from collections.abc import AsyncIterator

import httpx2
import openai

MOST_BYTES = 16 * 2**20
"""The longest reply that is read; an answer of 100,000 tokens has about half a megabyte."""

PLAIN = {"Accept-Encoding": "identity"}
"""The header that asks for a reply that is not packed."""


class UnwelcomeError(Exception):
    """A reply that is not read; says why."""


def http_client(timeout: float) -> httpx2.AsyncClient:
    """Return a client of HTTP that reads welcome replies alone, and follows no redirect: a key is for one server.

    Whatever reads a reply that is packed or longer than `MOST_BYTES` gets an `UnwelcomeError`.
    """
    return openai.DefaultAsyncHttpxClient(timeout=timeout, follow_redirects=False, event_hooks={"response": [_welcome]})


async def _welcome(reply: httpx2.Response) -> None:
    packing = reply.headers.get("content-encoding", "").strip().lower()
    if packing not in ("", "identity"):
        raise UnwelcomeError(f"the reply is packed ({packing:.20}), though a plain one was asked for")
    reply.encoding = "utf-8"  # that of JSON; a reply's own word could name one that unpacks
    assert isinstance(reply.stream, httpx2.AsyncByteStream)
    reply.stream = _Bounded(reply.stream)


class _Bounded(httpx2.AsyncByteStream):
    """The bytes of a reply, up to a size."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for part in self._stream:
            read += len(part)
            if read > MOST_BYTES:
                raise UnwelcomeError(f"the reply is longer than {MOST_BYTES // 2**20} MiB")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
