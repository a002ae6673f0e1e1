"""What long work shows of its progress: on a terminal, in a notebook, in a log."""

import re
import sys
from types import SimpleNamespace

import pytest

import anchorlab.progress
from anchorlab.progress import Status, counted, phased, reported, shown


class Clock:
    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(anchorlab.progress.time, "monotonic", lambda: self.now)


def test_plain_lines_tell_accuracy_and_time_left(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with shown(True) as tell:
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
        "first: 20%, 8 s left, accuracy train 0.5 test 0.25",
        "second: 40%, 24 s left, loss test 3",
    ]


def test_splits_of_several_words_keep_their_names(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with shown(True) as tell:
        tell(Status(100, 10, "pairs"))
        clock.now += 3
        tell(Status(100, 20, "pairs", metrics={"test on task accuracy": 0.5, "test on data accuracy": 0.25}))
    assert capsys.readouterr().err.splitlines()[-1].endswith(", accuracy test on data 0.25 test on task 0.5")


def test_what_an_earlier_process_did_says_nothing_of_the_time_left(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with shown(True) as tell:
        tell(Status(1000, 0, "starting 2 processes"))
        clock.now += 3
        tell(Status(1000, 300, before=300, label="resumed"))  # the first of two jobs
        tell(Status(1000, 600, before=600, label="resumed"))  # the second
        tell(Status(1000, 601, before=600, label="resumed"))  # too soon to judge by
        clock.now += 10
        tell(Status(1000, 620, before=600, label="resumed"))
    # two steps a second: 380 are left
    assert capsys.readouterr().err.splitlines() == ["resumed: 62%, 190 s left"]


def test_what_takes_no_time_says_nothing(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with shown(True) as tell:
        for done in (25, 50, 75, 100):
            clock.now += 0.4
            tell(Status(100, done, "short"))
    assert capsys.readouterr() == ("", "")


def on_terminal(monkeypatch):  # no fixture: before the test begins, the standard error is another one
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")


def on_screen(capsys):
    out, err = capsys.readouterr()
    assert out == ""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", err)


@pytest.mark.parametrize("asked", [True, None])
def test_a_terminal_gets_a_bar_after_two_seconds(monkeypatch, capsys, asked):
    on_terminal(monkeypatch)
    clock = Clock(monkeypatch)
    with shown(asked) as tell:
        tell(Status(100, 0, "starting 2 processes"))
        clock.now += 1.9
        tell(Status(100, 50, "soon"))
        assert on_screen(capsys) == ""
        clock.now += 0.2
        tell(Status(100, 100, "[label] " + "x" * 80, metrics={"test accuracy": 0.25}))
    last = on_screen(capsys).rstrip().splitlines()[-1]
    assert last.startswith("[label] xxx") and "100%" in last and last.endswith("accuracy test 0.25")
    assert len(last.rpartition("\r")[2]) <= 80


def test_a_terminal_gets_nothing_of_short_work(monkeypatch, capsys):
    on_terminal(monkeypatch)
    clock = Clock(monkeypatch)
    with shown() as tell:
        clock.now += 1
        tell(Status(100, 100, "short"))
    with shown(False) as tell:
        clock.now += 9
        tell(Status(100, 50, "quiet"))
    assert on_screen(capsys) == ""


def test_a_log_gets_lines_only_if_asked(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    for asked in (None, True):
        with shown(asked) as tell:
            for done in (1, 2, 3):
                clock.now += 3
                tell(Status(4, done, f"asked {asked}"))
    assert capsys.readouterr().err.splitlines() == ["asked True: 50%, 6 s left"]


def test_work_within_work_shows_nothing_of_its_own(monkeypatch, capsys):
    clock = Clock(monkeypatch)

    def tells(progress):
        with counted("inner", progress) as tell:
            for done in (1, 2):
                clock.now += 3
                tell(done, 3)

    heard = []
    for outer in (shown(True), shown(False), reported(heard.append)):
        with outer:
            tells(True)
            tells(lambda done, total: heard.append((done, total)))  # who is asked is told
    assert capsys.readouterr().err == ""
    assert heard == [(1, 3), (2, 3)] * 3
    tells(True)
    assert capsys.readouterr().err.splitlines() == ["inner: 67%, 3 s left"]


def test_each_phase_has_a_line_and_a_pace_of_its_own(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with phased(True) as tell:
        tell("each head alone", 0, 4)  # too soon
        clock.now += 3
        tell("each head alone", 1, 4)
        clock.now += 3
        tell("each head alone", 2, 4)  # one in three seconds, two are left
        tell("cutting paths", 0, 40)
        clock.now += 3
        tell("cutting paths", 10, 40)
        clock.now += 10
        tell("cutting paths", 20, 40)  # ten in ten seconds, whatever the first phase took
    said = ["each head alone: 50%, 6 s left", "cutting paths", "cutting paths: 50%, 20 s left"]
    assert capsys.readouterr().err.splitlines() == said


class Notebook:
    """An IPython with a kernel, which keeps what each display shows."""

    def __init__(self, monkeypatch, kernel=True):
        self.shown = []
        shell = SimpleNamespace(kernel=object()) if kernel else SimpleNamespace()
        module = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=self.display))
        monkeypatch.setitem(sys.modules, "IPython", module)

    def display(self, data, raw, display_id):
        self.shown.append([data])
        return SimpleNamespace(update=lambda data, raw: self.shown[-1].append(data))

    @property
    def texts(self):
        return [[data["text/plain"] for data in one] for one in self.shown]


def test_a_notebook_gets_one_line_that_is_replaced(monkeypatch, capsys):
    clock, notebook = Clock(monkeypatch), Notebook(monkeypatch)
    with shown() as tell:
        clock.now += 1
        tell(Status(100, 10, "<b>run</b>"))
        clock.now += 4
        tell(Status(100, 20, "<b>run</b>", metrics={"test accuracy": 0.25}))
        clock.now += 0.1  # too soon for another
        tell(Status(100, 21, "<b>run</b>"))
        clock.now += 2
        tell(Status(100, 100, "<b>run</b>", metrics={"test accuracy": 1.0}))
    # ten in four seconds, eighty are left; nothing is left at the end
    first, second = "20%, 32 s left, accuracy test 0.25", "100%, 0 s left, accuracy test 1"
    assert notebook.texts == [[f"<b>run</b>: {one}" for one in (first, second, "100% in 7 s, accuracy test 1")]]
    page = notebook.shown[0][0]["text/html"]
    assert '<progress value="20" max="100"' in page and "&lt;b&gt;run&lt;/b&gt;" in page and "<b>" not in page
    assert capsys.readouterr() == ("", "")


def test_a_notebook_gets_nothing_of_short_work(monkeypatch):
    clock, notebook = Clock(monkeypatch), Notebook(monkeypatch)
    with shown() as tell:
        clock.now += 1
        tell(Status(100, 100, "short"))
    with shown(False) as tell:
        clock.now += 9
        tell(Status(100, 50, "quiet"))
    assert notebook.shown == []


def test_the_prompt_of_ipython_is_a_terminal(monkeypatch, capsys):
    on_terminal(monkeypatch)
    clock, notebook = Clock(monkeypatch), Notebook(monkeypatch, kernel=False)
    with shown() as tell:
        clock.now += 3
        tell(Status(100, 50, "run"))
    assert notebook.shown == [] and "run" in on_screen(capsys)


def test_training_shows_itself_and_can_be_silent(monkeypatch, capsys, tmp_path):
    from anchorlab.engine import train
    from tests.small_experiments import DECODER, STREAM

    on_terminal(monkeypatch)
    monkeypatch.setattr(anchorlab.progress, "FIRST", 0.0)
    recipe = STREAM.replace(duration=3)
    train("anchor/identity", DECODER, recipe, store=tmp_path / "loud", workers=1)
    assert "anchor/identity" in capsys.readouterr().err
    train("anchor/identity", DECODER, recipe, store=tmp_path / "silent", workers=1, progress=False)
    assert capsys.readouterr().err == ""
    heard = []
    train("anchor/identity", DECODER, recipe, store=tmp_path / "heard", workers=1, report=heard.append)
    assert heard[-1].done == heard[-1].total and capsys.readouterr().err == ""
