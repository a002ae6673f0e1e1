"""What is left of asking after a kill."""

import itertools
import json
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.killed import wait_until
from tests.language.endpoint.scripted import Answer, said, served, spoken

CONCURRENT = 8
FAULTS = [
    Answer(429, {"error": {"message": "too many"}}, {"Retry-After": "0.02"}),
    Answer(500, "no"),
    Answer(cut=-1),
    Answer(body="{"),
]


def kept(journal):
    """The questions whose answers are on the disk; a torn last line is none."""
    whole = journal.read_bytes().rpartition(b"\n")[0]
    lines = [json.loads(line) for line in whole.splitlines()] if journal.exists() else []
    return [line["request"]["turns"][0]["text"] for line in lines if "answer" in line]


@pytest.mark.killed
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "count", "kills"),
    [
        (signal.SIGKILL, 300, (150,)),
        pytest.param(signal.SIGKILL, 1000, (150, 400, 800), marks=pytest.mark.nightly),
        pytest.param(signal.SIGINT, 300, (150,), marks=pytest.mark.nightly),
    ],
)
def test_what_was_answered_is_not_asked_again(journal, tmp_path, sent, count, kills):
    """A tenth of the tries fails, and the process is killed when so many questions are answered.

    After a kill no question is put whose answer is on the disk. What is put twice is what was on its way: no more
    questions at each kill than are put at once.
    """
    faults = itertools.cycle(FAULTS)

    def script(asked):
        drawn = int(said(f"{asked.text} for the {asked.before}. time")[-8:], 16)
        return next(faults) if drawn % 10 == 0 else replace(spoken(asked), after=0.03)

    out = tmp_path / "said.json"
    with served(script) as server:
        command = [sys.executable, "-m", "tests.language.endpoint.asker", server.url]
        command += [str(journal), str(count), str(CONCURRENT), str(out)]
        on_disk, arrived = [], []
        for so_many in (*kills, None):
            process = subprocess.Popen(command, cwd=Path(__file__).parents[3], stderr=subprocess.PIPE)
            if so_many is None:
                assert process.wait(300) == 0
                break
            wait_until(lambda so_many=so_many: server.answered.total() >= so_many, 180)
            process.send_signal(sent)
            process.communicate(timeout=60)
            assert process.returncode != 0
            on_disk.append(set(kept(journal)))
            arrived.append(len(server.asked))

    assert json.loads(out.read_text()) == [said(str(number)) for number in range(count)]
    assert sorted(kept(journal), key=int) == [str(number) for number in range(count)]
    assert all(so_many - 2 * CONCURRENT < len(own) < count for so_many, own in zip(kills, on_disk, strict=True))
    for answered, number in zip(on_disk, arrived, strict=True):
        assert not answered & {asked.text for asked in server.asked[number:]}
    twice = Counter(server.answered) - Counter({str(number): 1 for number in range(count)})
    assert set(server.answered) == {str(number) for number in range(count)}
    assert twice.total() <= len(on_disk) * CONCURRENT
    failed = len(server.asked) - server.answered.total()
    assert failed > 0.07 * count
