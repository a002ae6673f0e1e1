"""Packing: moving small finished runs from their folders into packs, and back.

Every step leaves each run whole in its folder, in a pack, or in both with the same content: what is new is moved into
place before what is old is removed. A run in both counts once, and the next packing removes what is too many.
"""

import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from anchorlab.errors import StoreError
from anchorlab.plain import check_tree, discard, is_plain_folder, read_plain
from anchorlab.runs.files import check_content, damaged, json_in, matching, sync_directory
from anchorlab.runs.lock import Lock
from anchorlab.runs.metrics import read_metrics, scan_metrics
from anchorlab.runs.names import listed_files
from anchorlab.runs.pack import MOST_RUNS, SMALL, Pack, Packed, pack_with, packs_of, write_pack
from anchorlab.runs.record import checked_record
from anchorlab.runs.run import Run

if TYPE_CHECKING:
    import polars

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
    if not moved and not packs_of(root) and not left_behind(root):
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
    if not packs_of(root) and not left_behind(root):
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
        for left in left_behind(root):
            discard(left)
        seen: set[str] = set()
        for pack in sorted(packs_of(root), key=lambda one: -len(one.keys)):
            if pack.keys.keys() <= seen:  # written by a process that was killed before it had removed the old one
                pack.path.unlink()
            seen |= pack.keys.keys()
        yield folder
    finally:
        lock.release()


def left_behind(root: Path) -> list[Path]:
    """Return what a process that was killed while it packed or unpacked has left, or one at work makes."""
    return [*matching(root / "packs", ".*.tmp*"), *matching(root, f"{_UNPACKED}*")]


def _fits(run: Run) -> bool:
    """Return whether a run has a folder and can be packed, as far as that can be seen without reading its files."""
    return (
        is_plain_folder(run.path) and run.manifest_path.exists() and not run.state_path.exists() and run.size <= SMALL
    )


def _differs(root: Path, address: str) -> bool:
    """Return whether a pack holds another run of the address than its folder, which counts, or a damaged one."""
    run, pack = Run(root / address), pack_with(root, address)
    if pack is None:
        return False
    try:
        ((_, files),) = pack.runs([address])
        _check(run, files)
        return files[run.manifest_path.name].content != read_plain(run.manifest_path, SMALL)
    except FileNotFoundError:  # the folder was removed
        return False
    except (StoreError, OSError):
        return True


def _is_small(pack: Pack) -> bool:
    return len(pack.keys) < MOST_RUNS // 2 and pack.path.stat().st_size < _MOST_BYTES // 2


def _folder(run: Run) -> _Whole | None:
    """Return a run as its folder holds it; None for one that is damaged, has other files, or has been removed."""
    try:
        check_tree(run.path)
        paths = {path.relative_to(run.path).as_posix(): path for path in run.path.rglob("*") if not path.is_dir()}
        paths.pop("lock", None)  # of a process that read or wrote it
        files = {name: Packed(read_plain(path, SMALL), path.lstat().st_mtime_ns) for name, path in paths.items()}
        _check(run, files)
        scan_metrics(files[run.metrics_path.name].content)
    except (StoreError, OSError, ValueError):
        return None
    return run.address, files


def _check(run: Run, files: Mapping[str, Packed]) -> None:
    """Raise `StoreError` unless these are the files of a run, all of them and no others, as its manifest has them."""
    manifest, spec = run.manifest_path.name, run.spec_path.name
    if manifest not in files:
        raise damaged(run.manifest_path, "missing", run.address)
    try:
        listed = listed_files(json_in(run.manifest_path, files[manifest].content, run.address))
    except ValueError as error:
        raise damaged(run.manifest_path, str(error), run.address) from None
    if {*listed, manifest} != files.keys():
        raise damaged(run.manifest_path, "lists other files than there are", run.address)
    for name, expected in listed.items():
        check_content(run.path / name, files[name].content, expected, run.address)
    for path in (run.spec_path, run.metrics_path):
        if path.name not in listed:
            raise damaged(path, "missing", run.address)
    try:
        checked_record(json_in(run.spec_path, files[spec].content, run.address), run.address)
    except ValueError as error:
        raise damaged(run.spec_path, str(error), run.address) from None


def _batches(*sources: Iterable[_Whole | None]) -> Iterator[list[_Whole]]:
    """Yield runs, as many at a time as one pack takes."""
    batch: list[_Whole] = []
    size = 0
    for one in (one for source in sources for one in source if one is not None):
        own = sum(len(file.content) for file in one[1].values())
        if batch and (len(batch) == MOST_RUNS or size + own > _MOST_BYTES):
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

    tables = ((address, _table(address, files)) for address, files in runs)
    return pl.concat([table.select(pl.lit(address).alias("run"), pl.all()) for address, table in tables])


def _table(address: str, files: Mapping[str, Packed]) -> "polars.DataFrame":
    name = "metrics.parquet"
    try:
        return read_metrics(files[name].content)
    except (KeyError, ValueError) as error:
        raise damaged(Path(address, name), str(error), address) from None


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
