"""Workers that are stopped beyond their lease cost nothing, and the harness notices who has taken what they held."""

import os

import pytest

from anchorlab.runs.atomic_files import write_json
from anchorlab.runs.lease import Lease
from tests.faults import stopped
from tests.faults.play import cases

pytestmark = [pytest.mark.killed, pytest.mark.slow, pytest.mark.nightly]


def test_stopped_workers_cost_nothing(expected, tmp_path):
    found = list(cases("stopped", 1, 0, expected, tmp_path))
    assert [one for one in found if one.cost] == [] and found[-1].faults[0].act == "stopped"


def test_a_worker_that_fails_is_noticed(expected, tmp_path, monkeypatch):
    monkeypatch.setattr(stopped, "work", _fail)
    monkeypatch.setattr(stopped, "HANGS", 3.0)  # without workers the study does not end
    found = stopped.case(0, 0, expected, tmp_path / "case")
    assert found.cost == ["a worker ended with exit code 3"] * 2 + ["the study is not complete: its driver was killed"]


def _fail(*arguments):
    os._exit(3)


def test_what_is_held_is_taken_when_its_file_is_another(tmp_path):
    claim = Lease(tmp_path)
    claim.write()
    (tmp_path / "lock").write_text(f"process {os.getpid()} on here")
    held = stopped._held(tmp_path, os.getpid())
    assert {path.name for path, _ in held} == {"claim.json", "lock"}
    assert stopped._held(tmp_path, os.getpid() + 1) == [] and not any(map(stopped._is_taken, held))
    (tmp_path / "kept").hardlink_to(tmp_path / "claim.json")  # so that its number is not used again
    write_json(tmp_path, "claim.json", {"process": 1, "token": "another"})
    assert [path.name for path, _ in held if stopped._is_taken((path, _))] == ["claim.json"]
    claim.release()
