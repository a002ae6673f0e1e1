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
    """A request as it arrived: when, its path, headers and body, and how often the same body came before."""

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


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._send(Answer(404, {"detail": "no list"}))

    def do_POST(self) -> None:
        server, content = self.server, self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        with server.guard:
            asked = Asked(time.monotonic(), self.path, headers, json.loads(content), server.seen[content])
            server.seen[content] += 1
            server.asked.append(asked)
        answer = server.script(asked)
        time.sleep(answer.after)
        self.close_connection = answer.dropped
        if not answer.dropped:
            with server.guard:
                server.answered[asked.text] += answer.status == 200
            self._send(answer)

    def _send(self, answer: Answer) -> None:
        body = (answer.body if isinstance(answer.body, str) else json.dumps(answer.body)).encode()
        self.send_response(answer.status)
        fixed = {"content-type": "application/json", "content-length": str(len(body))}
        for name, value in [*fixed.items(), *answer.headers.items()]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def served(script: Callable[[Asked], Answer] = spoken) -> Iterator[Any]:
    """Within `with`, a server on the loopback that follows its `script`.

    `asked` is what arrived, `answered` how often each text was answered.
    """
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.script, server.port, server.url = script, server.server_port, f"http://127.0.0.1:{server.server_port}/v1"
        server.asked, server.answered, server.seen, server.guard = [], Counter(), Counter(), threading.Lock()
        server.handle_error = lambda *_: None  # of a connection that the other side has closed
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
