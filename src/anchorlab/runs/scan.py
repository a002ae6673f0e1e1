"""What the run directories say: which runs there are, when they changed, and what an index keeps of each."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from anchorlab.errors import StoreError
from anchorlab.plain import check_way, parse_json, read_plain
from anchorlab.runs.entry import Entry
from anchorlab.runs.files import Fingerprint, fingerprint, is_intact
from anchorlab.runs.names import is_address, listed_files
from anchorlab.runs.pack import Key, Pack, packs_of, wherever, with_packs
from anchorlab.runs.record import checked_record
from anchorlab.runs.run import Run

NO_MANIFEST = -1
"""In place of the size of the manifest that an unfinished run does not have."""

_MOST = 2**60  # the largest size that is kept; SQLite's integers end at 2**63

_Result = TypeVar("_Result")


class Found(NamedTuple):
    """What an index keeps of a run: `size` is 0 for an unfinished run, which grows."""

    label: str
    members: int
    size: int
    spec: Mapping[str, Any]
    environments: list[dict[str, str | None]]


class Tables(NamedTuple):
    """Where undamaged tables of metrics are: those of folders by address, and the addresses in each pack."""

    paths: dict[str, Path]
    packed: dict[Pack, list[str]]

    @property
    def addresses(self) -> set[str]:
        """The runs whose tables they are."""
        return {*self.paths, *(address for addresses in self.packed.values() for address in addresses)}

    def one_by_one(self) -> "list[Tables]":
        """Return the tables of each folder and of each pack by themselves."""
        folders = [Tables({address: path}, {}) for address, path in self.paths.items()]
        return [*folders, *(Tables({}, {pack: addresses}) for pack, addresses in self.packed.items())]


def present(root: Path) -> dict[str, Key]:
    """Return the key of every run in a store by its address: of an unfinished one, when its specification changed."""
    keys, packs = with_packs(root, lambda: _in_folders(root))
    for pack in packs:
        keys = {**pack.keys, **keys}
    return keys


def _in_folders(root: Path) -> dict[str, Key]:
    """Return the keys of the runs that have folders, or links to some, which are damaged.

    This loop takes most of the time of a list.
    """
    keys: dict[str, Key] = {}
    stat, folder = os.stat, os.open(root, os.O_RDONLY)  # paths below an open folder are found faster
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not is_address(name := entry.name):
                    continue
                if entry.is_symlink():
                    keys[name] = 0, NO_MANIFEST
                    continue
                try:
                    status = stat(f"{name}/manifest.json", dir_fd=folder, follow_symlinks=False)
                    keys[name] = status.st_mtime_ns, status.st_size
                except OSError:
                    if entry.is_dir(follow_symlinks=False):
                        keys[name] = _changed(root / name / "spec.json"), NO_MANIFEST
    finally:
        os.close(folder)
    return keys


def _changed(path: Path) -> int:
    with suppress(OSError):
        return path.lstat().st_mtime_ns
    return 0


def read(run: Run) -> Found | None:
    """Return what an index keeps of a run: None if it is damaged, nothing in any field if it has only a folder.

    The specification of a finished run is compared with the manifest, and this with its own checksum.
    """
    try:
        if run.finished:
            manifest = run.content(run.manifest_path.name)
            files = _files(manifest)
            spec = _intact(run.content(run.spec_path.name), files, run.spec_path.name)
            record = checked_record(parse_json(spec), run.address)
            size = sum(one.size for one in files.values()) + len(manifest)
        elif run.is_empty:
            return Found("", 0, 0, {}, [])
        else:
            record, size = {"label": run.label, "spec": run.spec, "environments": run.environments}, 0
        members = record["spec"].get("members")
        seeds = members.get("seeds", ()) if isinstance(members, Mapping) else members or ()
        return Found(record["label"], len(seeds), min(size, _MOST), record["spec"], record["environments"])
    except (StoreError, OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def with_tables(root: Path, addresses: Sequence[str], work: Callable[[Tables], _Result]) -> _Result:
    """Return what `work` makes of the tables of metrics of finished runs; damaged ones are left out."""
    return wherever(lambda: work(_intact_tables(root, addresses)))


def _intact_tables(root: Path, addresses: Iterable[str]) -> Tables:
    found, packs = Tables({}, {}), packs_of(root)
    for address in addresses:
        run = Run(root / address)
        path = run.metrics_path
        try:
            check_way(path, root)
            expected = _files(read_plain(run.manifest_path))[path.name]
            if fingerprint(path) != expected:
                raise ValueError(f"{path.name} is damaged")
            found.paths[address] = path
        except FileNotFoundError:
            pack = None if run.path.is_dir() else next((one for one in packs if address in one.keys), None)
            if pack is not None:
                found.packed.setdefault(pack, []).append(address)
            elif run.pack is not None or (run.metrics_path.exists() and run.manifest_path.exists()):  # by now
                raise
        except (StoreError, OSError, ValueError, LookupError):
            continue
    return found


def entry_of(run: Run) -> Entry:
    """Return the entry of a run, read from its directory."""
    found = read(run)
    if found is None:
        return Entry(run.address, "damaged", "", 0, run.size, 0, begun(run))
    label, members, size, spec, environments = found
    state, size = ("finished", size) if run.finished else ("unfinished", run.size)
    return Entry(run.address, state, label, members, size, 0, begun(run), spec, environments)


def begun(run: Run) -> float:
    """Return when a run was begun, or finished; 0 for one that has been removed since."""
    with suppress(OSError):
        return run.modified
    return 0.0


def _files(manifest: bytes) -> Mapping[str, Fingerprint]:
    """Return what a manifest says of each file. Errors: `ValueError` if it is damaged."""
    if not is_intact(manifest):
        raise ValueError("the manifest is damaged")
    return listed_files(parse_json(manifest))


def _intact(content: bytes, files: Mapping[str, Fingerprint], name: str) -> bytes:
    """Return the content of a file of a run. Errors: `ValueError` if it is not what the manifest says."""
    if hashlib.sha256(content).hexdigest() != files[name].sha256:
        raise ValueError(f"{name} is damaged")
    return content
