"""The file of answers: torn, damaged, shared."""

import json
import os

import pytest

from anchorlab.errors import StoreError
from anchorlab.language.endpoint import Pace
from anchorlab.language.endpoint import journal as journals
from tests.language.endpoint.kit import endpoint, lines, question
from tests.language.endpoint.scripted import said, served

QUESTIONS = [question(number) for number in range(6)]


@pytest.fixture
def server():
    with served() as server:
        yield server


@pytest.fixture
def kept(server, journal):
    """The bytes of a journal with an answer to each question."""
    endpoint(server, journal).say(QUESTIONS)
    server.asked.clear()
    server.answered.clear()
    return journal.read_bytes()


@pytest.mark.parametrize("lost", [1, 2, 100, "all but a byte", "garbage", "zeros"])
def test_a_torn_last_line_is_asked_again_and_written_anew(server, journal, kept, lost):
    before, last = kept[: kept.rstrip(b"\n").rfind(b"\n") + 1], kept.rstrip(b"\n").rsplit(b"\n", 1)[1] + b"\n"
    torn = {"all but a byte": last[:1], "garbage": b"\xff{\n", "zeros": bytes(50)}.get(lost) or last[:-lost]
    journal.write_bytes(before + torn)
    came = endpoint(server, journal).say(QUESTIONS)
    assert [each.text for each in came] == [said(str(number)) for number in range(6)]
    (asked,) = server.asked
    assert asked.text == json.loads(last)["request"]["turns"][0]["text"]
    assert journal.read_bytes().startswith(before)
    assert len(lines(journal)) == 6


def test_an_answer_is_on_the_disk_before_it_is_used(server, journal, monkeypatch):
    synced, used = [], []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    endpoint(server, journal, pace=Pace(concurrent=1)).say(
        QUESTIONS, lambda done, total: used.append((synced[-1], journal.stat().st_size))
    )
    assert [on_disk for on_disk, _ in used] == [written for _, written in used]
    assert used[-1][1] == journal.stat().st_size and len(set(used)) == len(QUESTIONS)


@pytest.mark.parametrize("end", [b"garbage\nmore\n", b"garbage\n{torn", b"\n\n"])
def test_two_bad_lines_at_the_end_are_no_torn_one(server, journal, kept, end):
    journal.write_bytes(kept + end)
    with pytest.raises(StoreError, match=r"answers.jsonl: line 7 is damaged; remove the line, or the file"):
        endpoint(server, journal).say(QUESTIONS)
    assert journal.read_bytes() == kept + end and server.asked == []


@pytest.mark.parametrize(
    "damage",
    [
        b"{}\n",
        b"garbage\n",
        b"[1]\n",
        b'{"format": 1, "key": "a", "answer": {"x": 1}}\n',
        b'{"format": 1, "key": "a", "answer": {"text": 7}}\n',
        b'{"format": 1, "key": "a", "answer": {"text": "b", "finish": ["stop"]}}\n',
        b'{"format": 1, "key": "a", "answer": {"text": "b", "written": "5"}}\n',
        b'{"format": 1, "key": "a", "answer": {"text": "b", "read": -5}}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_damaged_line_is_named_and_nothing_is_lost(server, journal, kept, damage):
    parts = kept.splitlines(keepends=True)
    journal.write_bytes(b"".join([*parts[:2], damage, *parts[2:]]))
    with pytest.raises(StoreError, match=r"answers.jsonl: line 3 .*is damaged; remove the line, or the file"):
        endpoint(server, journal).say(QUESTIONS)
    assert journal.read_bytes() == b"".join([*parts[:2], damage, *parts[2:]])
    journal.write_bytes(kept)
    endpoint(server, journal).say(QUESTIONS)  # the lock was let go
    assert server.asked == []


def test_another_version_s_file_is_left_alone(server, journal, kept):
    journal.write_bytes(kept.replace(b'"format": 1', b'"format": 2'))
    with pytest.raises(StoreError, match="written by another version of anchorlab"):
        endpoint(server, journal).say(QUESTIONS)
    assert journal.read_bytes() == kept.replace(b'"format": 1', b'"format": 2')


def test_two_endpoints_share_a_file(server, journal):
    one, two = endpoint(server, journal), endpoint(server, journal)
    one.say(QUESTIONS[:2])
    two.say(QUESTIONS[:4])
    one.say(QUESTIONS)
    assert two.say(QUESTIONS) == one.say(QUESTIONS)
    assert server.answered == {str(number): 1 for number in range(6)}
    assert len(lines(journal)) == 6


def test_a_file_that_was_removed_is_begun_anew(server, journal):
    speaker = endpoint(server, journal)
    speaker.say(QUESTIONS)
    journal.unlink()
    speaker.say(QUESTIONS[:2])
    assert len(lines(journal)) == 2


def test_a_place_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        endpoint(server, tmp_path / "file" / "answers.jsonl").say(QUESTIONS)
    assert server.asked == []


PLANTED = {
    "a link": lambda journal, outside: journal.symlink_to(outside),
    "a second name": lambda journal, outside: journal.hardlink_to(outside),
    "a pipe": lambda journal, outside: os.mkfifo(journal),
    "a linked folder": lambda journal, outside: journal.parent.rmdir() or journal.parent.symlink_to(outside.parent),
}
TOLD = {
    "a link": "answers.jsonl: is a link, which a store may not hold",
    "a second name": "answers.jsonl: has a second name",
    "a pipe": "answers.jsonl: is neither a file nor a folder",
    "a linked folder": "kept: is a link, which a store may not hold",
}


@pytest.mark.parametrize("case", PLANTED)
@pytest.mark.parametrize("content", ["a token, on a line without an end", "a token\n"])
def test_a_file_outside_the_store_is_neither_cut_nor_written(server, journal, tmp_path, case, content):
    outside = tmp_path / "outside" / "answers.jsonl"
    for folder in (outside.parent, journal.parent):
        folder.mkdir()
    outside.write_text(content)
    PLANTED[case](journal, outside)
    with pytest.raises(StoreError, match=TOLD[case]):
        endpoint(server, journal).say(QUESTIONS)
    assert outside.read_text() == content and list(outside.parent.iterdir()) == [outside] and server.asked == []


def test_a_file_that_became_a_pipe_after_the_check_keeps_nobody_waiting(server, journal, monkeypatch):
    journal.parent.mkdir()
    os.mkfifo(journal)
    monkeypatch.setattr(journals, "check_way", lambda path, root: None)
    with pytest.raises(StoreError, match=r"answers.jsonl: is not a regular file; delete it"):
        endpoint(server, journal).say(QUESTIONS)


def test_a_file_without_end_is_not_read(server, journal, kept, monkeypatch):
    monkeypatch.setattr(journals, "_MOST_BYTES", len(kept) - 1)
    with pytest.raises(StoreError, match=rf"answers.jsonl: is larger than {len(kept) - 1} bytes; give another file"):
        endpoint(server, journal).say(QUESTIONS)
    monkeypatch.setattr(journals, "_MOST_BYTES", len(kept))
    endpoint(server, journal).say(QUESTIONS)
    assert journal.read_bytes() == kept and server.asked == []
