"""Which runs nothing needs, and that none that is needed or in use is removed."""

import pytest

from anchorlab.errors import StoreError
from anchorlab.runs import KINDS, Cell, Entry, Index, Use, record_use, removable, studies_by_run, uses
from anchorlab.runs.references import read_use
from tests.runs.tiny_trainer import contents, held, train


def spec(number, **more):
    return {"members": [number, 1, 2], "format": 1, **more}


def entry(number, state="finished", **more):
    made = spec(number, **more)
    return Entry(Cell(made).address, state, "", 3, 10, 0, {} if state == "damaged" else made)


def kinds(entries, used):
    numbers = {one.address: at for at, one in enumerate(entries)}
    return {kind: [numbers[one.address] for one in runs] for kind, runs in removable(entries, used).items()}


def use(current=(), earlier=(), study="own/one"):
    return Use(study, "quick", frozenset(one.address for one in current), frozenset(one.address for one in earlier))


def test_every_run_is_of_one_kind_or_needed():
    runs = [entry(0), entry(1), entry(2), entry(3, "unfinished"), entry(4, "damaged")]
    found = kinds(runs, [use(runs[:1], runs[1:2])])
    assert found == {"orphans": [2], "superseded": [1], "unfinished": [3], "damaged": [4]}
    assert set(found) == set(KINDS)


def test_a_run_is_needed_as_long_as_any_findings_name_it():
    runs = [entry(0), entry(1)]
    found = kinds(runs, [use(runs, study="own/one"), use((), runs[:1], study="own/two")])
    assert not any(found.values())
    assert kinds(runs, [use((), runs[:1]), use((), runs)])["superseded"] == [0, 1]


def test_runs_of_an_older_format_are_superseded():
    runs = [entry(0), entry(1, format=2)]
    assert kinds(runs, []) == {"orphans": [1], "superseded": [0], "unfinished": [], "damaged": []}


def test_what_a_needed_or_unfinished_run_started_from_is_kept():
    first = entry(0)
    second = entry(1, start=first.spec)
    third = entry(2, start=second.spec)
    assert kinds([first, second, third], [use([third])])["orphans"] == []
    assert kinds([first, second, third], [])["orphans"] == [0, 1, 2]
    resumed = entry(3, "unfinished", start=second.spec)
    assert kinds([first, second, resumed], []) == {"orphans": [], "superseded": [], "unfinished": [2], "damaged": []}


def test_uses_are_recorded_with_those_before(tmp_path):
    folder = tmp_path / "studies" / "own-one" / "quick"
    folder.mkdir(parents=True)
    assert read_use(folder) is None and uses(tmp_path) == []
    record_use(folder, "own/one", "quick", ["a", "b"])
    assert uses(tmp_path) == [Use("own/one", "quick", frozenset("ab"))]
    record_use(folder, "own/one", "quick", ["b", "c"])
    record_use(folder, "own/one", "quick", ["c", "d"])
    assert uses(tmp_path) == [Use("own/one", "quick", frozenset("cd"), frozenset("ab"))]
    record_use(folder, "own/one", "quick", ["a"])
    assert uses(tmp_path) == [Use("own/one", "quick", frozenset("a"), frozenset("bcd"))]
    other = tmp_path / "studies" / "own-two" / "quick"
    other.mkdir(parents=True)
    record_use(other, "own/two", "quick", ["a", "e"])
    assert studies_by_run(tmp_path) == {"a": {"own/one", "own/two"}, "e": {"own/two"}}


def test_a_file_in_place_of_the_folder_of_studies_has_no_uses(tmp_path):
    (tmp_path / "studies").write_text("mine")
    assert uses(tmp_path) == [] and studies_by_run(tmp_path) == {}


def test_a_damaged_record_is_named_until_the_study_writes_it_anew(tmp_path):
    """Passed over, it would make orphans of runs that findings need."""
    folder = tmp_path / "studies" / "own-one" / "quick"
    folder.mkdir(parents=True)
    record_use(folder, "own/one", "quick", ["a", "b"])
    path = folder / "runs.json"
    whole = path.read_bytes()
    for damaged in (b"{}", whole[:-9], whole.replace(b'"a"', b'"c"')):
        path.write_bytes(damaged)
        for reading in (read_use, lambda _: uses(tmp_path), lambda _: studies_by_run(tmp_path)):
            with pytest.raises(StoreError, match=rf"^{path}: damaged: .*; run its study again") as caught:
                reading(folder)
            assert "\n" not in str(caught.value)
    record_use(folder, "own/one", "quick", ["d"])
    assert uses(tmp_path) == [Use("own/one", "quick", frozenset("d"))]


@pytest.fixture
def cells(store):
    found = [Cell(spec(number)) for number in range(3)]
    for cell in found:
        train(store, cell)
    return found


def test_nothing_is_removed_while_a_process_trains(store, cells):
    before = contents(store.root)
    with held(store.training):
        outcome = store.remove_all([cells[0].address, "0" * 20])
        assert "in use by process" in str(outcome[cells[0].address])
        assert "no run begins with" in str(outcome["0" * 20])
        assert contents(store.root) == before
    outcome = store.remove_all([cells[0].address, cells[1].address])
    assert outcome == {cells[0].address: None, cells[1].address: None}
    assert [one.address for one in Index(store.root).entries()] == [cells[2].address]
