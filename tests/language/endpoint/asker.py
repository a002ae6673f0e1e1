"""Asks a server and writes the answers: what the tests kill.

`python -m tests.language.endpoint.asker ADDRESS JOURNAL ACCESS REQUESTS OUT`
"""

import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from anchorlab.language.asking.request import Request, Turn
from anchorlab.language.endpoint import Access, Endpoint

signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent that runs in the background leaves it ignored


def question(text, **fields):
    return Request((Turn("user", str(text)),), **fields)


if __name__ == "__main__":
    address, journal, access, requests, out = sys.argv[1:]
    replies = Endpoint(address, Path(journal), Access.parse(json.loads(access))).say(eval(requests))
    Path(out).write_text(json.dumps([asdict(reply) for reply in replies]))
