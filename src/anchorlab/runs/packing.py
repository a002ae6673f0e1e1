"""Packing: moving small finished runs from their folders into packs, and back.

Every step leaves each run whole in its folder, in a pack, or in both with the same content: what is new is moved into
place before what is old is removed. A run in both counts once, and the next packing removes what is too many.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from anchorlab.errors import StoreError
from anchorlab.runs.files import Fingerprint, check_content, damaged, json_in, sync_directory
from anchorlab.runs.lock import Lock
from anchorlab.runs.pack import SMALL, Pack, Packed, pack_with, packs_of, write_pack
from anchorlab.runs.run import Run

if TYPE_CHECKING:
    import polars

_MOST_RUNS = 10_000  # of a pack
_MOST_BYTES = 2**28  # of the files of a pack
_PATIENCE = 10.0  # seconds to wait for another process that packs
_UNPACKED = ".unpacked-"

_Whole = tuple[str, Mapping[str, Packed]]
"""A run: its address and all of its files."""


def pack_runs(root: Path, addresses: Iterable[str], put_aside: Callable[[Run], None]) -> list[str]:
    """Move runs from folders into packs, and return their addresses; small packs are put together.

    Left as they are: unfinished, damaged and large runs, folders with other files, and links.

    Args:
        root: the folder of the store
        addresses: the runs
        put_aside: removes the folder of a run. Errors: `StoreError`
    """
    moved = [address for address in sorted(set(addresses)) if _fits(Run(root / address))]
    if not moved and not packs_of(root):
        return []
    with _packing(root) as folder:
        moved = [address for address in moved if (root / address).is_dir()]  # another process may have packed it
        _drop(root, {address for address in moved if _differs(root, address)})
        new = [address for address in moved if pack_with(root, address) is None]
        loose = [pack for pack in packs_of(root) if _is_small(pack)] if new else []
        found = (_folder(Run(root / address)) for address in new)
        kept = (one for pack in loose for one in pack.runs(pack.keys))
        written = [_write(folder, batch) for batch in _batches(found, kept)]
        for pack in loose:
            if pack not in written:  # the same runs make the same file
                pack.path.unlink()
        packed = {address for pack in packs_of(root) for address in pack.keys}
        gone = {address for address in new if address in packed and not (root / address).is_dir()}
        _drop(root, gone)  # removed while they were read
        moved = [address for address in moved if address in packed - gone]
        for address in moved:
            with suppress(StoreError):
                put_aside(Run(root / address))
        return moved


def unpack_runs(root: Path, addresses: Iterable[str]) -> list[str]:
    """Move runs out of their packs into folders, and return the addresses of those that were packed."""
    if not packs_of(root):
        return []
    with _packing(root):
        asked, moved = set(addresses), []
        for pack in packs_of(root):
            for address, files in pack.runs(sorted(asked & pack.keys.keys())):
                if not (root / address).is_dir():
                    _unpack(root / address, files)
                moved.append(address)
        if moved:
            os.sync()  # the folders are on the disk before their packs are gone
            _drop(root, set(moved))
        return sorted(moved)


def drop_packed(root: Path, addresses: Collection[str]) -> None:
    """Remove runs from packs."""
    with _packing(root):
        _drop(root, set(addresses))


@contextmanager
def _packing(root: Path) -> Iterator[Path]:
    """Hold the lock of the packs, and remove what a killed process left. Errors: `InUseError`."""
    folder = root / "packs"
    lock = Lock(folder / "lock")
    lock.acquire(_PATIENCE)
    try:
        for left in [*folder.glob(".*.tmp*"), *root.glob(f"{_UNPACKED}*")]:
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        seen: set[str] = set()
        for pack in sorted(packs_of(root), key=lambda one: -len(one.keys)):
            if pack.keys.keys() <= seen:  # written by a process that was killed before it had removed the old one
                pack.path.unlink()
            seen |= pack.keys.keys()
        yield folder
    finally:
        lock.release()


def _fits(run: Run) -> bool:
    """Return whether a run has a folder and can be packed, as far as that can be seen without reading its files."""
    return (
        run.path.is_dir()
        and not run.path.is_symlink()
        and run.manifest_path.exists()
        and not run.state_path.exists()
        and run.size <= SMALL
    )


def _differs(root: Path, address: str) -> bool:
    """Return whether a pack holds another run of the address than its folder, which counts, or a damaged one."""
    run, pack = Run(root / address), pack_with(root, address)
    if pack is None:
        return False
    try:
        ((_, files),) = pack.runs([address])
        _check(run, files)
        return files[run.manifest_path.name].content != run.manifest_path.read_bytes()
    except FileNotFoundError:  # the folder was removed
        return False
    except StoreError:
        return True


def _is_small(pack: Pack) -> bool:
    return len(pack.keys) < _MOST_RUNS // 2 and pack.path.stat().st_size < _MOST_BYTES // 2


def _folder(run: Run) -> _Whole | None:
    """Return a run as its folder holds it; None for one that is damaged, has other files, or has been removed."""
    try:
        paths = {path.relative_to(run.path).as_posix(): path for path in run.path.rglob("*") if not path.is_dir()}
        paths.pop("lock", None)  # of a process that read or wrote it
        files = {name: Packed(path.read_bytes(), path.stat().st_mtime_ns) for name, path in paths.items()}
        _check(run, files)
    except (StoreError, OSError):
        return None
    return run.address, files


def _check(run: Run, files: Mapping[str, Packed]) -> None:
    """Raise `StoreError` unless these are the files of a run, all of them and no others, as its manifest has them."""
    manifest, spec = run.manifest_path.name, run.spec_path.name
    if manifest not in files:
        raise damaged(run.manifest_path, "missing", run.address)
    listed = json_in(run.manifest_path, files[manifest].content, run.address)["files"]
    if {*listed, manifest} != files.keys():
        raise damaged(run.manifest_path, "lists other files than there are", run.address)
    for name, entry in listed.items():
        expected = Fingerprint(entry["size"], entry["sha256"])
        check_content(run.path / name, files[name].content, expected, run.address)
    if json_in(run.spec_path, files[spec].content, run.address)["address"] != run.address:
        raise damaged(run.spec_path, "belongs to another run", run.address)


def _batches(*sources: Iterable[_Whole | None]) -> Iterator[list[_Whole]]:
    """Yield runs, as many at a time as one pack takes."""
    batch: list[_Whole] = []
    size = 0
    for one in (one for source in sources for one in source if one is not None):
        own = sum(len(file.content) for file in one[1].values())
        if batch and (len(batch) == _MOST_RUNS or size + own > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += own
    if batch:
        yield batch


def _write(folder: Path, runs: Iterable[_Whole]) -> Pack:
    """Write a pack."""
    ordered = sorted(runs, key=lambda one: one[0])
    return write_pack(folder, ordered, _metrics(ordered))


def _metrics(runs: Iterable[_Whole]) -> "polars.DataFrame":
    """Return the metrics of runs as one table, the address in the column `run`."""
    import polars as pl

    tables = ((address, pl.read_parquet(files["metrics.parquet"].content)) for address, files in runs)
    return pl.concat([table.select(pl.lit(address).alias("run"), pl.all()) for address, table in tables])


def _unpack(path: Path, files: Mapping[str, Packed]) -> None:
    """Write the folder of a run completely, or not at all. Errors: `StoreError` if it is damaged."""
    _check(Run(path), files)
    temporary = path.with_name(f"{_UNPACKED}{path.name}-{secrets.token_hex(4)}")
    try:
        for name, (content, changed) in files.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).write_bytes(content)
            os.utime(temporary / name, ns=(changed, changed))
        temporary.rename(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from error


def _drop(root: Path, addresses: Collection[str]) -> None:
    """Remove runs from packs: a pack without them takes the place of each that holds some."""
    for pack in packs_of(root):
        if addresses & pack.keys.keys():
            rest = [address for address in pack.keys if address not in addresses]
            if rest:
                _write(pack.path.parent, pack.runs(rest))
            pack.path.unlink()
            sync_directory(pack.path.parent)
