"""A disk without a byte left: an error of one line at once, and no lock or claim that stays."""

import errno
import os

import pytest
import torch

from anchorlab.errors import StoreError
from anchorlab.runs import atomic_files
from anchorlab.runs.lock import Lock


@pytest.fixture
def full(monkeypatch):
    """Lets no content be written from now on; folders and names still can be made."""

    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def begin():
        monkeypatch.setattr(atomic_files.os, "fsync", refuse)
        monkeypatch.setattr("os.pwrite", refuse)

    return begin


@pytest.mark.parametrize("begun", [False, True])
def test_a_chunk_that_cannot_be_claimed_is_an_error_at_once(store, cell, full, monkeypatch, begun):
    with store.open(cell) as run:
        run.plan([[0]])
        if begun:
            with run.chunk(0) as chunk:
                chunk.write_state(1, {"w": torch.ones(1)})
        with monkeypatch.context() as while_full:
            while_full.setattr("time.sleep", lambda seconds: pytest.fail("it tries again"))
            full()
            with pytest.raises(StoreError, match=r"claim\.json: cannot be written: No space left on device$"):
                run.chunk(0).__enter__()
        monkeypatch.undo()
        with run.chunk(0) as chunk:
            assert (chunk.latest_state() is not None) == begun


def test_a_lock_is_held_whose_owner_cannot_be_written(tmp_path, full):
    full()
    lock, other = (Lock(tmp_path / "lock") for _ in range(2))
    lock.acquire()
    assert lock.held
    with pytest.raises(StoreError, match="in use by another process"):
        other.acquire()
    lock.release()
    other.acquire()
