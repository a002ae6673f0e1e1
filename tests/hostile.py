"""Stores as a stranger may send them: what `prepare` makes, changed by one of `ATTACKS`.

    prepare(root); attack("pack: a member above", root, outside)

`outside` is a folder beside the store, made by `sentinels`, that no command on the store may read, change or add to.
"""

import json
import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anchorlab.runs import Cell, Index, Store
from anchorlab.runs.files import fingerprint, read_json, write_json
from tests.runs.tiny_trainer import train, train_chunk

SECRET = "the-word-of-a-file-outside"
FINDINGS = Path("studies", "own-hostile", "quick", "findings.json")


def cell_of(number):
    return Cell({"model": {"layers": number}, "members": [3, 1, 4 + number], "format": 1}, label=f"tiny {number}")


IN_FOLDERS, IN_PACK, UNFINISHED = (0, 1), (2, 3), 4
FOLDER, PACKED, BEGUN = (cell_of(number).address for number in (0, 2, 4))
"""The runs that attacks change: one with a folder, one in a pack, one that is not finished."""


def prepare(root: Path) -> None:
    """Make a store with two runs in folders, two in a pack, an unfinished one, findings and an index."""
    from anchorlab.findings import Findings, Provenance
    from anchorlab.findings.seal import seal
    from anchorlab.runs import record_use

    store = Store(root)
    for number in (*IN_FOLDERS, *IN_PACK):
        train(store, cell_of(number))
    store.pack("layers>=2")
    with store.open(cell_of(UNFINISHED)) as run:
        run.plan([[3, 1], [8]])
        with run.chunk(0) as chunk:
            train_chunk(chunk, [3, 1])
        with run.chunk(1) as chunk:
            chunk.finish = lambda rows: None
            train_chunk(chunk, [8])
            claim = chunk._require_claim() / "claim.json"
            kept = claim.read_bytes()
        claim.write_bytes(kept)  # of a process that has let go of it
    origin = Provenance("quick", "0..2", "2 CPU cores", "0" * 40, "2.13", 1.0)
    findings = Findings("own/hostile", "Made up", "Made up.", "quick", origin)
    path = root / FINDINGS
    path.parent.mkdir(parents=True)
    path.write_text(seal(findings.to_json()))
    record_use(path.parent, "own/hostile", "quick", [cell_of(1).address])
    Index(root).curves(Index(root).entries())


def sentinels(outside: Path) -> None:
    """Make the folder that nothing may touch: files of every kind that a store has, and a pipe."""
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
    os.mkfifo(outside / "pipe")


def snapshot(folder: Path) -> dict[str, tuple]:
    """Return everything in a folder, and below it, that a command could have changed."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_mode, status.st_ino, status.st_mtime_ns, content)
    return found


@dataclass(frozen=True)
class Attack:
    """A change of a prepared store.

    Fields
        make: does it, given the store's folder and the one outside
        told: what the line says that `by` ends with
        by: the command that tells, and exits with 2; none for an attack that does nothing once its door is closed
    """

    make: Callable[[Path, Path], None]
    told: str = ""
    by: tuple[str, ...] = ("runs", "check")


def attack(name: str, root: Path, outside: Path) -> Attack:
    """Change a prepared store, and return the attack."""
    ATTACKS[name].make(root, outside)
    return ATTACKS[name]


# --- how stores are changed so that their checksums fit


def resealed(path: Path, change: Callable[[dict], None]) -> None:
    """Change a JSON file with its checksum."""
    data = read_json(path, "")
    change(data)
    write_json(path.parent, path.name, data)


def listed_again(run: Path) -> None:
    """Let a run's manifest say what its files are now."""

    def change(manifest):
        for name in manifest["files"]:
            size, digest = fingerprint(run / name)
            manifest["files"][name] = {"size": size, "sha256": digest}

    resealed(run / "manifest.json", change)


def sealed_text(text: str) -> bytes:
    """Return the text of a JSON object, one key a line, with its checksum as the first."""
    checksum = sha256(text.encode()).hexdigest()
    return (text.replace("{", '{\n "checksum": "' + checksum + '",', 1) + "\n").encode()


def deep(field: str) -> bytes:
    """Return a sealed JSON object with one field, nested 100,000 deep."""
    return sealed_text("{\n" + f' "{field}": ' + "[" * 100_000 + "]" * 100_000 + "\n}")


def the_pack(root: Path) -> Path:
    return next((root / "packs").glob("*.sqlar"))


def repacked(root: Path, change: Callable[[sqlite3.Connection], None]) -> None:
    """Change the pack, and give it the name of its content."""
    path = the_pack(root)
    with closing(sqlite3.connect(path)) as pack:
        with pack:
            change(pack)
        pack.execute("VACUUM")
    path.rename(path.with_name(f"runs.{fingerprint(path).sha256[:32]}.sqlar"))
    shutil.rmtree(root / "index")


def with_member(name: str) -> Callable[[Path, Path], None]:
    """A pack in which a run has one more file, which its manifest lists."""

    def make(root, outside):
        def change(pack):
            content = b"written by a stranger"
            place = name.replace("OUTSIDE", str(outside))
            pack.execute("INSERT INTO sqlar VALUES (?, 33188, 0, ?, ?)", (f"{PACKED}/{place}", len(content), content))
            key = f"{PACKED}/manifest.json"
            size, data = pack.execute("SELECT sz, data FROM sqlar WHERE name = ?", (key,)).fetchone()
            manifest = json.loads(data if len(data) == size else zlib.decompress(data))
            manifest["files"][place] = {"size": len(content), "sha256": sha256(content).hexdigest()}
            del manifest["checksum"]
            write_json(root, "made.json", manifest)
            data = (root / "made.json").read_bytes()
            (root / "made.json").unlink()
            pack.execute("UPDATE sqlar SET sz = ?, data = ? WHERE name = ?", (len(data), data, key))

        repacked(root, change)

    return make


def with_address(address: str) -> Callable[[Path, Path], None]:
    """A pack in which a run has another address."""

    def make(root, outside):
        place = address.replace("OUTSIDE", str(outside))

        def change(pack):
            pack.execute("UPDATE manifests SET address = ? WHERE address = ?", (place, PACKED))
            pack.execute("UPDATE sqlar SET name = replace(name, ?, ?)", (PACKED, place))

        repacked(root, change)

    return make


def in_pack(*statements: str) -> Callable[[Path, Path], None]:
    return lambda root, outside: repacked(root, lambda pack: [pack.execute(one) for one in statements])


def bomb(root, outside):
    """A file of a pack that says it has ten bytes, and has 400 million."""
    packer = zlib.compressobj(9)
    zeros = bytes(10_000_000)
    data = b"".join(packer.compress(zeros) for _ in range(40)) + packer.flush()
    name = f"{PACKED}/spec.json"
    repacked(root, lambda pack: pack.execute("UPDATE sqlar SET sz = 10, data = ? WHERE name = ?", (data, name)))


def other_table(root, outside):
    """A pack whose table of metrics is another."""
    buffer = BytesIO()
    pq.write_table(pa.table({"run": [PACKED], "value": [1]}), buffer)
    table = buffer.getvalue()
    row = sha256(table).hexdigest(), table
    repacked(root, lambda pack: pack.execute("UPDATE tables SET sha256 = ?, data = ?", row))


def pages_in_circles(root, outside):
    """A pack in which a page is its own child."""
    path = the_pack(root)
    content = bytearray(path.read_bytes())
    page = int.from_bytes(content[16:18], "big")
    with closing(sqlite3.connect(path)) as pack:
        (number,) = pack.execute("SELECT rootpage FROM sqlite_master WHERE name = 'manifests'").fetchone()
    start = (number - 1) * page
    cell = number.to_bytes(4, "big") + bytes([0])
    head = bytes([2, 0, 0, 0, 1]) + (page - 5).to_bytes(2, "big") + bytes([0]) + number.to_bytes(4, "big")
    content[start : start + page] = (head + (page - 5).to_bytes(2, "big")).ljust(page - 5, b"\0") + cell
    path.write_bytes(content)
    path.rename(path.with_name(f"runs.{fingerprint(path).sha256[:32]}.sqlar"))
    shutil.rmtree(root / "index")


def linked(name: str, target: str) -> Callable[[Path, Path], None]:
    """A link in place of a file or folder of the store, to something outside."""

    def make(root, outside):
        path = place(root, name)
        removed(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(outside / target)

    return make


def hard_linked(name: str, target: str) -> Callable[[Path, Path], None]:
    def make(root, outside):
        path = place(root, name)
        removed(path)
        path.hardlink_to(outside / target)

    return make


def pipe(name: str) -> Callable[[Path, Path], None]:
    """A pipe in place of a file of the store."""

    def make(root, outside):
        path = place(root, name)
        removed(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)

    return make


def text(name: str, content: bytes) -> Callable[[Path, Path], None]:
    return lambda root, outside: place(root, name).write_bytes(content)


def json_of(name: str, change: Callable[[dict], None]) -> Callable[[Path, Path], None]:
    return lambda root, outside: resealed(place(root, name), change)


def of_run(change: Callable[[Path], None]) -> Callable[[Path, Path], None]:
    """A change of the run in a folder, whose manifest fits then."""

    def make(root, outside):
        change(root / FOLDER)
        listed_again(root / FOLDER)

    return make


def place(root: Path, name: str) -> Path:
    """Return a path in a store; RUN, BEGUN, CHUNK and PACK stand for a run, an unfinished one, its chunk, a pack."""
    chunk, pack = f"{BEGUN}/state/chunk-0001.1", f"packs/{the_pack(root).name}"
    names = {"RUN": FOLDER, "BEGUN": BEGUN, "CHUNK": chunk, "PACK": pack}
    for short, whole in names.items():
        name = name.replace(short, whole)
    return root / name


def removed(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


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


def in_index(*statements: str) -> Callable[[Path, Path], None]:
    def make(root, outside):
        with closing(sqlite3.connect(root / "index" / "runs.sqlite")) as index, index:
            for one in statements:
                index.execute(one)

    return make


def future_claim(root, outside):
    claim_of({"process": 1, "started": "1"})(root, outside)
    os.utime(place(root, "CHUNK/claim.json"), (2**33, 2**33))


def claim_of(fields: dict) -> Callable[[Path, Path], None]:
    return json_of("CHUNK/claim.json", lambda claim: claim.update({"host": "h", "machine": "m", **fields}))


def odd_state(tensors: bytes) -> Callable[[Path, Path], None]:
    """A state of the unfinished run with another content, under the name of that content."""

    def make(root, outside):
        (path,) = place(root, "CHUNK").glob("step-*.safetensors")
        path.unlink()
        path.with_name(f"step-00000006.{sha256(tensors).hexdigest()[:32]}.safetensors").write_bytes(tensors)

    return make


def tensors_of(header: object, data: bytes = b"") -> bytes:
    content = json.dumps(header).encode()
    return len(content).to_bytes(8, "little") + content + data


def state_naming(name: str) -> bytes:
    """The content of a state that says that a checkpoint of this name belongs to it."""
    metadata = json.dumps({"checkpoints": [name], "metadata": []}).encode()
    entry = {"dtype": "U8", "shape": [len(metadata)], "data_offsets": [0, len(metadata)]}
    return tensors_of({"metadata.json": entry}, metadata)


LOOP = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
TOO_SHORT = tensors_of({"weight": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 8]}}, bytes(8))
LINK = "is a link, which a store may not hold"
NEITHER = "is neither a file nor a folder"

ATTACKS: dict[str, Attack] = {
    "pack: a member above": Attack(with_member("../../outside/planted"), "no file of a run"),
    "pack: an absolute member": Attack(with_member("OUTSIDE/planted"), "no file of a run"),
    "pack: a member in and out": Attack(with_member("a/../../outside/planted"), "no file of a run"),
    "pack: a member with NUL": Attack(with_member("spec.json\0../planted"), "no file of a run"),
    "pack: a member with a backslash": Attack(with_member("..\\..\\planted"), "no file of a run"),
    "pack: a member that no run has": Attack(with_member("notes.txt"), "no file of a run"),
    "pack: a member that no manifest lists": Attack(
        in_pack(f"INSERT INTO sqlar VALUES ('{PACKED}/../../outside/planted', 33188, 0, 1, x'00')"),
        "altered after it was written",
        ("runs", "unpack"),
    ),
    "pack: an address above": Attack(with_address("../outside"), "altered after it was written"),
    "pack: an absolute address": Attack(with_address("OUTSIDE"), "altered after it was written"),
    "pack: an address of no length": Attack(with_address(""), "altered after it was written"),
    "pack: more than it says": Attack(bomb, "altered after it was written"),
    "pack: a view without end": Attack(
        in_pack(
            "DROP TABLE manifests",
            f"CREATE VIEW manifests AS {LOOP} SELECT printf('%020d', i) AS address, 1 AS changed, 1 AS size FROM n",
        ),
        "altered after it was written",
    ),
    "pack: files without end": Attack(
        in_pack(
            "ALTER TABLE sqlar RENAME TO files",
            f"CREATE VIEW sqlar AS {LOOP} "
            f"SELECT '{PACKED}/' || i AS name, 1 AS mode, 1 AS mtime, 1 AS sz, x'00' AS data FROM n",
        ),
        "altered after it was written",
    ),
    "pack: pages in circles": Attack(pages_in_circles, "altered after it was written"),
    "pack: runs without end": Attack(
        in_pack(f"INSERT INTO manifests {LOOP} SELECT printf('%020d', i), 1, 1 FROM n LIMIT 200000"),
        "altered after it was written",
    ),
    "pack: a time that no file has": Attack(
        in_pack(f"UPDATE manifests SET changed = 'soon' WHERE address = '{PACKED}'"), "altered after it was written"
    ),
    "pack: another table": Attack(other_table, "altered after it was written"),
    "pack: a link": Attack(linked("PACK", "own.sqlite"), LINK),
    "pack: a pipe": Attack(pipe("PACK"), NEITHER),
    "packs: a link": Attack(linked("packs", "folder"), LINK),
    "packs: a linked lock": Attack(linked("packs/lock", "secret"), LINK, ("runs", "pack")),
    "packs: a linked partial file": Attack(linked("packs/.0123.tmp", "folder")),
    "manifest: a file above": Attack(
        json_of("RUN/manifest.json", lambda one: one["files"].update({"../../outside/secret": entry_of_secret()})),
        "no file of a run",
    ),
    "manifest: an absolute file": Attack(
        json_of("RUN/manifest.json", lambda one: one["files"].update({"/etc/hostname": entry_of_secret()})),
        "no file of a run",
    ),
    "manifest: nested deeply": Attack(text("RUN/manifest.json", deep("files")), "nested"),
    "manifest: no files": Attack(json_of("RUN/manifest.json", lambda one: one.update({"files": 3})), "lists no files"),
    "manifest: a size of text": Attack(
        json_of("RUN/manifest.json", lambda one: one["files"].update({"spec.json": {"size": "1", "sha256": "0"}})),
        "without its size",
    ),
    "spec: nested deeply": Attack(of_run(lambda run: (run / "spec.json").write_bytes(deep("spec"))), "nested"),
    "spec: another kind": Attack(
        of_run(lambda run: resealed(run / "spec.json", lambda one: one.update({"spec": [1]}))), "another version"
    ),
    "spec: environments of text": Attack(
        of_run(lambda run: resealed(run / "spec.json", lambda one: one.update({"environments": ["x"]}))), "computed"
    ),
    "metrics: no table": Attack(
        of_run(lambda run: (run / "metrics.parquet").write_bytes(b"PAR1" + bytes(40) + b"PAR1")), "no table of metrics"
    ),
    "metrics: other columns": Attack(
        of_run(lambda run: pq.write_table(pa.table({"value": [1]}), run / "metrics.parquet")), "other columns"
    ),
    "checkpoint: shorter than it says": Attack(
        of_run(lambda run: (run / "checkpoints" / "step-00000002.safetensors").write_bytes(TOO_SHORT)),
        "no file of tensors",
    ),
    "run: a link": Attack(linked("RUN", "folder"), LINK),
    "run: a link to nothing": Attack(linked("RUN", "nothing"), LINK),
    "run: linked checkpoints": Attack(linked("RUN/checkpoints", "folder"), LINK),
    **{
        f"run: a linked {name}": Attack(linked(f"RUN/{name}", name), LINK)
        for name in ("spec.json", "manifest.json", "metrics.parquet", "lock")
    },
    **{
        f"run: a pipe as {name}": Attack(pipe(f"RUN/{name}"), NEITHER)
        for name in ("spec.json", "manifest.json", "metrics.parquet", "lock")
    },
    "unfinished: a linked lock": Attack(linked("BEGUN/lock", "lock"), LINK),
    "unfinished: a lock with another name": Attack(hard_linked("BEGUN/lock", "lock")),
    "unfinished: a linked state": Attack(linked("BEGUN/state", "folder"), LINK),
    "unfinished: a linked chunk": Attack(linked("BEGUN/state/chunk-0001.2", "folder"), LINK),
    "unfinished: linked notes": Attack(linked("BEGUN/state/notes", "."), LINK),
    "unfinished: a linked claim": Attack(linked("CHUNK/claim.json", "claim.json"), LINK),
    "unfinished: a pipe as claim": Attack(pipe("CHUNK/claim.json"), NEITHER),
    "unfinished: a pipe as plan": Attack(pipe("BEGUN/state/plan.json"), NEITHER),
    "unfinished: a plan nested deeply": Attack(text("BEGUN/state/plan.json", deep("plan")), "nested"),
    "unfinished: a chunk of an odd number": Attack(
        lambda root, outside: place(root, "BEGUN/state").joinpath("chunk-0001.²").mkdir()
    ),
    "unfinished: a state shorter than it says": Attack(odd_state(TOO_SHORT), "no file of tensors"),
    "unfinished: a state that names a file above": Attack(
        odd_state(state_naming("step-00000002./../../../../../outside/secret")), "no chunk has", ("train",)
    ),
    "claim: of the future": Attack(future_claim),
    "claim: for ever": Attack(claim_of({"lease": 1e18, "process": 1, "started": "1"})),
    "claim: other fields": Attack(claim_of({"colour": "red"})),
    "claim: no process": Attack(claim_of({"process": "../../etc/passwd"})),
    "claim: nested deeply": Attack(text("CHUNK/claim.json", deep("token"))),
    "index: a link": Attack(linked("index", "folder"), LINK, ("runs",)),
    "index: a linked file": Attack(linked("index/runs.sqlite", "own.sqlite"), LINK, ("runs",)),
    "index: a pipe": Attack(pipe("index/runs.sqlite"), NEITHER, ("runs",)),
    "index: a linked lock": Attack(
        lambda root, outside: (linked("index/lock", "lock")(root, outside), (root / "index/runs.sqlite").unlink())
    ),
    "index: another name": Attack(hard_linked("index/runs.sqlite", "own.sqlite")),
    "index: a journal that names a file outside": Attack(another_journal),
    "index: a linked journal": Attack(linked("index/runs.sqlite-journal", "secret")),
    "index: a linked log": Attack(linked("index/runs.sqlite-wal", "secret")),
    "index: a linked partial file": Attack(
        lambda root, outside: (
            linked("index/.0123.tmp", "folder")(root, outside),
            (root / "index/runs.sqlite").unlink(),
        )
    ),
    "index: a view without end": Attack(
        in_index("DROP TABLE runs", f"CREATE VIEW runs AS {LOOP} SELECT i, 1, 1, 'x', 1, 1, '{{}}', 1, 1 FROM n")
    ),
    "index: a trigger": Attack(
        in_index("CREATE TRIGGER t AFTER DELETE ON runs BEGIN DELETE FROM parts; END", "UPDATE runs SET crc = 0")
    ),
    "index: labels of bytes": Attack(in_index("UPDATE runs SET label = x'1b5b'")),
    "studies: a link": Attack(linked("studies", "folder"), LINK),
    "studies: a linked profile": Attack(linked("studies/own-hostile/quick", "folder"), LINK, ("claims", "--counts")),
    "studies: linked findings": Attack(linked(str(FINDINGS), "secret"), LINK, ("claims", "--counts")),
    "studies: a pipe as findings": Attack(pipe(str(FINDINGS)), NEITHER, ("claims", "--counts")),
    "studies: a pipe as record": Attack(
        pipe(str(FINDINGS.with_name("runs.json"))), "damaged", ("runs", "prune", "orphans")
    ),
    "studies: findings nested deeply": Attack(
        text(str(FINDINGS), b"[" * 100_000 + b"]" * 100_000), "damaged", ("claims", "--counts")
    ),
    "workers: a link": Attack(linked("workers", "folder"), LINK),
    "answers: a link": Attack(linked("answers", "folder"), LINK),
    "left: a linked run that was removed": Attack(linked(".removed-0123", "folder")),
    "left: a linked run that was unpacked": Attack(linked(".unpacked-0123", "folder")),
    "left: a link to nothing": Attack(linked(".unpacked-0123", "nothing")),
}


def entry_of_secret() -> dict[str, object]:
    return {"size": len(SECRET), "sha256": sha256(SECRET.encode()).hexdigest()}
