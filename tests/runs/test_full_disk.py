"""A disk without a byte left: an error of one line at once, and nothing that was kept is lost."""

import errno
import os

import pytest
import torch

from anchorlab.errors import StoreError
from anchorlab.runs import atomic_files


def test_a_chunk_whose_state_cannot_be_written_keeps_the_one_before(store, cell, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with store.open(cell) as run:
        run.plan([[0]])
        with run.chunk(0) as chunk, monkeypatch.context() as while_full:
            chunk.write_state(1, {"w": torch.ones(1)})
            while_full.setattr(atomic_files.os, "fsync", refuse)
            with pytest.raises(StoreError, match=r"step-00000002\.safetensors: cannot be written: No space left on"):
                chunk.write_state(2, {"w": torch.zeros(1)})
        with run.chunk(0) as chunk:
            state = chunk.latest_state()
            assert state is not None and state.step == 1
            assert not list(run.path.rglob(".*.tmp"))
