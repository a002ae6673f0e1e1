"""Text of others on a terminal: what is seen stays as it is, and what is not seen is written out."""

import io
import os
import pty
import select
import unicodedata

import pytest

from anchorlab import progress
from anchorlab.cli import main
from anchorlab.cli.terminal.output import print_json, print_table, print_text, waiting
from anchorlab.printable import printable
from anchorlab.runs import Cell, Store, metrics_frame

SEEN = [
    "plain", "naïve 日本 ✓ ∂ ‖x‖", "می\u200cخواهم", "👩\u200d🔬", "a\u00a0b", "[red]x[/red]", ":smile:",
    "\\x1b[31m", "",
]  # fmt: skip
UNSEEN = {
    "\x1b[31m": "\\x1b[31m", "\x9b2J": "\\x9b2J", "a\x00b\x07\x08\x7f": "a\\x00b\\x07\\x08\\x7f",
    "one\rtwo": "one\\rtwo", "\u202egnp.exe\u2066": "\\u202egnp.exe\\u2066",
    "a\u2028b\u2029c\x85": "a\\u2028b\\u2029c\\x85", "\u200b\u200e\ufeff\u061c": "\\u200b\\u200e\\ufeff\\u061c",
    "\U000e0041": "\\U000e0041", "\udc80": "\\udc80",
}  # fmt: skip
EVIL = "".join(UNSEEN) + "[red]red[/red] [link=http://evil.example]here[/link] :smile:"


@pytest.mark.parametrize(("text", "shown"), [*((text, text) for text in SEEN), *UNSEEN.items()])
def test_what_is_seen_stays_and_what_is_not_seen_is_written_out(text, shown):
    assert printable(text) == shown


def test_ends_of_lines_stay_where_there_may_be_some():
    assert printable("a\n\tb\x1b", lines=True) == "a\n\tb\\x1b"
    assert printable("a\n\tb") == "a\\n\\tb"


def acts(text, but="\n"):
    """The signs of a text that a terminal would act upon."""
    return {one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp", "Cs")} - set(but)


def test_what_commands_print_is_seen(capsys):
    print_text(EVIL)
    print_table(["label", EVIL], [[EVIL, 1], ["b\x1b[2J", 2]], title=EVIL)
    print_json({EVIL.replace("\udc80", ""): EVIL})
    with waiting(EVIL):
        pass
    said = capsys.readouterr().out
    assert acts(said, but="\n\x7f") == set()
    assert "[red]red[/red]" in "".join(said.split()) or "[red]red[/red]" in said
    assert ":smile:" in said and "[link=http://evil.example]here[/link]" in said.replace("\n", "")


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Store(tmp_path / "runs")
    evil = EVIL.replace("\udc80", "")
    for seed in range(2):
        spec = {"model": {evil: seed, "kind": f"{evil}{seed}"}, "members": {"seeds": [seed]}, "format": 1}
        with made.open(Cell(spec, label=evil)) as run:
            run.finish(metrics_frame([(0, seed, 1, evil, evil, evil, evil, 0.5)]), checkpoints=())
    return made


@pytest.mark.parametrize("command", [["list"], ["show", "RUN"], ["diff", "RUN", "OTHER"], ["check"], ["remove", "RUN"]])
def test_labels_and_fields_of_a_store_are_seen(store, capsys, command, monkeypatch):
    addresses = [run.address for run in store.runs()]
    monkeypatch.setattr("builtins.input", lambda question: print(question) or "n")
    main(["runs", *({"RUN": addresses[0], "OTHER": addresses[1]}.get(word, word) for word in command)])
    said = capsys.readouterr()
    assert acts(said.out) == acts(said.err) == set()
    assert said.out + said.err != ""


def test_an_error_is_one_line_that_is_seen(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["show", EVIL.replace("\0", "") + ".toml"]) == 2
    assert main(["runs", "show", EVIL.replace("\0", "")]) == 2
    assert main(["tasks", EVIL]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 3 and acts(said) == set()


def written(terminal):
    """Return what was written to a terminal so far; one read may return only a part."""
    said = b""
    while select.select([terminal], [], [], 0.5)[0]:
        said += os.read(terminal, 1 << 16)
    return said.decode()


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_of_a_strange_task_is_seen(monkeypatch, terminal):
    monkeypatch.setattr(progress, "FIRST", 0.0)
    ours, theirs = pty.openpty()
    stream = os.fdopen(theirs, "w") if terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    evil = EVIL.replace("\udc80", "")
    with progress.shown(progress=True) as show:
        for done in (0, 1, 2):
            show(progress.Status(4, done, evil, metrics={f"{evil} accuracy": 0.5}))
        show(progress.Status(4, 2, evil, note=evil))
    stream.flush()
    said = written(ours) if terminal else stream.getvalue()
    assert "\x1b[31m" not in said and "\x07" not in said and "\u202e" not in said and "\\u202e" in said


def test_completion_offers_labels_in_one_line(store):
    from anchorlab.cli.options.complete import _label

    for run in store.runs():
        assert acts(_label(store.root / run.address), but="") == set()
