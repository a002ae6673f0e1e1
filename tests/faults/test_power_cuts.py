"""Power cuts cost nothing, what is synchronised alone survives them, and the harness notices when it does not."""

import json
import os
import random

import polars as pl
import pytest
import torch

from anchorlab.runs import Cell, Store
from anchorlab.runs.atomic_files import fingerprint, write_file, write_json
from tests.faults.durable import Account, PowerCut, begin_account, keep_account
from tests.faults.judge import judged, unreadable, wrong
from tests.faults.play import cases
from tests.faults.power_cuts import NEWEST, UNSYNCHRONISED, empty_newest, resume, unnoticed, wrong_numbers
from tests.faults.roles import Place, Said, read_said, start

pytestmark = [pytest.mark.killed, pytest.mark.slow, pytest.mark.nightly]


@pytest.mark.parametrize("kind", [NEWEST, UNSYNCHRONISED])
def test_power_cuts_cost_nothing(expected, tmp_path, kind):
    found = list(cases(kind, 1, 2, expected, tmp_path))
    assert sum(len(one.faults) for one in found) >= 1
    assert [one for one in found if one.cost] == []


def in_a_process(work, place):
    """Let a process that keeps account do some work in a store, and end; return what it has made durable."""
    place.root.mkdir(parents=True)
    (place.root / "before").write_bytes(b"old")
    begin_account(place.root, place.account)
    child = start(_account, work, place)
    child.join()
    assert child.exitcode == 0
    return Account(place.account)


def _account(work, place):
    keep_account(place.root, place.account)
    work(place.root)


def cut(root, account, share):
    """Cut the power, and keep that share of the names that are not durable; all else is drawn with it."""
    power = PowerCut(root, account, random.Random(0))
    power.kept_share = share
    return power.happen()


def _write(root):
    write_file(root, "whole", [b"whole"])
    (root / "folder").mkdir()
    write_file(root / "folder", "inside", [b"inside"])
    (root / "loose").write_bytes(bytes(1000))
    (root / "before").rename(root / "after")


def test_only_what_was_synchronised_survives(tmp_path):
    place = Place(tmp_path)
    account = in_a_process(_write, place)
    found = cut(place.root, account, 0.0)
    assert {path.name: path.read_bytes() for path in place.root.iterdir()} == {"whole": b"whole", "before": b"old"}
    assert sorted(line.split(":")[0] for line in found) == ["after", "before", "folder", "loose"]


def test_names_may_survive_without_content(tmp_path):
    place = Place(tmp_path)
    account = in_a_process(_write, place)
    cut(place.root, account, 1.0)
    assert {path.name for path in place.root.iterdir()} == {"whole", "after", "folder", "loose"}
    assert (place.root / "folder" / "inside").read_bytes() == b"inside"


def test_content_that_was_not_synchronised_is_lost_in_part_or_as_a_whole_or_not(tmp_path):
    place = Place(tmp_path)
    cut(place.root, in_a_process(_loose, place), 0.5)
    sizes = [path.stat().st_size for path in place.root.glob("loose*")]
    assert {0, 1000} < set(sizes) and len(sizes) in range(5, 36)


def _loose(root):
    for number in range(40):
        (root / f"loose-{number}").write_bytes(bytes(1000))


def _remove(root):
    write_file(root, "new", [b"new"])
    (root / "before").unlink()
    (root / "new").unlink()


def test_a_removal_that_was_not_synchronised_may_be_lost(tmp_path):
    place = Place(tmp_path)
    cut(place.root, in_a_process(_remove, place), 0.0)
    assert {path.name: path.read_bytes() for path in place.root.iterdir()} == {"before": b"old", "new": b"new"}


def test_after_a_start_of_the_machine_everything_is_durable(tmp_path):
    place = Place(tmp_path)
    in_a_process(_write, place)
    (place.root / "again").hardlink_to(place.root / "loose")
    begin_account(place.root, place.account)
    assert cut(place.root, Account(place.account), 0.0) == []
    assert (place.root / "again").samefile(place.root / "loose")
    assert (place.root / "loose").read_bytes() == bytes(1000) and (place.root / "after").read_bytes() == b"old"


def _merge(root):
    cell = Cell({"format": 1}, label="a run")
    with Store(root).open(cell) as run:
        run.plan([[0], [1]])
        with run.chunk(0) as chunk:
            chunk.write_checkpoint(2, {"weight": torch.zeros(1)})
            run.move_checkpoint(2, chunk.checkpoint_path(2))
        run.write_checkpoint(3, {"weight": torch.ones(2)})


def test_a_merged_checkpoint_is_durable_before_its_parts_are_removed(tmp_path):
    place = Place(tmp_path)
    cut(place.root, in_a_process(_merge, place), 0.0)
    (notes,) = place.root.glob("*/state/merged")
    assert sorted(path.stem for path in notes.iterdir()) == ["2", "3"]
    (merged,) = place.root.glob("*/checkpoints")
    assert sorted(path.stat().st_size > 0 for path in merged.iterdir()) == [True, True]


def _name_without_content(root):
    (run,) = (path for path in root.iterdir() if (path / "manifest.json").exists())
    (run / "spec.json.new").write_bytes((run / "spec.json").read_bytes())
    (run / "spec.json.new").rename(run / "spec.json")
    descriptor = os.open(run, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def test_a_name_that_is_synchronised_before_its_content_is_noticed(expected, hurt_copy):
    runs = [path for path in hurt_copy.root.iterdir() if (path / "manifest.json").exists()]
    for run in runs[1:]:
        (run / "manifest.json").unlink()
        (run / "metrics.parquet").unlink()
    begin_account(hurt_copy.root, hurt_copy.account)
    child = start(_account, _name_without_content, hurt_copy)
    child.join()
    assert unreadable(hurt_copy) == []
    power = PowerCut(hurt_copy.root, Account(hurt_copy.account), random.Random(3))
    assert [line for line in power.happen() if "spec.json" in line]
    assert any("spec.json" in line for line in unreadable(hurt_copy))


def test_the_newest_files_are_empty_and_named(expected, hurt_copy):
    run = next(path for path in hurt_copy.root.iterdir() if (path / "manifest.json").exists())
    dates = {"metrics.parquet": 2e9, "spec.json": 2e9 + 1, "lock": 2e9 + 2}
    for name, date in dates.items():
        path = run / name
        path.touch()
        os.utime(path, (date, date))
    found = empty_newest(hurt_copy.root, Two())
    assert found == [run / "metrics.parquet", run / "spec.json"]
    assert [path.stat().st_size for path in found] == [0, 0] and found[1].stat().st_mtime == 2e9 + 1
    assert unnoticed(hurt_copy.root, [run / "spec.json"]) == []
    other = f"{run.name}/manifest.json"
    assert unnoticed(hurt_copy.root, [hurt_copy.root / other]) == [f"`runs check` does not name {other}"]
    os.truncate(hurt_copy.root / other, 0)
    assert unnoticed(hurt_copy.root, [*found, hurt_copy.root / other]) == []
    assert wrong(hurt_copy, expected) != []


class Two(random.Random):
    """Draws two of whatever is counted."""

    def randint(self, least, most):
        return 2


def test_a_store_that_says_that_all_is_well_is_noticed(hurt_copy):
    run = next(path for path in hurt_copy.root.iterdir() if (path / "manifest.json").exists())
    assert "`runs check` says that all is well" in unnoticed(hurt_copy.root, [run / "spec.json"])


def test_wrong_numbers_are_noticed(expected, hurt_copy):
    assert wrong_numbers(hurt_copy.root, expected) == []
    run = next(path for path in sorted(hurt_copy.root.iterdir()) if (path / "manifest.json").exists())
    table = pl.read_parquet(run / "metrics.parquet")
    table.with_columns(pl.col("value") + 1.0).write_parquet(run / "metrics.parquet")
    data = json.loads((run / "manifest.json").read_bytes())
    del data["checksum"]
    size, digest = fingerprint(run / "metrics.parquet")
    data["files"]["metrics.parquet"] = {"size": size, "sha256": digest}
    write_json(run, "manifest.json", data)
    assert wrong_numbers(hurt_copy.root, expected) == [f"{run.name} gives wrong numbers"]


class Broken:
    """A crew whose study always ends with the same words."""

    def __init__(self, place, words):
        self.place, self.said, self.turns = place, Said("StoreError", words), 0

    def turn(self, fault):
        self.turns += 1
        judged(self.place, self.said)


def test_a_resumption_that_fails_is_noticed(hurt_copy):
    run = next(path for path in sorted(hurt_copy.root.iterdir()) if (path / "manifest.json").exists())
    vague = Broken(hurt_copy, "something is damaged")
    assert resume(vague, hurt_copy, [run / "spec.json"]) == [
        "the error does not name a damaged file and what helps: StoreError: something is damaged"
    ]
    useless = Broken(hurt_copy, f"{run}/spec.json: damaged; remove it with `anchorlab runs remove {run.name}`")
    (found,) = resume(useless, hurt_copy, [run / "spec.json", run / "manifest.json"])[-1:]
    assert found.startswith("the remedy does not help: ")
    assert not run.exists() and read_said(hurt_copy) == useless.said
