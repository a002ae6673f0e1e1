"""A store as its owner sends it, what lies outside of it, and the commands that open it."""

import os
import re
import shutil
import sqlite3
import sys
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

from anchorlab.cli import main
from anchorlab.errors import AnchorlabError
from anchorlab.runs import Cell, Index, Store
from anchorlab.runs.atomic_files import write_json
from anchorlab.runs.lease import LEASE, NAME, Owner
from anchorlab.training import Evaluation, Times
from tests.runs.tiny_trainer import begin, train
from tests.small_experiments import DECODER, experiment

SECRET = "the-word-of-a-file-outside"
FINDINGS = Path("studies", "own-hostile", "quick", "findings.json")


def cell_of(number):
    return Cell({"model": {"layers": number}, "members": [3, 1, 4 + number], "format": 1}, label=f"tiny {number}")


TRAINED = replace(
    experiment(duration=4, checkpoints=Times(every=2), evaluation=Evaluation(every=2, size=8)),
    model=DECODER.replace(layers=1),
)
FINISHED, UNFINISHED = 1, 4
FOLDER, BEGUN = TRAINED.cell.address, cell_of(UNFINISHED).address
"""The runs that attacks change: a finished decoder, and an unfinished tiny one."""

TRAIN = ("train",)
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("runs",),
    ("runs", "check"),
    *(("runs", "show", address) for address in (FOLDER, BEGUN)),
    ("claims", "--counts", "--measured"),
    ("browse",),
    ("runs", "prune"),
    TRAIN,
    ("runs", "remove", FOLDER, "--yes"),
    ("runs", "prune", "orphans", "superseded", "unfinished", "damaged", "--yes"),
)
"""The commands that open a store, in this order; `TRAIN` resumes the unfinished run."""

MORE_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("runs", "--json"),
    ("runs", "--columns", "run,label,state,MB,model.layers,metrics.test.loss"),
    ("runs", "--where", "test.loss>0"),
    ("report",),
    ("inspect", FOLDER),
)
"""Commands that only `make faults` runs on every store: they take longer, or read the same files as others."""


def opened(root: Path, command: tuple[str, ...]) -> int:
    """Open a store with a command, and return the exit code."""
    if command != TRAIN:
        return main([*command, "--store", str(root)])
    try:
        train(Store(root), cell_of(UNFINISHED))
    except AnchorlabError as error:
        print(f"anchorlab: {error}", file=sys.stderr)
        return 2
    return 0


def prepare(root: Path) -> None:
    """Make a store with two runs, an unfinished one, findings and an index.

    The unfinished one is claimed by this process, which must end before the store is opened.
    """
    from anchorlab import engine
    from anchorlab.findings import Findings, Provenance
    from anchorlab.findings.seal import seal
    from anchorlab.runs import record_use

    store = Store(root)
    engine.run([TRAINED], store, workers=1)
    train(store, cell_of(FINISHED))
    begin(store, cell_of(UNFINISHED))
    write_json(root / BEGUN / "state" / "chunk-0001.1", NAME, {**asdict(Owner.new()), "lease": LEASE})
    origin = Provenance("quick", "0..2", "2 CPU cores", "0" * 40, "2.13", 1.0)
    findings = Findings("own/hostile", "Made up", "Made up.", "quick", origin)
    path = root / FINDINGS
    path.parent.mkdir(parents=True)
    path.write_text(seal(findings.to_json()))
    record_use(path.parent, "own/hostile", "quick", [cell_of(FINISHED).address])
    Index(root).curves(Index(root).entries())


def sentinels(outside: Path, root: Path) -> None:
    """Make the folder that nothing may touch: files of every kind that a store has, a run of the store, and a pipe."""
    outside.mkdir()
    for name in ("secret", "lock", "spec.json", "manifest.json", "metrics.parquet", "runs.json", "claim.json"):
        (outside / name).write_text(SECRET)
    (outside / "chunk-0001.failure.json").write_text(SECRET)
    (outside / "folder").mkdir()
    (outside / "folder" / "step-00000002.safetensors").write_text(SECRET)
    (outside / "index.sqlite").write_text(SECRET)
    with closing(sqlite3.connect(outside / "own.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE secrets (word TEXT)")
        connection.execute("INSERT INTO secrets VALUES (?)", (SECRET,))
    shutil.copytree(root / FOLDER, outside / "run")
    os.mkfifo(outside / "pipe")


def snapshot(*folders: Path) -> dict[str, tuple[object, ...]]:
    """Return everything in some folders, and below them, that a command could have changed.

    Of a huge file, the attack that makes it, only the size.
    """
    found = {}
    for path in sorted(path for folder in folders for path in (folder, *folder.rglob("*"))):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and path.stat().st_size < 2**30 else b""
        found[str(path)] = (status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, content)
    return found


def signs_that_a_terminal_obeys(text: str) -> list[str]:
    """Return the control signs in what a command says, but for the ends of lines and tabs."""
    return sorted(set(re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)))
