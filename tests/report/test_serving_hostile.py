"""The served page against requests and pages of others: nothing ends in a traceback, and no page reads another."""

import os
import socket
import sys
import threading
import time
from contextlib import ExitStack
from http.client import HTTPConnection, RemoteDisconnected

import pytest

from anchorlab.report import serving
from anchorlab.runs import Cell, Store, metrics_frame
from tests.browser import until
from tests.report.hand_made_findings import make_findings
from tests.report.served_stores import REPORT, get, keep_study, served

pytestmark = pytest.mark.nightly

SECRET = "a run's own name"

THIEF = """<!DOCTYPE html><title>waiting</title><script>
const told = [];
const try_ = async (name, work) => {
  try { told.push(`${name}: ${await work()}`); } catch { told.push(`${name}: no`); }
};
const asked = (how) => (async () => (await (await fetch("/", how)).text()).length > 0);
(async () => {
  await try_("fetch", asked({credentials: "include"}));
  await try_("blind", async () => { await fetch("/", {mode: "no-cors", credentials: "include"}); return "sent"; });
  await try_("frame", () => new Promise((ready, failed) => {
    const frame = document.createElement("iframe");
    frame.onload = () => { try { ready(frame.contentDocument.body.innerText.length); } catch { failed(); } };
    frame.src = "/";
    document.body.append(frame);
    setTimeout(failed, 1000);
  }));
  await try_("cookie", () => document.cookie);
  await try_("storage", () => { localStorage.setItem("a", "b"); return "kept"; });
  await try_("window", () => open("/").document.title);
  await try_("image", () => new Promise((ready, failed) => {
    const image = new Image();
    [image.onload, image.onerror] = [ready, failed];
    image.src = "/?told=" + encodeURIComponent(document.title);
  }));
  document.title = told.join("; ");
})();
</script>"""


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "store")
    with made.open(Cell({"model": {"layers": 2}, "members": {"seeds": [0]}, "format": 1}, label=SECRET)) as run:
        run.finish(metrics_frame([(0, 0, step, "test", "all", "none", "accuracy", step / 10) for step in (0, 10)]))
    keep_study(made, THIEF)
    return made


@pytest.fixture
def server(store):
    with served(store) as made:
        yield made


def raw(server, request):
    """What comes back for bytes that are sent as they are."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as one:
        one.sendall(request)
        return b"".join(iter(lambda: one.recv(1 << 16), b""))


def policy(answer):
    rules = [rule.split() for rule in answer.getheader("Content-Security-Policy").split(";")]
    return {name: words for name, *words in rules}


def test_files_of_the_store_are_shown_in_a_sandbox(server):
    token = f"?token={server.token}"
    page = policy(get(server, f"{REPORT}{token}")[0])
    assert page["sandbox"] == ["allow-scripts"]  # no origin of its own, so that it reads nothing beside it
    assert page["default-src"] == page["form-action"] == page["base-uri"] == page["frame-ancestors"] == ["'none'"]
    assert "connect-src" not in page
    index = policy(get(server, f"/{token}")[0])
    assert "sandbox" not in index and index["connect-src"] == ["'self'"] and index["default-src"] == ["'none'"]
    for path in ("/", f"/curves/{server.store.runs()[0].address}{token}", f"/nothing{token}"):
        other = policy(get(server, path)[0])
        assert other["sandbox"] == [] and other["default-src"] == ["'none'"]


def test_a_page_of_the_store_cannot_read_the_index(browser, server):
    context = browser.new_context()
    asked = []
    index = context.new_page()
    index.goto(server.address)
    assert SECRET in index.content()
    context.on("response", lambda answer: asked.append(answer.url))
    index.locator(".found summary").click()
    index.locator(".found .links a").click()
    until(lambda: index.title() != "waiting")
    told = index.title()
    assert told == "; ".join(
        f"{one}: no" for one in ("fetch", "blind", "frame", "cookie", "storage", "window", "image")
    )
    assert [url for url in asked if not url.endswith(REPORT)] == []
    context.close()


def test_our_own_page_works_in_its_sandbox(browser, server):
    from anchorlab.report import write_report

    folder = server.store.root / "studies" / "anchor-identity" / "quick"
    write_report(make_findings(), folder / "report.html")
    context, complaints = browser.new_context(color_scheme="light", reduced_motion="reduce"), []
    page = context.new_page()
    page.goto(server.address)
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(server.address.partition("/?")[0] + REPORT)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.locator("#theme").click()
    assert page.evaluate(ground) != light
    assert page.locator(".views svg, .maps canvas, figure svg").count() > 0
    assert complaints == []
    context.close()


STRANGE = {
    "NUL in a page": b"GET /studies/a/b%00/report.html?token=TOKEN HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "NUL in curves": b"GET /curves/%00?token=TOKEN HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "a plain NUL": b"GET /studies/\0/quick/report.html?token=TOKEN HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "no address": b"GET http://[?token=TOKEN HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "a long name": b"GET /studies/%s/quick/report.html?token=TOKEN HTTP/1.1\r\nHost: HOST\r\n\r\n" % (b"a" * 5000),
    "half a character": b"GET /studies/%ff%ed%a0%80/quick/report.html?token=TOKEN HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "a strange cookie": b'GET / HTTP/1.1\r\nHost: HOST\r\nCookie: "a\\"b=[c]; =; anchorlab-PORT\r\n\r\n',
    "an illegal cookie": b'GET / HTTP/1.1\r\nHost: HOST\r\nCookie: a:b{}="\\400"; expires; $Path=/\r\n\r\n',
    "a strange token": b"GET /?token=%ed%a0%80%00 HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "many fields": b"GET /?" + b"a&" * 20000 + b" HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "another method": b"POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\n\r\n12345",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    "a header without an end": b"GET / HTTP/1.1\r\nHost: " + b"a" * 100_000 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 1000 + b"\r\n",
}


@pytest.mark.parametrize("case", STRANGE)
def test_a_strange_request_is_answered_without_a_traceback(server, capfd, case):
    given = {b"TOKEN": server.token, b"HOST": server.hosts[0], b"PORT": str(server.server_port)}
    request = STRANGE[case]
    for name, value in given.items():
        request = request.replace(name, value.encode())
    answer = raw(server, request)
    status = int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else 400
    assert 400 <= status < 600 and (status < 500 or status == 501), answer
    assert SECRET.encode() not in answer and capfd.readouterr().err == ""
    assert get(server, f"/?token={server.token}")[0].status == 200


def test_a_damaged_store_is_named_on_the_page_without_a_traceback(server, capfd):
    (server.store.root / "studies" / "anchor-identity" / "quick" / "findings.json").write_text('{"checksum": "no"}')
    answer, content = get(server, f"/?token={server.token}")
    assert answer.status == 500 and b"findings.json" in content and b"Traceback" not in content
    assert answer.getheader("Content-Type").startswith("text/plain") and capfd.readouterr().err == ""


@pytest.mark.parametrize("path", ["/", "/curves/RUN", REPORT])
def test_an_error_of_our_own_is_not_blamed_on_the_request(server, monkeypatch, path):
    def fails(*_):
        raise ValueError("a mistake of ours")

    raised = []
    for name in ("browser_page", "Run", "_page_file"):
        monkeypatch.setattr(serving, name, fails)
    monkeypatch.setattr(server, "handle_error", lambda *_: raised.append(str(sys.exc_info()[1])))
    asked = f"{path.replace('RUN', server.store.runs()[0].address)}?token={server.token}"
    with pytest.raises(RemoteDisconnected):
        get(server, asked)
    assert raised == ["a mistake of ours"]


def test_a_visitor_who_leaves_is_no_error(server, capfd):
    (server.store.root / "studies" / "anchor-identity" / "quick" / "report.html").write_bytes(b" " * (8 << 20))
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.server_port)) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # the connection is reset
            one.sendall(f"GET {REPORT}?token={server.token} HTTP/1.1\r\nHost: {server.hosts[0]}\r\n\r\n".encode())
            one.recv(100)
    assert get(server, f"/?token={server.token}")[0].status == 200
    time.sleep(0.2)
    assert capfd.readouterr().err == ""


def test_slow_clients_hold_few_threads_and_keep_nobody_out(server):
    before = threading.active_count()
    with ExitStack() as stack:
        slow = [socket.create_connection(("127.0.0.1", server.server_port), timeout=20) for _ in range(300)]
        for one in slow:
            stack.enter_context(one)
            one.sendall(b"GET / HTTP/1.1\r\nHost: ")
        time.sleep(0.5)
        assert before < threading.active_count() <= before + serving.MOST_VISITORS
        began = time.monotonic()
        assert get(server, f"/?token={server.token}")[0].status == 200
        assert time.monotonic() - began < 5
    until = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.05)
    assert threading.active_count() <= before


def test_a_client_that_never_comes_to_an_end_is_left(server, monkeypatch):
    monkeypatch.setattr(serving, "LONGEST_REQUEST", 0.5)
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=0.1) as one:
        ended = False
        while not ended and time.monotonic() < began + 10:
            try:
                one.sendall(b"G")  # a byte now and then, so that no pause is long
                ended = one.recv(100) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
    assert ended and 0.4 < time.monotonic() - began < 5


@pytest.mark.parametrize("linked", ["report.html", "quick", "anchor-identity"])
def test_a_linked_page_is_not_served(server, tmp_path, linked):
    page = server.store.root / "studies" / "anchor-identity" / "quick" / "report.html"
    assert get(server, f"{REPORT}?token={server.token}")[0].status == 200
    place = next(one for one in (page, *page.parents) if one.name == linked)
    elsewhere = server.store.root / "studies" / "elsewhere"
    place.rename(elsewhere)
    place.symlink_to(elsewhere)
    assert get(server, f"{REPORT}?token={server.token}")[0].status == 404


def test_a_pipe_in_place_of_a_page_keeps_nobody_waiting(server):
    page = server.store.root / "studies" / "anchor-identity" / "quick" / "report.html"
    page.unlink()
    os.mkfifo(page)
    assert get(server, f"{REPORT}?token={server.token}")[0].status == 404


def test_a_huge_page_is_not_held_in_memory(server):
    import tracemalloc

    page = server.store.root / "studies" / "anchor-identity" / "quick" / "report.html"
    with page.open("wb") as file:
        file.truncate(200 << 20)
    tracemalloc.start()
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request("GET", f"{REPORT}?token={server.token}")
    answer, length = connection.getresponse(), 0
    while part := answer.read(1 << 20):
        length += len(part)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert length == 200 << 20 and held < 20 << 20
