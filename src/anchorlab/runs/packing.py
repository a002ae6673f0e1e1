"""Packing: move small finished runs from their folders into packs, and back.

Every step leaves each run whole in its folder, in a pack, or in both with the same content: the new copy is moved into
place before the old one is removed. A run in both counts once, and the next packing removes the extra copy.
"""

import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from anchorlab.errors import StoreError
from anchorlab.plain import check_tree, discard, is_plain_folder, read_plain
from anchorlab.runs.atomic_files import check_content, damage_in, damaged, json_in, matching, sync_directory
from anchorlab.runs.lock import Lock
from anchorlab.runs.metrics import MOST_ROWS, count_rows, read_metrics
from anchorlab.runs.names import checked_record, listed_files
from anchorlab.runs.pack import MOST_RUNS, SMALL, Pack, Packed, pack_with, packs_of, write_pack
from anchorlab.runs.run import Run

if TYPE_CHECKING:
    import polars

_MOST_BYTES = 2**28  # of the files of a pack
_PATIENCE = 10.0  # seconds to wait for another process that packs
_UNPACKED = ".unpacked-"

_Result = TypeVar("_Result")
_Whole = tuple[str, Mapping[str, Packed]]
"""A run: its address and all of its files."""


def pack_runs(root: Path, addresses: Iterable[str], put_aside: Callable[[Run], None]) -> list[str]:
    """Move runs from folders into packs, and return their addresses; small packs are merged.

    Unfinished, damaged and large runs, folders with foreign files, and links stay as they are.

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
        found = {address: _compared(root, address) for address in moved}
        _drop(root, {address for address in moved if found[address] == "other"})
        moved = [address for address in moved if found[address] != "unclear"]
        new = [address for address in moved if pack_with(root, address) is None]
        loose = [pack for pack in packs_of(root) if _is_small(pack)] if new else []
        whole = (_folder(Run(root / address)) for address in new)
        kept = (one for pack in loose for one in pack.runs(pack.keys))
        written = [_write(folder, batch) for batch in _batches(whole, kept)]
        for pack in loose:
            if pack not in written:  # a pack rewritten with the same runs has the same name
                pack.path.unlink()
        packed = {address for pack in packs_of(root) for address in pack.keys}
        gone = {address for address in new if address in packed and not (root / address).is_dir()}
        _drop(root, gone)  # these folders were removed while they were read
        moved = [address for address in moved if address in packed - gone]
        for address in moved:
            with suppress(StoreError):
                put_aside(Run(root / address))
        return moved


def unpack_runs(root: Path, addresses: Iterable[str]) -> list[str]:
    """Move runs from their packs into folders, and return the addresses of the runs that were packed.

    An existing folder takes precedence, unless it is incomplete, as after a power cut, and has no files of its own.

    Errors: `StoreError` for a damaged copy in a pack, and for a damaged folder with files that the pack lacks.
    """
    if not packs_of(root) and not left_behind(root):
        return []
    with _packing(root):
        left, moved = set(addresses), set[str]()
        written: list[tuple[Path, Path]] = []
        try:
            for pack in packs_of(root):
                for address, files in pack.runs(sorted(left & pack.keys.keys())):
                    run = Run(root / address)
                    if not _has_whole_folder(run, files):
                        written.append((run.path.with_name(f"{_UNPACKED}{address}-{secrets.token_hex(4)}"), run.path))
                        _unpack(run, files, written[-1][0])
                    moved.add(address)
                left -= moved
            if written:
                os.sync()  # else a power cut could leave folders without their content
            for temporary, path in written:
                discard(path)
                temporary.rename(path)
            if moved:
                sync_directory(root)  # else a power cut could lose the folders after their packs are gone
                _drop(root, moved)
        except OSError as error:
            raise StoreError(f"{error.filename or root}: cannot be written: {error.strerror}") from error
        finally:
            for temporary, _ in written:
                discard(temporary)
        return sorted(moved)


def drop_packed(root: Path, addresses: Collection[str]) -> None:
    """Remove runs from packs."""
    with _packing(root):
        _drop(root, set(addresses))


@contextmanager
def _packing(root: Path) -> Iterator[Path]:
    """Hold the lock of the packs and yield their folder, after removing leftovers. Errors: `InUseError`."""
    folder = root / "packs"
    lock = Lock(folder / "lock")
    lock.acquire(_PATIENCE)
    try:
        for left in left_behind(root):
            discard(left)
        seen: set[str] = set()
        for pack in sorted(packs_of(root), key=lambda one: -len(one.keys)):
            if pack.keys.keys() <= seen:  # a process was killed after writing a new pack, before removing this one
                pack.path.unlink()
            seen |= pack.keys.keys()
        yield folder
    finally:
        lock.release()


def left_behind(root: Path) -> list[Path]:
    """Return temporary files and folders of packing or unpacking; without the lock, they may still be in use."""
    return [*matching(root / "packs", ".*.tmp*"), *matching(root, f"{_UNPACKED}*")]


def _fits(run: Run) -> bool:
    """Return whether a run looks packable without reading its files: a finished, small run in a real folder."""
    return (
        is_plain_folder(run.path) and run.manifest_path.exists() and not run.state_path.exists() and run.size <= SMALL
    )


def _compared(root: Path, address: str) -> Literal["new", "same", "other", "unclear"]:
    """Compare the folder of a run with its copy in a pack.

    `new`: no pack holds the run. `same`: a pack holds the same run, or the folder is damaged and has no file that the
    intact packed copy lacks. `other`: the packed copy differs or is damaged, so the folder takes precedence. `unclear`:
    the folder is damaged and no intact packed copy has all of its files.
    """
    run, pack = Run(root / address), pack_with(root, address)
    if pack is None:
        return "new"
    packed = None
    with suppress(StoreError, OSError):
        ((_, files),) = pack.runs([address])
        _check(run, files)
        packed = files
    whole = _folder(run)
    if whole is None:
        return "same" if packed is not None and _holds_no_others(run, packed) else "unclear"
    name = run.manifest_path.name
    return "same" if packed is not None and packed[name].content == whole[1][name].content else "other"


def _has_whole_folder(run: Run, files: Mapping[str, Packed]) -> bool:
    """Return whether a run has an intact folder, which takes precedence over `files`, its copy in a pack.

    Errors: `StoreError` for a damaged folder with files that the copy lacks.
    """
    if not os.path.lexists(run.path):
        return False
    if not (problems := run.problems()) and run.manifest_path.exists():
        return True
    if _holds_no_others(run, files):
        return False
    problem = problems[0] if problems else f"{run.path}: unfinished"
    raise StoreError(f"{problem.partition('; ')[0]}; a pack holds the run: move this folder out of the store")


def _holds_no_others(run: Run, files: Mapping[str, Packed]) -> bool:
    """Return whether the folder of a run holds no files other than `files`, by name."""
    if not is_plain_folder(run.path):
        return False
    found = (path for path in run.path.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(run.path).as_posix() for path in found} <= {*files, "lock"}


def _is_small(pack: Pack) -> bool:
    return len(pack.keys) < MOST_RUNS // 2 and pack.path.stat().st_size < _MOST_BYTES // 2


def _folder(run: Run) -> _Whole | None:
    """Read a run from its folder; None if the run is damaged or large, has foreign files, or is gone."""
    try:
        check_tree(run.path)
        paths = {path.relative_to(run.path).as_posix(): path for path in run.path.rglob("*") if not path.is_dir()}
        paths.pop("lock", None)  # left by a process that opened the run
        files = {name: Packed(read_plain(path, SMALL), path.lstat().st_mtime_ns) for name, path in paths.items()}
        _check(run, files)
        if count_rows(files[run.metrics_path.name].content) >= MOST_ROWS:
            return None
    except (StoreError, OSError, ValueError):
        return None
    return run.address, files


def _check(run: Run, files: Mapping[str, Packed]) -> None:
    """Raise `StoreError` unless `files` are exactly the files that the run's manifest lists, undamaged."""
    manifest, spec = run.manifest_path.name, run.spec_path.name
    if manifest not in files:
        raise damaged(run.manifest_path, "missing", run.address)
    with damage_in(run.manifest_path, run.address):
        listed = listed_files(json_in(run.manifest_path, files[manifest].content, run.address))
    if {*listed, manifest} != files.keys():
        raise damaged(run.manifest_path, "lists other files than there are", run.address)
    for name, expected in listed.items():
        check_content(run.path / name, files[name].content, expected, run.address)
    for path in (run.spec_path, run.metrics_path):
        if path.name not in listed:
            raise damaged(path, "missing", run.address)
    with damage_in(run.spec_path, run.address):
        checked_record(json_in(run.spec_path, files[spec].content, run.address), run.address)


def _batches(*sources: Iterable[_Whole | None]) -> Iterator[list[_Whole]]:
    """Yield batches of runs, each as large as a pack may be.

    If a run comes twice, from packs that a killed process left behind, the first one is used.
    """
    batch: list[_Whole] = []
    size, rows, seen = 0, 0, set[str]()
    for one in (one for source in sources for one in source if one is not None):
        if one[0] in seen:
            continue
        seen.add(one[0])
        own = sum(len(file.content) for file in one[1].values())
        own_rows = _of_table(count_rows, *one)
        if batch and (len(batch) == MOST_RUNS or size + own > _MOST_BYTES or rows + own_rows >= MOST_ROWS):
            yield batch
            batch, size, rows = [], 0, 0
        batch.append(one)
        size, rows = size + own, rows + own_rows
    if batch:
        yield batch


def _write(folder: Path, runs: Iterable[_Whole]) -> Pack:
    """Write a pack of runs, sorted by address, with their table of metrics."""
    ordered = sorted(runs, key=lambda one: one[0])
    return write_pack(folder, ordered, _metrics(ordered))


def _metrics(runs: Iterable[_Whole]) -> "polars.DataFrame":
    """Return the metrics of runs as one table, with the address in a first column `run`."""
    import polars as pl

    tables = ((run[0], _of_table(read_metrics, *run)) for run in runs)
    return pl.concat([table.select(pl.lit(address).alias("run"), pl.all()) for address, table in tables])


def _of_table(read: Callable[[bytes], _Result], address: str, files: Mapping[str, Packed]) -> _Result:
    """Return `read(content)` for a run's table of metrics. Errors: `StoreError` if the table is damaged."""
    name = "metrics.parquet"
    try:
        return read(files[name].content)
    except (KeyError, ValueError) as error:
        raise damaged(Path(address, name), str(error), address) from None


def _unpack(run: Run, files: Mapping[str, Packed], folder: Path) -> None:
    """Write the files of a run into a new folder. Errors: `StoreError` for damaged files; `OSError` from writing."""
    _check(run, files)
    for name, (content, changed) in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        os.utime(folder / name, ns=(changed, changed))


def _drop(root: Path, addresses: Collection[str]) -> None:
    """Remove runs from packs: rewrite each pack that holds some of them without them."""
    for pack in packs_of(root):
        if addresses & pack.keys.keys():
            rest = [address for address in pack.keys if address not in addresses]
            if rest:
                _write(pack.path.parent, pack.runs(rest))
            pack.path.unlink()
            sync_directory(pack.path.parent)
