"""Attacks: what somebody who sends a store may have changed in it."""

import hashlib
import json
import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from anchorlab.runs import Store
from anchorlab.runs.files import DIGEST_LENGTH, fingerprint, write_json

Attack = Callable[[Path, Path], None]
"""Changes a store, given its folder and one outside of it, with `secret` and a run, that nothing may touch."""

_LARGE = 2**32  # bytes


def first_run(root: Path) -> Path:
    """Return the run that attacks change: that of the lowest address which has checkpoints."""
    return next(run.path for run in Store(root).runs() if len(run.checkpoints()) > 1)


def _sealed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file, and give it the checksum of its new content."""
    data = json.loads(path.read_bytes())
    del data["checksum"]
    change(data)
    write_json(path.parent, path.name, data)


def _listed(run: Path, name: str) -> None:
    """Write size and digest of a file, or of what a link leads to, into the manifest of its run."""
    content = (run / name).read_bytes()
    entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    _sealed(run / "manifest.json", lambda data: data["files"].update({name: entry}))


def _linked(name: str, to: str) -> Attack:
    def attack(root: Path, outside: Path) -> None:
        path = root / name.replace("RUN", first_run(root).name)
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(to if to.startswith("/") else outside / to)

    return attack


def _pipe(name: str) -> Attack:
    def attack(root: Path, outside: Path) -> None:
        path = root / name.replace("RUN", first_run(root).name)
        path.unlink(missing_ok=True)
        os.mkfifo(path)

    return attack


def _named_in_manifest(name: str) -> Attack:
    """A manifest that lists a file elsewhere, with its true fingerprint."""

    def attack(root: Path, outside: Path) -> None:
        listed = name.replace("OUTSIDE", str(outside))
        size, digest = fingerprint(outside / "secret")
        entry = {listed: {"size": size, "sha256": digest}}
        _sealed(first_run(root) / "manifest.json", lambda data: data["files"].update(entry))

    return attack


def _checkpoint_elsewhere(root: Path, outside: Path) -> None:
    run = first_run(root)
    path = sorted((run / "checkpoints").iterdir())[-1]
    path.unlink()
    path.symlink_to(outside / "secret")
    _listed(run, f"checkpoints/{path.name}")


def _nested(root: Path, outside: Path) -> None:
    path = first_run(root) / "spec.json"
    path.write_bytes(b'{"spec": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n")
    _listed(path.parent, path.name)


def _huge(name: str) -> Attack:
    """A file of 4 GB that takes no room on the disk."""

    def attack(root: Path, outside: Path) -> None:
        path = root / name.replace("RUN", first_run(root).name)
        os.truncate(path, _LARGE)

    return attack


def _escapes(root: Path, outside: Path) -> None:
    path = first_run(root) / "spec.json"
    _sealed(path, lambda data: data.update(label="\x1b]0;owned\x07\x1b[2J\x9b31m"))
    _listed(path.parent, path.name)


def _inconsistent_tensors(root: Path, outside: Path) -> None:
    run = first_run(root)
    path = sorted((run / "checkpoints").iterdir())[-1]
    header = json.dumps({"a": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    _listed(run, f"checkpoints/{path.name}")


def _no_table(root: Path, outside: Path) -> None:
    path = first_run(root) / "metrics.parquet"
    path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    _listed(path.parent, path.name)


def _claimed(claim: Mapping[str, Any], ahead: float = 0.0) -> Attack:
    """An unfinished run whose chunk is claimed in an odd way."""

    def attack(root: Path, outside: Path) -> None:
        run = first_run(root)
        (run / "manifest.json").unlink()
        folder = run / "state" / "chunk-0000.1"
        folder.mkdir(parents=True)
        write_json(folder.parent, "plan.json", {"plan": {"chunks": [[0, 1, 2]], "threads": 1, "execution": "auto"}})
        write_json(folder, "claim.json", claim)
        path, status = folder / "claim.json", folder.stat()
        os.utime(path, (status.st_atime + ahead, status.st_mtime + ahead))

    return attack


def _packed(change: Callable[[sqlite3.Connection, Path, str], None]) -> Attack:
    """A pack that was changed, under the name that its new content has."""

    def attack(root: Path, outside: Path) -> None:
        address = first_run(root).name
        Store(root).pack()
        (path,) = (root / "packs").glob("*.sqlar")
        with closing(sqlite3.connect(path)) as pack, pack:
            change(pack, outside, address)
        path.rename(path.with_name(f"runs.{fingerprint(path).sha256[:DIGEST_LENGTH]}.sqlar"))

    return attack


def _member(name: str) -> Callable[[sqlite3.Connection, Path, str], None]:
    def change(pack: sqlite3.Connection, outside: Path, address: str) -> None:
        path = f"{address}/{name.replace('OUTSIDE', str(outside))}"
        pack.execute("INSERT INTO sqlar VALUES (?, ?, ?, ?, ?)", (path, 0o100644, 0, 5, b"owned"))

    return change


def _address_elsewhere(pack: sqlite3.Connection, outside: Path, address: str) -> None:
    for listed in (f"../../{outside.name}/run", str(outside / "run")):
        pack.execute("INSERT INTO manifests VALUES (?, 0, 1)", (listed,))


def _bomb(pack: sqlite3.Connection, outside: Path, address: str) -> None:
    squeezer, piece = zlib.compressobj(), bytes(2**20)
    data = b"".join([*(squeezer.compress(piece) for _ in range(2**11)), squeezer.flush()])
    pack.execute("UPDATE sqlar SET data = ?, sz = 10 WHERE name = ?", (data, f"{address}/spec.json"))


def _endless_view(table: str, columns: str) -> Callable[[sqlite3.Connection, Path, str], None]:
    def change(pack: sqlite3.Connection, outside: Path, address: str) -> None:
        pack.execute(f"DROP TABLE {table}")
        counting = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
        pack.execute(f"CREATE VIEW {table} AS {counting} SELECT printf('%020x', x) || {columns} FROM n")

    return change


_OWNER = {"token": "0", "host": "elsewhere", "machine": "elsewhere", "process": 1, "started": "1"}

ATTACKS: dict[str, Attack] = {
    "the lock of a run is a link": _linked("RUN/lock", "secret"),
    "the index is a link": _linked("index", "folder"),
    "the packs are a link": _linked("packs", "folder"),
    "the studies are a link": _linked("studies", "folder"),
    "a run is a link": _linked("RUN", "run"),
    "a specification is a link": _linked("RUN/spec.json", "secret"),
    "findings are a link": _linked("studies/own-faults/quick/findings.json", "secret"),
    "a checkpoint is a link": _checkpoint_elsewhere,
    "a removed run is a link": _linked(".removed-0123456789abcdef0123-0000", "folder"),
    "a specification is an endless device": _linked("RUN/spec.json", "/dev/zero"),
    "a manifest is an endless device": _linked("RUN/manifest.json", "/dev/zero"),
    "a specification is a pipe": _pipe("RUN/spec.json"),
    "a manifest is a pipe": _pipe("RUN/manifest.json"),
    "metrics are a pipe": _pipe("RUN/metrics.parquet"),
    "findings are a pipe": _pipe("studies/own-faults/quick/findings.json"),
    "a manifest names a file above": _named_in_manifest("../../../outside/secret"),
    "a manifest names a file by its whole path": _named_in_manifest("OUTSIDE/secret"),
    "a specification is nested deep": _nested,
    "a specification has 4 GB": _huge("RUN/spec.json"),
    "findings have 4 GB": _huge("studies/own-faults/quick/findings.json"),
    "a label has terminal escapes": _escapes,
    "a checkpoint contradicts itself": _inconsistent_tensors,
    "metrics are no table": _no_table,
    "a claim of other fields": _claimed({"a": 1, "lease": 1.0}),
    "a claim without a lease": _claimed(_OWNER),
    "a claim for ever": _claimed({**_OWNER, "lease": 1e18}),
    "a claim from the future": _claimed({**_OWNER, "lease": 120.0}, ahead=1e9),
    "a pack's file lies above": _packed(_member("../../../outside/owned")),
    "a pack's file has a whole path": _packed(_member("/OUTSIDE/owned")),
    "a pack's run lies elsewhere": _packed(_address_elsewhere),
    "a pack expands without end": _packed(_bomb),
    "a pack's list is endless": _packed(_endless_view("manifests", "'' AS address, 0 AS changed, 1 AS size")),
    "a pack's files are endless": _packed(
        _endless_view("sqlar", "'/a' AS name, 0 AS mode, 0 AS mtime, 1 AS sz, x'00' AS data")
    ),
}
"""What is changed, in words, and how."""
