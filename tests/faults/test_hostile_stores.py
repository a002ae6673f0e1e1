"""The judge of hostile stores passes a sound command, and notices each kind of harm."""

import os
import sys
import time

import pytest

from tests.faults import hostile_stores
from tests.faults.hostile_stores import judged
from tests.faults.roles import start
from tests.hostile.attacks import ATTACKS, Attack
from tests.hostile.store import COMMANDS, MORE_COMMANDS

pytestmark = [pytest.mark.killed, pytest.mark.slow, pytest.mark.nightly]


def _well(folder):
    print("all is well", file=sys.stderr)


def _reads(folder):
    (folder / "outside" / "secret").read_bytes()


def _lists(folder):
    list((folder / "outside" / "folder").iterdir())


def _writes(folder):
    (folder / "outside" / "secret").write_bytes(b"owned")


def _removes(folder):
    (folder / "outside" / "secret").unlink()


def _makes(folder):
    (folder / "owned").touch()


def _waits(folder):
    time.sleep(60)


def _computes(folder):
    while True:
        pass


def _takes_memory(folder):
    held = bytearray(2**28)
    held[:: 2**12] = b"1" * 2**16
    time.sleep(5)


def _fails(folder):
    raise ValueError("something")


def _says_two_lines(folder):
    print("anchorlab: one\nanchorlab: two", file=sys.stderr)
    sys.stderr.flush()
    os._exit(2)


def _lists_what_it_kept(folder):
    print("removed 0 runs\nkept: one\nkept: two")
    sys.stdout.flush()
    os._exit(2)


def _says_nothing(folder):
    os._exit(2)


def _says_escapes(folder):
    print("\x1b[2J")


def _says_much(folder):
    print("much" * 100_000)


HARM = {
    _well: None,
    _lists_what_it_kept: None,
    _reads: "outside/secret was read",
    _lists: "outside/folder was read",
    _writes: "outside/secret was written or removed",
    _removes: "outside/secret was written or removed",
    _makes: "owned was written or removed",
    _waits: "it has not ended after 4 s",
    _computes: "it has not ended after 1 s of the processor",
    _takes_memory: "it takes more than 64 MB",
    _fails: "a traceback",
    _says_two_lines: "2 lines of errors",
    _says_nothing: "0 lines of errors",
    _says_escapes: "signs that a terminal obeys: ['\\x1b']",
    _says_much: "400001 signs of output",
}


def _play(work, folder, seconds):
    hostile_stores._SECONDS = seconds
    hostile_stores.confined(folder / "here", lambda: work(folder) or 0)


@pytest.mark.parametrize("work", HARM, ids=lambda work: work.__name__)
def test_harm_is_noticed(tmp_path, monkeypatch, work):
    root = tmp_path / "store"
    for folder in (root, tmp_path / "here", tmp_path / "outside" / "folder"):
        folder.mkdir(parents=True)
    (tmp_path / "outside" / "secret").write_text("secret")
    (root / "own").write_text("may be read")
    monkeypatch.setattr(hostile_stores, "_PATIENCE", 4.0 if work is _waits else 60.0)
    monkeypatch.setattr(hostile_stores, "_SECONDS", 1 if work is _computes else 10)
    monkeypatch.setattr(hostile_stores, "_MEMORY", 2**26 if work is _takes_memory else 2**30)
    found = judged(tmp_path, root, lambda: start(_play, work, tmp_path, hostile_stores._SECONDS))
    expected = HARM[work]
    assert found == [] if expected is None else expected in found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return hostile_stores._prepared(tmp_path_factory.mktemp("prepared") / "store")


@pytest.mark.parametrize("command", (*COMMANDS, *MORE_COMMANDS), ids=" ".join)
def test_a_store_without_an_attack_is_opened(prepared, tmp_path, monkeypatch, command):
    monkeypatch.setattr(hostile_stores, "_pairs", lambda seed: [("none", command)])
    monkeypatch.setitem(ATTACKS, "none", Attack(lambda root, outside: None))
    monkeypatch.setattr(hostile_stores, "_prepared", lambda root: prepared)
    assert hostile_stores.case(0, 0, prepared, tmp_path / "case").cost == []
