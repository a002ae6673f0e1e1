import re

import pytest

from anchorlab.cli import output
from anchorlab.cli.output import progress
from anchorlab.engine import Status


class Clock:
    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(output.time, "monotonic", lambda: self.now)


def test_plain_lines_tell_accuracy_and_time_left(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with progress() as tell:
        tell(Status(100, 0, "starting 2 processes"))
        clock.now += 3
        tell(Status(100, 10, "first"))
        clock.now += 1
        tell(Status(100, 20, "first", metrics={"test accuracy": 0.25, "test loss": 3.0, "train accuracy": 0.5}))
        clock.now += 1  # too soon for the next line
        tell(Status(100, 30, "first", metrics={"test accuracy": 0.25}))
        clock.now += 10
        tell(Status(100, 40, "second", metrics={"test loss": 3.0}))
    out, err = capsys.readouterr()
    assert out == ""
    # ten of a hundred in the first second seen: eighty are left; then thirty in twelve seconds: sixty are left
    assert err.splitlines() == [
        "starting 2 processes",
        "first: 20%, 8 s left, accuracy train 0.5 test 0.25",
        "second: 40%, 24 s left, loss test 3",
    ]


def test_splits_of_several_words_keep_their_names(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with progress() as tell:
        tell(Status(100, 10, "pairs"))
        clock.now += 3
        tell(Status(100, 20, "pairs", metrics={"test on task accuracy": 0.5, "test on data accuracy": 0.25}))
    assert capsys.readouterr().err.splitlines()[-1].endswith(", accuracy test on data 0.25 test on task 0.5")


def test_what_an_earlier_process_did_says_nothing_of_the_time_left(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with progress() as tell:
        tell(Status(1000, 0, "starting 2 processes"))
        clock.now += 3
        tell(Status(1000, 300, before=300, label="resumed"))  # the first of two jobs
        tell(Status(1000, 600, before=600, label="resumed"))  # the second
        tell(Status(1000, 601, before=600, label="resumed"))  # too soon to judge by
        clock.now += 10
        tell(Status(1000, 620, before=600, label="resumed"))
    # two steps a second: 380 are left
    assert capsys.readouterr().err.splitlines() == ["starting 2 processes", "resumed: 62%, 190 s left"]


def test_what_takes_no_time_says_nothing(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with progress() as tell:
        for done in (25, 50, 75, 100):
            clock.now += 0.4
            tell(Status(100, done, "short"))
    assert capsys.readouterr() == ("", "")


def test_quiet(capsys):
    with progress(quiet=True) as tell:
        tell(Status(100, 0, "starting"))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("work", [True, False])
def test_a_terminal_gets_a_bar_where_there_is_work(monkeypatch, capsys, work):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    with progress() as tell:
        if work:
            tell(Status(100, 0, "starting 2 processes"))
            tell(Status(100, 100, "[label] " + "x" * 80, metrics={"test accuracy": 0.25}))
    out, err = capsys.readouterr()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", err)
    assert out == ""
    if work:
        last = shown.rstrip().splitlines()[-1]
        assert last.startswith("[label] xxx") and "100%" in last and last.endswith("accuracy test 0.25")
        assert len(last.rpartition("\r")[2]) <= 80
    else:
        assert shown == ""
