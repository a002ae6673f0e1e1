"""Serve the page that browses a store, on this machine only, to visitors who have the token in its address."""

import hmac
import os
import secrets
import shutil
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase, BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from anchorlab.errors import AnchorlabError, SpecError
from anchorlab.plain import open_plain
from anchorlab.report.browse import browser_page, study_rows
from anchorlab.runs import Index, Run, Store
from anchorlab.runs.names import is_address

MOST_VISITORS = 32
"""The largest number of connections; one more ends the connection that has waited longest without a full request."""

LONGEST_REQUEST = 10.0
"""Seconds for a visitor to send a whole request."""

_MOST_FIELDS = 10  # query fields of an address
_MOMENT = 1.0  # seconds to wait for a thread whose connection was ended
_LONGEST_PAUSE = 30.0  # seconds without progress after which a connection is given up

_SECURITY = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_INLINE = "; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_INDEX = f"{_NOTHING}{_INLINE}; connect-src 'self'"
_SANDBOX = f"sandbox; {_NOTHING}"
# a page in the store may be untrusted: its scripts run in a sandbox without an origin, and can reach nothing else
_PAGE = f"sandbox allow-scripts; {_NOTHING}{_INLINE}"


class Browser(ThreadingHTTPServer):
    """A server, on the loopback interface, of the page that browses a store. Run it with `serve_forever`.

    The page is rebuilt at every visit. A request needs the token, either in the address (see `address`) or in the
    cookie that such a visit sets; other pages in the browser have neither. Requests for another host name are refused.
    The server writes nothing to the store except its index. Files of the store are shown in a sandbox, from which the
    browsing page cannot be read.

    Errors: `SpecError` for a port that is not free.
    """

    daemon_threads = True
    request_queue_size = 128  # with the default of 5, a sixth simultaneous visitor must try again after a second

    def __init__(self, store: Store, port: int = 0) -> None:
        self.store, self.index, self.token = store, Index(store.root), secrets.token_urlsafe(24)
        self._room, self._changing = threading.Semaphore(MOST_VISITORS), threading.Lock()
        self._waiting = dict[socket.socket, float]()  # connections without a whole request, and their start
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            raise SpecError("port", f"{port} cannot be used ({error})", "leave it out for a free one") from None

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a visitor in a new thread; if all are taken, end the connection that has waited longest first."""
        if not self._room.acquire(blocking=False):
            self._hang_up(self._longest_waiting()[:1])
            if not self._room.acquire(timeout=_MOMENT):
                super().shutdown_request(request)
                return
        with self._changing:
            self._waiting[request] = time.monotonic()
        super().process_request(request, client_address)

    def has_asked(self, request: socket.socket) -> None:
        """Record that a visitor's request is complete, or no longer waited for."""
        with self._changing:
            self._waiting.pop(request, None)

    def service_actions(self) -> None:
        """End connections that have not sent a whole request in time; called twice a second."""
        self._hang_up(self._longest_waiting(LONGEST_REQUEST))

    def _longest_waiting(self, seconds: float = 0.0) -> list[socket.socket]:
        """Return the connections that have waited at least `seconds` without a whole request, longest first."""
        with self._changing:
            return [one for one, since in self._waiting.items() if time.monotonic() - since >= seconds]

    def _hang_up(self, visitors: Sequence[socket.socket]) -> None:
        """Shut down connections whose threads wait for the rest of a request; the threads then end."""
        for one in visitors:
            self.has_asked(one)
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """End a visitor's connection and free its place."""
        self.has_asked(request)
        super().shutdown_request(request)
        self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, unless it only means that a visitor has left."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        """The address to open, with the token."""
        return f"http://127.0.0.1:{self.server_port}/?token={self.token}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names, with port, for which requests are answered."""
        return f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Browser
    timeout = _LONGEST_PAUSE

    def do_GET(self) -> None:
        """Answer with the page, the curves of a run, or the page of a study."""
        self.server.has_asked(self.connection)
        try:
            parts = urlsplit(self.path)
            given = parse_qs(parts.query, max_num_fields=_MOST_FIELDS).get("token", [""])[0]
            may_read, names = self._may_read(given), unquote(parts.path).removeprefix("/").split("/")
        except (ValueError, CookieError):  # a malformed address or cookie, which no browser sends
            self._say(400, "this request is not understood")
            return
        try:
            if self.headers.get("Host") not in self.server.hosts:
                self._say(403, "this name is not served")
            elif not may_read:
                self._say(403, "open the address that `anchorlab browse --serve` printed")
            else:
                self._answer(*names)
        except AnchorlabError as error:
            self._say(500, str(error))

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: a line would contain the token."""

    def end_headers(self) -> None:
        """Add the headers that isolate the answer from other pages, to errors too."""
        for name, value in _SECURITY.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", self._policy)
        super().end_headers()

    _policy = _SANDBOX

    @property
    def _cookie(self) -> str:
        return f"anchorlab-{self.server.server_port}"  # browsers share cookies between the ports of a host

    def _may_read(self, given: str) -> bool:
        kept = SimpleCookie(self.headers.get("Cookie", "")).get(self._cookie)
        tokens = (given, kept.value if kept is not None else "")
        return any(hmac.compare_digest(one.encode(), self.server.token.encode()) for one in tokens)

    def _answer(self, folder: str, *rest: str) -> None:
        if not folder and not rest:
            self._index()
        elif folder == "curves" and len(rest) == 1 and is_address(rest[0]):
            self._curves(rest[0])
        elif folder == "studies" and (page := _page_file(self.server.store.root / folder, rest)) is not None:
            with page:
                self._policy = _PAGE
                self._send("text/html; charset=utf-8", page, os.fstat(page.fileno()).st_size)
        else:
            self._say(404, "not found")

    def _index(self) -> None:
        store, index = self.server.store, self.server.index
        studies = study_rows(store, lambda page: quote(page.relative_to(store.root).as_posix()))
        content = browser_page(store, index.entries(), index, studies, None).encode()
        self._policy = _INDEX
        cookie = f"{self._cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
        self._send("text/html; charset=utf-8", BytesIO(content), len(content), {"Set-Cookie": cookie})

    def _curves(self, address: str) -> None:
        if not Run(self.server.store.root / address).exists:
            self._say(404, "not found")
            return
        found = self.server.index.curves_of(address)
        packed = {} if found is None else {"Content-Encoding": "deflate"}
        content = found or b"[]"
        self._send("application/json", BytesIO(content), len(content), packed)

    def _say(self, code: int, text: str) -> None:
        content = text.encode(errors="backslashreplace")
        self._send("text/plain; charset=utf-8", BytesIO(content), len(content), code=code)

    def _send(
        self, kind: str, content: BufferedIOBase, size: int, headers: Mapping[str, str] | None = None, code: int = 200
    ) -> None:
        self.send_response(code)
        for name, value in {"Content-Type": kind, "Content-Length": str(size), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        shutil.copyfileobj(content, self.wfile)


def _page_file(studies: Path, names: Sequence[str]) -> BufferedIOBase | None:
    """Open the page of a study, a file `report.html` two folders below `studies`; None if there is none.

    Links are not followed, since they can lead out of the store, and only regular files are read.
    """
    if len(names) != 3 or names[-1] != "report.html" or any(one in ("", ".", "..") for one in names):
        return None
    page = studies.joinpath(*names)
    try:
        if any(place.is_symlink() for place in (studies, page.parent.parent, page.parent)):
            return None
        return open_plain(page)
    except (OSError, ValueError):  # missing, not a file, or an invalid name
        return None
