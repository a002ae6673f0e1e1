"""Texts as names of files and folders, and a disk without a byte left."""

import errno
import os
from pathlib import Path

import pytest
import torch

from anchorlab.errors import StoreError
from anchorlab.runs import atomic_files
from anchorlab.runs.atomic_files import file_name


def test_signs_that_no_name_may_have(tmp_path):
    assert file_name("quick@gpt2") == "quick@gpt2"
    assert file_name("a/b") == "a%2Fb"
    for text in ("..", "../x", "http://h:80/v1#a", 'a\\b:*?"<>|', "é" * 300, "x" * 1000):
        assert Path(file_name(f"quick@{text}")).name == file_name(f"quick@{text}")
        (tmp_path / file_name(f"quick@{text}")).mkdir()


def test_long_texts_have_names_of_their_own():
    texts = [f"{'a' * 300}{middle}{'b' * 300}" for middle in "xyz"]
    names = {file_name(text) for text in texts}
    assert len(names) == 3
    assert all(name.startswith("aaa") and name.endswith("bbb") and len(name) <= 200 for name in names)


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
