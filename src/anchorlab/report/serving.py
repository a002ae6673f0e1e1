"""Serve the page over a store on this machine alone, to whoever has the token of its address."""

import hmac
import secrets
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

from anchorlab.errors import SpecError
from anchorlab.report.browse import browser_page, study_rows
from anchorlab.runs import Index, Run, Store
from anchorlab.runs.run_directory import is_address

_SECURITY = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Browser(ThreadingHTTPServer):
    """A server of the page over a store on the loopback, made anew at every visit; `serve_forever` runs it.

    A request needs the token: in the address, as in `address`, or in the cookie that such a visit sets. Other pages of
    the browser have neither, and a request under another host's name is refused. It only reads the store, besides its
    index.

    Errors: `SpecError` for a port that is not free.
    """

    daemon_threads = True

    def __init__(self, store: Store, port: int = 0) -> None:
        self.store, self.index, self.token = store, Index(store.root), secrets.token_urlsafe(24)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            raise SpecError("port", f"{port} cannot be used ({error})", "leave it out for a free one") from None

    @property
    def address(self) -> str:
        """The address to open, with the token."""
        return f"http://127.0.0.1:{self.server_port}/?token={self.token}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names under which it answers."""
        return f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Browser

    def do_GET(self) -> None:
        """Answer with the page, the curves of a run, or the page of a study."""
        parts = urlsplit(self.path)
        if self.headers.get("Host") not in self.server.hosts:
            self._send(403, "text/plain", b"this name is not served")
            return
        if not self._may_read(parse_qs(parts.query).get("token", [""])[0]):
            self._send(403, "text/plain", b"open the address that `anchorlab browse --serve` printed")
            return
        folder, _, rest = unquote(parts.path).removeprefix("/").partition("/")
        if not folder:
            self._send(200, "text/html; charset=utf-8", self._page().encode(), cookie=True)
        elif folder == "curves" and is_address(rest):
            self._curves(rest)
        elif folder == "studies":
            self._report(rest)
        else:
            self._send(404, "text/plain", b"not found")

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: a line would contain the token."""

    @property
    def _cookie(self) -> str:
        return f"anchorlab-{self.server.server_port}"  # browsers share cookies between the ports of a host

    def _may_read(self, given: str) -> bool:
        kept = SimpleCookie(self.headers.get("Cookie", "")).get(self._cookie)
        tokens = (given, kept.value if kept is not None else "")
        return any(hmac.compare_digest(one.encode(), self.server.token.encode()) for one in tokens)

    def _page(self) -> str:
        store, index = self.server.store, self.server.index
        studies = study_rows(store, lambda page: quote(page.relative_to(store.root).as_posix()))
        return browser_page(store, index.entries(), index, studies, None)

    def _curves(self, address: str) -> None:
        store = self.server.store
        if not Run(store.root / address).exists:
            self._send(404, "text/plain", b"not found")
            return
        found = self.server.index.curves_of(address)
        self._send(200, "application/json", found or b"[]", packed=found is not None)

    def _report(self, rest: str) -> None:
        """Send the page of a study, a file `report.html` two folders below `studies`."""
        studies = self.server.store.root / "studies"
        path = (studies / rest).resolve()
        if path.name != "report.html" or path.parent.parent.parent != studies.resolve() or not path.is_file():
            self._send(404, "text/plain", b"not found")
            return
        self._send(200, "text/html; charset=utf-8", path.read_bytes())

    def _send(self, code: int, kind: str, content: bytes, cookie: bool = False, packed: bool = False) -> None:
        self.send_response(code)
        for name, value in _SECURITY.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if packed:
            self.send_header("Content-Encoding", "deflate")
        if cookie:
            self.send_header("Set-Cookie", f"{self._cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/")
        self.end_headers()
        self.wfile.write(content)
