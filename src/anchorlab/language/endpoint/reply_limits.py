"""Read only uncompressed replies of limited size: a small compressed reply could expand to any size."""

from collections.abc import AsyncIterator

import httpx2
import openai

MOST_BYTES = 16 * 2**20
"""The size limit of a reply, in bytes; an answer of 100,000 tokens has about half a megabyte."""

PLAIN = {"Accept-Encoding": "identity"}
"""The header that asks for an uncompressed reply."""


class UnwelcomeError(Exception):
    """A reply that is refused unread; the message says why."""


def http_client(timeout: float) -> httpx2.AsyncClient:
    """Return an HTTP client that follows no redirect, because a key belongs to one server.

    Reading a reply that is compressed or longer than `MOST_BYTES` raises `UnwelcomeError`.
    """
    return openai.DefaultAsyncHttpxClient(timeout=timeout, follow_redirects=False, event_hooks={"response": [_welcome]})


async def _welcome(reply: httpx2.Response) -> None:
    packing = reply.headers.get("content-encoding", "").strip().lower()
    if packing not in ("", "identity"):
        raise UnwelcomeError(f"the reply is packed ({packing:.20}), though a plain one was asked for")
    reply.encoding = "utf-8"  # the encoding of JSON; the reply's own charset could name a codec that decompresses
    assert isinstance(reply.stream, httpx2.AsyncByteStream)
    reply.stream = _Bounded(reply.stream)


class _Bounded(httpx2.AsyncByteStream):
    """The bytes of a reply, up to `MOST_BYTES`."""

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
