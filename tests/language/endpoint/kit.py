"""What the tests of endpoints share."""

import json
from pathlib import Path
from typing import Any

from anchorlab.language.asking.request import Request, Turn
from anchorlab.language.endpoint import Endpoint, Patience, Server
from tests.language.endpoint.scripted import Scripted

SOON = Patience(timeout=5.0, tries=8, first=0.01, longest=0.5)


def question(text: Any, **fields: Any) -> Request:
    return Request((Turn("user", str(text)),), **fields)


def endpoint(server: Scripted, journal: Path, **settings: Any) -> Endpoint:
    """An endpoint of a scripted server, with short waits."""
    ours = {name: settings.pop(name) for name in list(settings) if name in Server.model_fields}
    asked = Server(**{"url": server.url, "model": "tiny", **ours})
    return Endpoint(asked, journal, **{"patience": SOON, **settings})


def lines(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]
