"""A store from somebody else is data: what is odd in it is named in one line, and nothing in it is run or obeyed."""

import json
import os
import re

import pytest

from anchorlab.cli import main
from anchorlab.runs import Store
from anchorlab.runs.atomic_files import fingerprint, read_json, write_json
from tests.runs.tiny_trainer import train

DEEP = "[" * 100 + "]" * 100


def resealed(run, name, **fields):
    """Change fields of a JSON file, and make its checksum and the manifest fit, as a stranger can."""
    write_json(run.path, name, {**read_json(run.path / name, ""), **fields})
    if name != "manifest.json":
        size, digest = fingerprint(run.path / name)
        files = read_json(run.manifest_path, "")["files"] | {name: {"size": size, "sha256": digest}}
        write_json(run.path, "manifest.json", {**read_json(run.manifest_path, ""), "files": files})


def instead(path, make):
    path.unlink()
    make(path)


def listing(name):
    def change(run):
        files = read_json(run.manifest_path, "")["files"]
        resealed(run, "manifest.json", files=files | {name: {"size": 1, "sha256": "0" * 64}})

    return change


CHANGES = {
    "a file above": (listing("../../secret"), "no file of a run"),
    "an absolute file": (listing("/etc/passwd"), "no file of a run"),
    "no files": (lambda run: resealed(run, "manifest.json", files=3), "lists no files"),
    "a nested field": (lambda run: resealed(run, "spec.json", spec={"model": json.loads(DEEP)}), "nested"),
    "another kind": (lambda run: resealed(run, "spec.json", spec=[1]), "another version"),
    "a huge file": (lambda run: os.truncate(run.spec_path, 2**32), "larger than"),
    "a link": (lambda run: instead(run.metrics_path, lambda path: path.symlink_to("/etc/hostname")), "is a link"),
    "a device": (lambda run: instead(run.spec_path, lambda path: path.symlink_to("/dev/zero")), "is a link"),
    "a pipe": (lambda run: instead(run.manifest_path, os.mkfifo), "is neither a file nor a folder"),
    "no table": (lambda run: run.metrics_path.write_bytes(b"PAR1" * 9), "damaged"),
    "no tensors": (lambda run: (run.path / "checkpoints/step-00000006.safetensors").write_bytes(b"\0" * 9), "damaged"),
    "half a sign": (lambda run: resealed(run, "spec.json", label="\ud800"), "a sign that JSON does not have"),
    "no number": (lambda run: resealed(run, "spec.json", spec={"rate": float("nan")}), "holds a number"),
    "escapes": (lambda run: resealed(run, "spec.json", label="\x1b]0;owned\x07\x1b[2J"), ""),
}


COMMANDS = (["runs", "check"], ["runs"], ["runs", "export"], ["claims"], ["browse"])


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_odd_is_named_in_one_line(tmp_path, store, cell, capsys, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    change, told = CHANGES[name]
    change(train(store, cell))
    for words in (*COMMANDS, ["runs", "show", cell.address]):
        code = main([*words, "--store", str(store.root)])
        said = capsys.readouterr()
        assert code in (0, 2) and len(said.err.splitlines()) <= 1, f"{words}: {said.err}"
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", said.out + said.err), "a sign that a terminal obeys"
        if words == ["runs", "check"]:
            assert code == (2 if told else 0) and told in said.err


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.write_text(DEEP)]
)
def test_odd_findings_are_named_in_one_line(store, capsys, make):
    path = store.root / "studies" / "own" / "quick" / "findings.json"
    path.parent.mkdir(parents=True)
    make(path)
    assert main(["claims", "--store", str(store.root)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"anchorlab: {path}: ") and len(said.splitlines()) == 1


def test_what_is_left_of_a_removed_run_is_cleared_without_following_links(tmp_path, store, cell):
    train(store, cell)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").touch()
    (store.root / ".removed-0123").symlink_to(tmp_path / "outside")
    Store(store.root).remove(cell.address)
    assert [path.name for path in store.root.iterdir()] == ["lock"] and (tmp_path / "outside" / "secret").exists()
