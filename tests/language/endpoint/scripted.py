"""A server for tests that answers as OpenAI's do, and fails as its script says."""

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


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
    """What to do with a request: the reply, the seconds to wait `after` it came, or to drop the connection instead."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    after: float = 0.0
    dropped: bool = False


Script = Callable[[Asked], Answer]


def said(text: str) -> str:
    """What the server says to a question; nobody else could."""
    return "it is " + hashlib.sha256(text.encode()).hexdigest()[:8]


def spoken(asked: Asked, text: str | None = None, **changes: Any) -> Answer:
    """An ordinary answer, its fields changed."""
    text = said(asked.text) if text is None else text
    choice = {"message": {"role": "assistant", "content": text}} if "messages" in asked.body else {"text": text}
    usage = {"prompt_tokens": len(asked.text.split()), "completion_tokens": len(text.split())}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": asked.body["model"], "usage": usage}
    return Answer(body=body | {"choices": [{"index": 0, "finish_reason": "stop", **choice}]} | changes)


class Scripted(ThreadingHTTPServer):
    """A server on the loopback: `asked` is what arrived, `answered` how often each text was answered."""

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script, self.port, self.url = script, self.server_port, f"http://127.0.0.1:{self.server_port}/v1"
        self.asked: list[Asked] = []
        self.answered: Counter[str] = Counter()
        self.seen: Counter[bytes] = Counter()
        self.guard = threading.Lock()

    def handle_error(self, *_: Any) -> None:
        """Say nothing of a connection that the other side has closed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version, server = "HTTP/1.1", None

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._send(Answer(404, {"detail": "no list"}))

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.server.guard:
            asked = Asked(time.monotonic(), self.path, headers, json.loads(content), self.server.seen[content])
            self.server.seen[content] += 1
            self.server.asked.append(asked)
        answer = self.server.script(asked)
        time.sleep(answer.after)
        if answer.dropped:
            self.close_connection = True
            return
        with self.server.guard:
            self.server.answered[asked.text] += answer.status == 200
        self._send(answer)

    def _send(self, answer: Answer) -> None:
        body = (answer.body if isinstance(answer.body, str) else json.dumps(answer.body)).encode()
        self.send_response(answer.status)
        for name, value in {"content-type": "application/json", "content-length": str(len(body))}.items():
            self.send_header(name, value)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def served(script: Script = spoken) -> Iterator[Scripted]:
    """Within `with`, a server that follows `script`."""
    with Scripted(script) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
