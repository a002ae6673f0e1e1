"""A server for tests that answers as OpenAI's do, and fails as its script says."""

import asyncio
import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 422: "Unprocessable", 429: "Too Many"}


@dataclass
class Asked:
    """A request as it arrived: when, its path and headers, its body, and how often the same body came before."""

    at: float
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    before: int

    @property
    def text(self) -> str:
        """What is asked: the last message, or the text to be continued."""
        messages = self.body.get("messages")
        return messages[-1]["content"] if messages else self.body["prompt"]


@dataclass
class Answer:
    """What to do with a request.

    Fields
        status, body, headers: of the reply; a body that is text or bytes goes out as it is
        after: seconds to wait first
        cut: how many bytes of the body to send before the connection is closed; -1 for none of the reply at all
    """

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    after: float = 0.0
    cut: int | None = None


Script = Callable[[Asked], Answer]


def said(text: str) -> str:
    """What the server says to a question; nobody else could."""
    return "it is " + hashlib.sha256(text.encode()).hexdigest()[:8]


def spoken(asked: Asked, text: str | None = None, **changes: Any) -> Answer:
    """An ordinary answer, its fields changed."""
    text = said(asked.text) if text is None else text
    chat = asked.path.endswith("/chat/completions")
    choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    usage = {"prompt_tokens": len(asked.text.split()), "completion_tokens": len(text.split())}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": asked.body["model"], "usage": usage}
    return Answer(body=body | {"choices": [{"index": 0, "finish_reason": "stop", **choice}]} | changes)


class Scripted:
    """A server on the loopback: `asked` is what arrived, `answered` how often each text was answered completely."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.answered: Counter[str] = Counter()
        self.finished: list[float] = []
        self._seen: Counter[str] = Counter()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self._ready.wait(30)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(30)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._stopped.wait()
        server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        seen = hashlib.sha256(content).hexdigest()
        asked = Asked(time.monotonic(), head[0].split()[1], headers, json.loads(content or b"{}"), self._seen[seen])
        self._seen[seen] += 1
        self.asked.append(asked)
        answer = self.script(asked)
        await asyncio.sleep(answer.after)
        if answer.cut == -1:
            return False
        text = answer.body if isinstance(answer.body, str | bytes) else json.dumps(answer.body)
        body = text.encode() if isinstance(text, str) else text
        length = {"content-type": "application/json", "content-length": str(len(body))}
        lines = [f"HTTP/1.1 {answer.status} {REASONS.get(answer.status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in (length | answer.headers).items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body[: answer.cut])
        await writer.drain()
        if answer.cut is None and _is_answer(answer.body):
            self.answered[asked.text] += 1
            self.finished.append(time.monotonic())
        return answer.cut is None


def _is_answer(body: Any) -> bool:
    choice = body["choices"][0] if isinstance(body, dict) and body.get("choices") else {}
    return isinstance(choice.get("text", choice.get("message", {}).get("content")), str)


@contextmanager
def served(script: Script = spoken) -> Iterator[Scripted]:
    """Within `with`, a server that follows `script`."""
    server = Scripted(script)
    try:
        yield server
    finally:
        server.close()
