"""A store that this user may not read or write, or whose disk is full: errors of one line, and nothing else is lost."""

import errno
import os
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from anchorlab.errors import StoreError
from anchorlab.runs import Cell, Index, Store, atomic_files
from tests.runs.tiny_trainer import contents, train

NOBODY = 65534


@pytest.fixture
def store(tmp_path_factory):
    """A store in a folder that other users may reach."""
    root = tmp_path_factory.mktemp("shared")
    base = tmp_path_factory.getbasetemp()
    for folder in (root, base, *base.parents[:2]):  # those of pytest, with a folder more for each of its workers
        if folder.owner() == Path.home().owner() and folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(folder.stat().st_mode | 0o755)
    root.chmod(0o777)
    return Store(root / "store")


@contextmanager
def nobody():
    """As a user without rights; as this user where that is not root."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_permission_lost_while_a_run_is_written_is_the_error_that_is_told(store, cell):
    with nobody():
        with pytest.raises(StoreError, match="cannot be written: Permission denied") as caught, store.open(cell) as run:
            run.plan([[0]])
            with run.chunk(0) as chunk:
                chunk.write_state(1, {"w": torch.ones(1)})
                for folder in (run.path, *run.path.rglob("*/")):
                    folder.chmod(0o555)
                chunk.write_state(2, {"w": torch.ones(1)})
        assert "{" not in str(caught.value) and "\n" not in str(caught.value)
        for folder in (run.path, *run.path.rglob("*/")):
            folder.chmod(0o755)
        with store.open(cell) as run, run.chunk(0) as chunk:
            assert chunk.latest_state().step == 1


def test_one_run_that_cannot_be_read_hides_no_other(store, cell):
    with nobody():
        train(store, cell)
        other = train(store, Cell({"members": [7, 8, 9]}, label="other"))
        other.path.chmod(0o000)
        try:
            problems = {run.address: run.problems() for run in store.runs()}
            assert problems[cell.address] == []
            assert ["cannot be read: Permission denied; allow this user" in one for one in problems[other.address]] == [
                True
            ]
            for run in store.runs():
                assert run.size >= 0 and run.modified > 0
        finally:
            other.path.chmod(0o755)


def test_a_user_who_can_write_neither_the_store_nor_a_cache_sees_a_list_of_today(store, cell, tmp_path, monkeypatch):
    train(store, cell)
    monkeypatch.setenv("ANCHORLAB_CACHE", str(tmp_path / "closed"))
    assert [one.address for one in Index(store.root).entries()] == [cell.address]
    later = train(store, Cell({"members": [7, 8, 9]}, label="later"))
    before = contents(tmp_path)
    folders = [tmp_path / "closed" / "index", store.root]
    for folder in folders:
        folder.chmod(0o555)
    try:
        with nobody():
            assert {one.address for one in Index(store.root).entries()} == {cell.address, later.address}
        assert contents(tmp_path) == before
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_a_run_of_another_version_is_named(store, cell):
    from anchorlab.runs.atomic_files import write_json

    path = store.root / cell.address
    path.mkdir(parents=True)
    write_json(path, "spec.json", {"address": cell.address})
    (problem,) = store.find(cell.address).problems()
    assert problem.startswith(f"{path}/spec.json: written by another version of anchorlab")


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
