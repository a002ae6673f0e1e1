"""A short form of `make faults`, and that it notices what it looks for."""

import os
import shutil
import time
from dataclasses import replace

import pytest

from tests.engine.killed import contents
from tests.faults import bit_flips, power_cuts
from tests.faults.case import Case
from tests.faults.crews import Alone, Fault, give_up
from tests.faults.judge import judged, wrong
from tests.faults.moments import PLACES, Moment, place_of, struck
from tests.faults.play import SHARES, cases, counts
from tests.faults.readings import Reading, differences, readings
from tests.faults.report import Part, report
from tests.faults.roles import DRIVER, Place, Said, kill_alive, start
from tests.processes import processes
from tests.small_disk import NoDiskError

pytestmark = [pytest.mark.killed, pytest.mark.slow, pytest.mark.nightly]


@pytest.mark.parametrize(("backend", "count"), [("local", 2), ("folder", 1)])
def test_kills_cost_nothing(expected, tmp_path, backend, count):
    found = list(cases(backend, count, 5, expected, tmp_path))
    assert sum(len(one.faults) for one in found) >= count
    assert [one for one in found if one.cost] == []


def test_a_full_disk_costs_nothing(expected, tmp_path):
    try:
        (found,) = cases("full-disk", 1, 0, expected, tmp_path)
    except NoDiskError as error:
        pytest.skip(str(error))
    assert (found.cost, len(found.faults)) == ([], 1)


def test_two_owners_cost_nothing(expected, tmp_path):
    found = list(cases("two-owners", 1, 0, expected, tmp_path))
    assert [one for one in found if one.cost] == [] and found[-1].faults[0].act == "two owners"


def test_flipped_bits_are_detected_or_harmless(expected, tmp_path):
    found = list(cases("bit-flip", 30, 0, expected, tmp_path))
    assert [one for one in found if one.cost] == []
    assert {one.faults[0].act for one in found} == {"detected", "harmless"}
    assert {one.faults[0].role for one in found} == {"finished", "unfinished"}


@pytest.mark.parametrize("name", ["metrics.parquet", "spec.json", "checkpoints/step-00000008.safetensors"])
def test_a_changed_byte_is_noticed(expected, hurt_copy, name):
    place = hurt_copy
    path = next(path for path in sorted(place.root.rglob(name.rpartition("/")[2])) if path.is_file())
    bit_flips.flip(path, 8 * 40 + 3)
    assert any(str(path) in words or str(path.relative_to(place.root)) in words for words in wrong(place, expected))


def test_what_is_missing_other_or_left_behind_is_noticed(expected, hurt_copy):
    place = hurt_copy
    run = next(path for path in sorted(place.root.iterdir()) if (path / "checkpoints").exists())
    shutil.rmtree(run)
    (place.root / "studies" / ".half.tmp").write_bytes(b"half")
    found = wrong(place, expected)
    assert f"{run.name}/metrics.parquet is missing" in found
    assert "studies/.half.tmp was left behind" in found
    other = replace(expected, outcome={**expected.outcome, "findings": b"another number"})
    assert "findings has other bytes" in wrong(place, other)


def test_a_driver_that_takes_too_long_is_not_called_killed(hurt_copy, expected):
    driver = processes.Process(target=time.sleep, args=(300,))
    driver.start()
    give_up(hurt_copy, driver)
    assert not driver.is_alive()
    assert wrong(hurt_copy, expected) == ["the study is not complete: TimeoutError: the study took longer than 300 s"]


def test_a_study_that_is_not_complete_is_noticed(expected, hurt_copy):
    place = hurt_copy
    place.said.unlink()
    assert wrong(place, expected) == ["the study is not complete: its driver was killed"]
    judged(place, Said("IncompleteError", "a piece failed"))
    assert wrong(place, expected) == ["the study is not complete: IncompleteError: a piece failed"]


def test_an_error_without_a_remedy_is_noticed(expected, hurt_copy):
    place = hurt_copy

    def fail():
        raise OSError(28, "No space left on device")

    assert Said.of(fail, place).own is False
    assert any(one.startswith("an error without a remedy: OSError") for one in wrong(place, expected))


def test_a_kill_that_does_not_happen_does_not_count(tmp_path):
    child = start(os.getpid)
    child.join()
    assert not kill_alive(child.pid)
    place = Place(tmp_path / "late")
    place.disk.mkdir(parents=True)
    crew = Alone(place)
    crew.turn(Fault(DRIVER, Moment("manifest that nobody writes", 1)))
    assert struck(place.record) == [] and crew.driver.exitcode == 0
    crew.turn(Fault(DRIVER, Moment("findings", 2)))
    (found,) = struck(place.record)
    assert (found.place, found.process, crew.driver.exitcode) == ("findings", crew.driver.pid, -9)


def test_a_kill_in_the_middle_of_a_file_leaves_that_share_of_it(tmp_path):
    place = Place(tmp_path / "torn")
    place.disk.mkdir(parents=True)
    sizes = set()
    for number in range(1, 5):
        Alone(place).turn(Fault(DRIVER, Moment("state", number, share=0.5)))
        sizes |= {path.stat().st_size for path in place.root.rglob("state/chunk-*/.*.tmp")}
    assert len(struck(place.record)) == 4 and max(sizes) > 0


def test_every_file_of_a_store_has_a_place(expected):
    found = {place_of(name) for name in contents(expected.place.root)}
    assert found == {"run", "end of a run", "merge", "findings"}
    assert set(expected.counts) <= set(PLACES) and len(expected.counts) == len(PLACES) - 1  # no notes


def test_a_reading_that_differs_without_a_word_is_noticed(expected):
    root, before = bit_flips.prepare(expected.place).finished
    path = root / "0123456789abcdef0123" / "metrics.parquet"
    assert differences(before, readings(root), path) == (False, [])
    name = "metrics of all runs"
    for now, noticed, costs in [
        (Reading("other numbers"), False, 1),
        (Reading(error=f"{path}: damaged"), True, 0),
        (Reading(error="something is damaged"), True, 1),
        (Reading(error=f"KeyError: {path}", clear=False), True, 1),
    ]:
        said, wrong_ones = differences(before, {**before, name: now}, path)
        assert (said, len(wrong_ones)) == (noticed, costs)
    assert differences(before, {key: one for key, one in before.items() if key != name}, path)[1]


def test_the_report_counts_what_happened_and_names_what_it_cost():
    found = Case("local:3", late=2, cost=["/tmp/a/disk/store/1/spec.json is missing"])
    part = Part("kills, one process", 1, [found])
    text = report([part], 7, 60.0)
    assert "| kills, one process | 0 | 1 | 2 | 1 |" in text
    assert "- `local:3`: store/1/spec.json is missing" in text and "Seed 7" in text


def test_the_kills_are_shared_by_the_backends():
    assert sum(SHARES.values()) == 100
    found = counts(201, 3, 4, 5, 6, 7)
    assert sum(found[name] for name in SHARES) == 201
    assert (found["full-disk"], found["bit-flip"], found["two-owners"]) == (3, 4, 5)
    assert (*(found[kind] for kind in power_cuts.KINDS), found["stopped"]) == (6, 6, 7)
