import hashlib
import json
import math
import os
import random
import shutil
from pathlib import Path

import polars as pl
import pytest
import safetensors.torch
import torch

from anchorlab.errors import StoreError
from anchorlab.runs import Store, metrics_frame, metrics_schema
from anchorlab.runs.atomic_files import check_named_file
from anchorlab.runs.metrics import metrics_bytes
from anchorlab.runs.tensor_file import read_tensors
from tests.runs.tiny_trainer import FINISHED, STEPS, contents, train


class Killed(BaseException):
    """Stands for the end of the process, which no handler of errors may stop."""


def test_a_finished_run_holds_what_was_handed_over_and_nothing_else(store, cell):
    run = train(store, cell)
    assert contents(run.path).keys() == FINISHED
    assert {path.name for path in store.root.iterdir()} == {cell.address, "lock"}
    assert run.finished and cell in store
    assert run.checkpoints() == [2, 4, 6]
    harmonic = sum(1 / step for step in range(1, STEPS + 1))
    expected = torch.tensor([3 + harmonic, 1 + harmonic, 4 + harmonic], dtype=torch.float64)
    torch.testing.assert_close(run.read_checkpoint(6)["weight"], expected)
    last = run.metrics().filter(pl.col("step") == STEPS)
    assert last["member"].to_list() == [0, 1, 2] and last["seed"].to_list() == [3, 1, 4]
    assert last["value"].to_list() == pytest.approx(expected.tolist())
    assert run.metrics().schema == metrics_schema()
    assert (run.spec, run.label) == (cell.spec, "tiny one")
    assert run.environments[0]["python"].startswith("3.")
    assert run.problems() == []


def test_other_programs_can_read_and_check_the_files(store, cell):
    run = train(store, cell)
    assert safetensors.torch.load_file(run.path / "checkpoints/step-00000002.safetensors")["weight"].shape == (3,)
    assert json.loads((run.path / "spec.json").read_text())["spec"] == cell.spec
    files = json.loads((run.path / "manifest.json").read_text())["files"]
    assert files.keys() == FINISHED - {"manifest.json"}
    for name, entry in files.items():
        content = (run.path / name).read_bytes()
        assert entry == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_opening_a_finished_run_changes_nothing_and_writing_it_is_refused(store, cell):
    before = contents(train(store, cell).path)
    with store.open(cell) as first, store.open(cell) as second:
        assert first.finished and second.finished
        with pytest.raises(StoreError, match="finished, cannot be written"):
            first.finish(metrics_frame([]), checkpoints=())
    assert contents(first.path) == before


def test_nothing_is_written_before_a_run_is_opened(store, cell):
    run = store.open(cell)
    assert not run.finished and cell not in store
    with pytest.raises(RuntimeError, match="not open"):
        run.plan([])
    assert not store.root.exists()


@pytest.mark.parametrize("survived", range(56))
def test_a_kill_after_any_write_is_resumed_to_the_same_bytes(tmp_path, cell, monkeypatch, survived):
    """Dies at the n-th renaming of a file, before it or after it, for every n."""
    expected = contents(train(Store(tmp_path / "whole"), cell).path)
    store = Store(tmp_path / "killed")
    path_type = type(tmp_path)
    rename, left = path_type.replace, [survived // 2]

    def dying_rename(self, target):
        left[0] -= 1
        if left[0] < 0 and survived % 2:
            rename(self, target)
        if left[0] < 0:
            # A kill leaves its temporary file; an exception would remove it.
            (target.parent / ".0123456789abcdef.tmp").write_bytes(b"half")
            raise Killed
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(path_type, "replace", dying_rename)
        try:
            train(store, cell)
        except Killed:
            assert cell not in store or survived % 2
    assert contents(train(store, cell).path) == expected


def test_the_plan_of_the_first_time_is_kept(store, cell):
    with store.open(cell) as run:
        assert run.plan([[0], [1, 2]]) == [[0], [1, 2]]
    with store.open(cell) as run:
        assert run.plan([[0, 1, 2]]) == [[0], [1, 2]]


def test_a_state_comes_back_exactly(store, cell):
    tensors = {"a": torch.rand(2, 3).bfloat16(), "step": torch.tensor(7), "b": torch.tensor([math.nan, -0.0])}
    metadata = {"rows": [[0, 1, 0.1, math.nan]], "é": None}
    with store.open(cell) as run, run.chunk(3) as chunk:
        assert chunk.latest_state() is None
        chunk.write_state(10, {"old": torch.ones(1)})
        chunk.write_state(20, tensors, metadata)
        state = chunk.latest_state()
        assert len(list(run.path.rglob("chunk-0003.*/*.safetensors"))) == 1
    assert state.step == 20 and state.tensors.keys() == tensors.keys()
    for name, value in tensors.items():
        assert torch.equal(state.tensors[name].view(-1).view(torch.uint8), value.view(-1).view(torch.uint8))
    assert repr(state.metadata) == repr(metadata)


def test_checkpoints_after_the_last_state_are_removed_when_resumed(store, cell):
    one, two = {"w": torch.ones(1)}, {"w": torch.full((1,), 2.0)}
    with store.open(cell) as run:
        with run.chunk(0) as chunk:
            chunk.write_checkpoint(1, one)
            chunk.write_state(1, one)
            chunk.write_checkpoint(2, one)
        with run.chunk(0) as chunk:
            assert chunk.latest_state().step == 1
            assert list(chunk.checkpoints()) == [1]
            chunk.write_checkpoint(2, two)
            assert list(chunk.checkpoints()) == [1, 2]
            assert read_tensors(check_named_file(chunk.checkpoints()[2]))["w"].item() == 2.0


def test_a_chunk_that_is_not_open_cannot_be_written(store, cell):
    with store.open(cell) as run:
        chunk = run.chunk(0)
        for write in (chunk.write_state, chunk.write_checkpoint):
            with pytest.raises(RuntimeError, match="not open"):
                write(1, {})
        with pytest.raises(StoreError, match="chunk-0000: not finished"):
            chunk.result()


def test_a_finished_chunk_keeps_its_checkpoints_and_has_no_state(store, cell):
    with store.open(cell) as run, run.chunk(0) as chunk:
        chunk.write_checkpoint(1, {"w": torch.ones(1)})
        chunk.write_state(1, {"w": torch.ones(1)})
        chunk.finish({"rows": []})
        with pytest.raises(StoreError, match="finished"):
            chunk.latest_state()
        assert chunk.finished and chunk.result() == {"rows": []} and list(chunk.checkpoints()) == [1]
        assert not list(chunk.path.glob("step-*"))


LOOKS = {
    "finished": lambda store, cell: store.open(cell).chunk(0).finished,
    "checkpoints": lambda store, cell: store.open(cell).chunk(0).checkpoints(),
    "size": lambda store, cell: store.find(cell.address).size,
    "problems": lambda store, cell: store.find(cell.address).problems(),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("folder", ["chunk-0000.", "checkpoints", "state"])
def test_folders_that_go_while_they_are_looked_at_are_empty(store, cell, tmp_path, monkeypatch, folder, look):
    """The process that merges a run removes its states, and one that takes a chunk renames its folder."""
    with store.open(cell) as run:
        run.plan([[0]])
        with run.chunk(0) as chunk:
            chunk.write_checkpoint(1, {"weight": torch.ones(1)})
            chunk.write_state(1, {"weight": torch.ones(1)})
    scan, gone = os.scandir, tmp_path / "gone"

    def late(path):
        if Path(path).name.startswith(folder) and not gone.exists():
            Path(path).rename(gone)
        return scan(path)

    monkeypatch.setattr("os.scandir", late)
    found = LOOKS[look](store, cell)
    assert not found or (look == "size" and found < 5000) or (look == "checkpoints" and folder == "state")


def test_a_finished_chunk_keeps_its_folder_for_those_who_read_it(store, cell):
    """A merge may be reading its files."""
    with store.open(cell) as run:
        run.plan([[0]])
        with run.chunk(0) as chunk:
            chunk.write_checkpoint(1, {"weight": torch.ones(1)})
            chunk.finish("rows")
        before = contents(run.state_path)
        with run.chunk(0) as late:
            assert late.finished
            with pytest.raises(RuntimeError, match="not open for writing"):
                late.write_state(2, {})
            assert contents(run.state_path) == before


def test_a_process_that_was_thought_to_be_dead_can_no_longer_write(store, cell):
    """On another processor its last bits could differ from those of its successor."""
    with store.open(cell) as run:
        run.plan([[0]])
        first, second = run.chunk(0), run.chunk(0)
        with first:
            first.write_state(1, {"weight": torch.ones(1)})
            with second:
                assert len(list(run.state_path.glob("chunk-*"))) == 1
                for write in (first.write_state, first.write_checkpoint):
                    with pytest.raises(StoreError, match=r"chunk-0000\..*cannot be written: No such file"):
                        write(2, {"weight": torch.zeros(1)})
                assert second.latest_state().tensors["weight"].item() == 1
                second.write_state(2, {"weight": torch.ones(1)})
                assert second.latest_state().step == 2


def merged_but_not_finished(store, cell):
    """A run whose merge was killed when all checkpoints were written."""
    run = Store(store.root).open(cell)
    run.finish = lambda metrics, checkpoints: (_ for _ in ()).throw(Killed)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(store, "open", lambda cell: run)
        train(store, cell)
    return run


def test_an_interrupted_merge_is_done_again_as_a_whole(store, cell):
    expected = contents(train(Store(store.root.parent / "whole"), cell).path)
    run = merged_but_not_finished(store, cell)
    (run.path / "checkpoints/step-00000099.safetensors").write_bytes(b"of a trainer with another opinion")
    assert contents(train(store, cell).path) == expected


@pytest.mark.parametrize("last", [1.0, 2.0])
def test_of_two_files_that_a_kill_has_left_the_one_written_last_counts(store, cell, last):
    """It came between the writing of one and the removal of the other."""
    with store.open(cell) as run, run.chunk(0) as chunk:
        kept = {}
        for step, value in ((9, 3.0 - last), (10, last)):
            chunk.write_state(step, {"w": torch.tensor([value])})
            for path in run.path.rglob("step-*.safetensors"):
                kept.setdefault(path, (path.read_bytes(), step))
        for path, (content, written) in kept.items():
            path.write_bytes(content)
            os.utime(path, (written, written))
        assert len(kept) == 2
        assert chunk.latest_state().step == 10


@pytest.mark.parametrize(("module", "function"), [(shutil, "rmtree"), (os, "unlink")])
def test_what_a_kill_amid_the_clearing_leaves_is_cleared_later(store, cell, monkeypatch, module, function):
    expected = contents(train(Store(store.root.parent / "whole"), cell).path)
    remove = getattr(module, function)

    def killed(path, *rest, **named):
        if Path(path).name in ("lock", "state"):
            raise Killed
        return remove(path, *rest, **named)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(module, function, killed)
        train(store, cell)
    assert store.find(cell.address).finished
    assert contents(train(store, cell).path) == expected


def test_a_run_resumed_in_another_environment_says_so(store, cell, monkeypatch):
    with store.open(cell) as run:
        ours = run.environments
    theirs = {**ours[0], "torch": "0.0"}
    monkeypatch.setattr("anchorlab.runs.run_directory.environment", lambda: theirs)
    train(store, cell)
    assert store.find(cell.address).environments == [*ours, theirs]
    assert store.find(cell.address).problems() == []


ROWS = [(m, 9 - m, step, split, "", "", "loss", m / 7) for m in range(3) for step in range(4) for split in ("b", "a")]


def test_the_table_of_metrics_has_the_same_bytes_in_any_order():
    expected = metrics_bytes(metrics_frame(ROWS))
    for seed in range(5):
        rows = random.Random(seed).sample(ROWS, len(ROWS))
        parts = [metrics_frame(rows[:seed]), metrics_frame(rows[seed:])]
        assert metrics_bytes(pl.concat(parts, rechunk=False)) == expected


def test_a_table_of_another_form_is_refused(store, cell):
    with store.open(cell) as run:
        for frame in (metrics_frame(ROWS).drop("edit"), metrics_frame(ROWS).cast({"value": pl.Float32})):
            with pytest.raises(ValueError, match="columns"):
                run.finish(frame, checkpoints=())
        with pytest.raises(ValueError, match="same key"):
            run.finish(metrics_frame([*ROWS, ROWS[0]]), checkpoints=())
        assert not run.finished
