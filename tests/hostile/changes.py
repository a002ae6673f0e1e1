"""Changes of a prepared store whose checksums fit afterwards: what a stranger who knows the format can do."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

from anchorlab.runs.atomic_files import fingerprint, read_json, write_json
from tests.hostile.store import BEGUN, FOLDER

Change = Callable[[Path, Path], object]
"""Changes a store, given its folder and the one outside."""

CLAIM = "CHUNK/claim.json"
LOOP = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


def place(root: Path, name: str) -> Path:
    """Return a path in a store; RUN, BEGUN and CHUNK name a run, an unfinished run, its chunk."""
    for short, whole in {"RUN": FOLDER, "BEGUN": BEGUN, "CHUNK": f"{BEGUN}/state/chunk-0001.1"}.items():
        name = name.replace(short, whole)
    return root / name


# --- other things in place of files and folders


def replaced(name: str, make: Callable[[Path, Path], object]) -> Change:
    """Something else in a place of the store; `make` gets the path and the folder outside."""

    def change(root, outside):
        path = place(root, name)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path, outside)

    return change


def linked(name: str, target: str) -> Change:
    """A link to something outside, or to an absolute path."""
    return replaced(name, lambda path, outside: path.symlink_to(outside / target))


def hard_linked(name: str, target: str) -> Change:
    return replaced(name, lambda path, outside: path.hardlink_to(outside / target))


def pipe(name: str) -> Change:
    return replaced(name, lambda path, outside: os.mkfifo(path))


def text(name: str, content: bytes) -> Change:
    return replaced(name, lambda path, outside: path.write_bytes(content))


def huge(name: str) -> Change:
    """A file of 4 GB that takes no room on the disk."""
    return lambda root, outside: os.truncate(place(root, name), 2**32)


def without_index(change: Change) -> Change:
    """A change, and no index, so that it is made anew."""
    return lambda root, outside: (change(root, outside), (root / "index/runs.sqlite").unlink())


# --- JSON and runs in folders


def resealed(path: Path, change: Callable[[dict], object]) -> None:
    """Change a JSON file with its checksum."""
    data = read_json(path, "")
    change(data)
    write_json(path.parent, path.name, data)


def json_of(name: str, change: Callable[[dict], object]) -> Change:
    return lambda root, outside: resealed(place(root, name), change)


def entry(path: Path) -> dict[str, object]:
    """Return what a manifest says of a file."""
    size, digest = fingerprint(path)
    return {"size": size, "sha256": digest}


def of_run(change: Callable[[Path], object]) -> Change:
    """A change of the run in a folder, whose manifest fits then."""

    def make(root, outside):
        run = root / FOLDER
        change(run)
        resealed(
            run / "manifest.json", lambda one: one["files"].update({name: entry(run / name) for name in one["files"]})
        )

    return make


def of_spec(**fields: object) -> Change:
    return of_run(lambda run: resealed(run / "spec.json", lambda one: one.update(fields)))


def listing(name: str) -> Change:
    """A manifest that lists a file outside, with its true size and digest."""

    def make(root, outside):
        listed = {name.replace("OUTSIDE", str(outside)): entry(outside / "secret")}
        resealed(root / FOLDER / "manifest.json", lambda one: one["files"].update(listed))

    return make


def deep(field: str) -> bytes:
    """Return a sealed JSON object with one field, nested 100,000 deep."""
    nested = "{\n" + f' "{field}": ' + "[" * 100_000 + "]" * 100_000 + "\n}"
    checksum = sha256(nested.encode()).hexdigest()
    return (nested.replace("{", '{\n "checksum": "' + checksum + '",', 1) + "\n").encode()


# --- the index


def in_index(*statements: str) -> Change:
    def make(root, outside):
        with closing(sqlite3.connect(root / "index" / "runs.sqlite")) as index, index:
            for one in statements:
                index.execute(one)

    return make


def another_journal(root, outside):
    """A journal of the index that names a file outside, which SQLite deletes after it has played the journal back."""
    index = root / "index" / "runs.sqlite"
    page = index.read_bytes()[:4096]
    magic = bytes.fromhex("d9d505f920a163d7")
    pages = index.stat().st_size // 4096
    nonce = 7
    check = (nonce + sum(page[at] for at in range(4096 - 200, 0, -200))) % 2**32
    head = magic + b"".join(number.to_bytes(4, "big") for number in (1, nonce, pages, 512, 4096))
    record = (1).to_bytes(4, "big") + page + check.to_bytes(4, "big")
    name = str(outside / "secret").encode()
    last = (2**30 // 4096 + 1).to_bytes(4, "big") + name
    last += len(name).to_bytes(4, "big") + sum(name).to_bytes(4, "big") + magic
    (root / "index" / "runs.sqlite-journal").write_bytes(head.ljust(512, b"\0") + record + last)


# --- what an unfinished run has


def claimed(lease: float | None = 120.0, **fields: object) -> Change:
    """A chunk that another machine has just claimed, with odd fields."""
    claim = {"token": "0", "host": "h", "machine": "m", "process": 1, "started": "1", "lease": lease, **fields}
    claim = {name: value for name, value in claim.items() if value is not None}
    return lambda root, outside: write_json(place(root, CLAIM).parent, "claim.json", claim)


def from_the_future(root, outside):
    claimed()(root, outside)
    os.utime(place(root, CLAIM), (2**33, 2**33))


def odd_state(tensors: bytes) -> Change:
    """A state of the unfinished run with another content, under the name of that content."""

    def make(root, outside):
        (path,) = place(root, "CHUNK").glob("step-*.safetensors")
        path.unlink()
        path.with_name(f"step-00000006.{sha256(tensors).hexdigest()[:32]}.safetensors").write_bytes(tensors)

    return make


def tensors_of(header: object, data: bytes = b"") -> bytes:
    content = json.dumps(header).encode()
    return len(content).to_bytes(8, "little") + content + data


TOO_SHORT = tensors_of({"weight": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 8]}}, bytes(8))


def state_naming(name: str) -> bytes:
    """Return the content of a state that says that a checkpoint of this name belongs to it."""
    metadata = json.dumps({"checkpoints": [name], "metadata": []}).encode()
    entry = {"dtype": "U8", "shape": [len(metadata)], "data_offsets": [0, len(metadata)]}
    return tensors_of({"metadata.json": entry}, metadata)
