"""Asks a server a number of questions and writes the answers: what the tests kill.

`python -m tests.language.endpoint.asker URL JOURNAL COUNT CONCURRENT OUT`
"""

import json
import signal
import sys
from pathlib import Path

from anchorlab.language.endpoint import Endpoint, Pace, Server
from tests.language.endpoint.kit import SOON, question

# a parent that runs in the background leaves SIGINT ignored
signal.signal(signal.SIGINT, signal.default_int_handler)

if __name__ == "__main__":
    url, journal, count, concurrent, out = sys.argv[1:]
    pace = Pace(concurrent=int(concurrent))
    speaker = Endpoint(Server(url=url, model="tiny"), Path(journal), pace, SOON)
    said = speaker.say([question(number) for number in range(int(count))])
    Path(out).write_text(json.dumps([each.text for each in said]))
