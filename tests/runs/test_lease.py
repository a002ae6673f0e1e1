"""Claims on a directory: how long they hold, and for whom."""

import os
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from anchorlab.runs.atomic_files import write_json
from anchorlab.runs.lease import LEASE, NAME, Lease, Owner, holder

pytestmark = pytest.mark.nightly


def test_a_claim_is_renewed_well_within_its_lease(tmp_path):
    claim = Lease(tmp_path, lease=4.0)
    claim.write()
    try:
        os.utime(tmp_path / NAME, (0, 0))
        end = time.monotonic() + claim.lease
        while (tmp_path / NAME).stat().st_mtime == 0:
            assert time.monotonic() < end, "silent for its lease"
            time.sleep(0.02)
        assert holder(tmp_path) == str(claim.owner)
    finally:
        claim.release()
    assert holder(tmp_path) is None and not (tmp_path / NAME).exists()


def started(process):
    """When a process began, as proc(5) has it: field 22, counted after the name in parentheses, which is the second."""
    path = Path(f"/proc/{process}/stat")
    return path.read_text().rpartition(")")[2].split()[22 - 3] if path.exists() else "running"


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({}, True),
        ({"started": "1"}, False),  # it has ended, and its number was given to another
        ({"process": 2**30}, False),  # no process has this number
        ({"process": 2**30, "machine": "another"}, True),  # which cannot be asked
    ],
    ids=["lives", "number given again", "ended", "elsewhere"],
)
def test_a_claim_holds_while_its_own_process_lives(tmp_path, changes, holds):
    parent = replace(Owner.new(), process=os.getppid(), started=started(os.getppid()))
    owner = replace(parent, **changes)
    write_json(tmp_path, NAME, {**asdict(owner), "lease": 60.0})
    assert holder(tmp_path) == (f"process {owner.process} on {os.uname().nodename}" if holds else None)


@pytest.mark.parametrize("lease", [60.0, None], ids=["its own lease", "the usual one, where it cannot be opened"])
def test_a_claim_that_was_not_renewed_for_its_lease_is_free(tmp_path, lease):
    if lease is None:
        (tmp_path / NAME).mkdir()
    else:
        write_json(tmp_path, NAME, {**asdict(replace(Owner.new(), machine="another")), "lease": lease})
    limit = lease or LEASE
    for age, held in ((limit - 20, True), (limit + 20, False)):
        os.utime(tmp_path / NAME, (time.time() - age,) * 2)
        assert (holder(tmp_path) is not None) == held


@pytest.mark.parametrize(
    "changes",
    [{"lease": None}, {"lease": 1e18}, {"lease": 0.0}, {"process": "12"}, {"process": 0}, {"token": 3}],
    ids=str,
)
def test_a_claim_with_fields_that_we_never_write_is_free_at_once(tmp_path, changes):
    honest = {**asdict(replace(Owner.new(), machine="another")), "lease": 60.0}
    write_json(tmp_path, NAME, honest)
    assert holder(tmp_path) is not None
    write_json(tmp_path, NAME, honest | changes)
    assert holder(tmp_path) is None


@pytest.mark.parametrize("keep", [0, 40])
def test_a_claim_that_a_power_cut_has_damaged_is_free_at_once_and_its_owner_stops(tmp_path, keep):
    claim = Lease(tmp_path)
    claim.write()
    try:
        assert claim.holds
        os.truncate(tmp_path / NAME, keep)
        assert holder(tmp_path) is None and not claim.holds
    finally:
        claim.release()
