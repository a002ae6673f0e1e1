"""Stores with a study, and the page over a store while it is served."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

from anchorlab.report.serving import Browser
from anchorlab.runs import Store
from anchorlab.runs.atomic_files import write_file
from tests.report.hand_made_findings import make_findings

REPORT = "/studies/anchor-identity/quick/report.html"


def keep_study(store: Store, page: str) -> Path:
    """Write findings and their page into a store; return their folder."""
    folder = store.root / "studies" / "anchor-identity" / "quick"
    folder.mkdir(parents=True)
    findings = replace(make_findings(), study="anchor/identity", profile="quick")
    write_file(folder, "findings.json", [findings.to_json().encode()])
    (folder / "report.html").write_text(page)
    return folder


@contextmanager
def served(store: Store) -> Iterator[Browser]:
    with Browser(store) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(server: Browser, path: str, **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content
