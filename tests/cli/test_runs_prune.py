"""`anchorlab runs prune`, `runs diff`, `runs remove` and `runs check`."""

import json
import os
import time

import pytest

from tests.runs.tiny_trainer import held


@pytest.fixture
def runs(trained, small):
    """Two runs that no findings need: one layer, and two."""
    own = [one for one in small if not one.startswith("--model.layers")]
    return [trained("anchor/identity", *own, f"--model.layers={layers}") for layers in (1, 2)]


def left(anchorlab):
    return {one["run"] for one in json.loads(anchorlab("runs", "--json").out)}


def test_without_a_kind_runs_are_only_counted(anchorlab, runs, workplace):
    said = anchorlab("runs", "prune")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[1].split()[:2] == ["orphans", "2"]
    assert "nothing was removed; name kinds to remove them" in said.out
    found = json.loads(anchorlab("runs", "prune", "--json").out)
    assert {kind: len(found[kind]["runs"]) for kind in ("orphans", "superseded", "unfinished", "damaged")} == {
        "orphans": 2, "superseded": 0, "unfinished": 0, "damaged": 0,
    }  # fmt: skip
    assert found["orphans"]["bytes"] == sum(
        one.stat().st_size for run in runs for one in (workplace / "runs" / run).rglob("*") if one.is_file()
    )
    assert left(anchorlab) == set(runs)


def test_runs_are_removed_with_yes(anchorlab, runs):
    said = anchorlab("runs", "prune", "orphans", "--where", "layers=1", "--yes")
    assert said.code == 0 and said.out.splitlines()[-1].startswith("removed 1 run, ")
    assert left(anchorlab) == {runs[1]}
    found = json.loads(anchorlab("runs", "prune", "orphans", "--yes", "--json").out)
    assert (found["removed"], found["kept"]) == ([runs[1]], {}) and found["bytes"] > 0
    assert json.loads(anchorlab("runs", "prune", "orphans", "--yes", "--json").out)["removed"] == []
    assert anchorlab("runs", "prune", "orphans").out == "nothing to remove\n"


def test_only_runs_that_are_old_enough(anchorlab, refused, runs, workplace):
    manifest, day = workplace / "runs" / runs[0] / "manifest.json", 86400
    os.utime(manifest, (time.time() - 3 * day,) * 2)
    for age, wanted in (("2d", [runs[0]]), ("71h", [runs[0]]), ("73h", []), ("1w", []), ("0.5w", []), ("0h", runs)):
        found = json.loads(anchorlab("runs", "prune", "--older-than", age, "--json").out)
        assert found["orphans"]["runs"] == sorted(wanted), age
    for slip in ("3", "d", "3m", "-1d"):
        told = f"anchorlab: older-than: {slip!r} is not an age; write hours, days or weeks, such as 12h, 30d or 4w\n"
        assert refused("runs", "prune", f"--older-than={slip}") == told


def test_an_unknown_kind_is_named(anchorlab, refused, runs):
    told = "anchorlab: kinds: unknown kind 'orphan'; did you mean 'orphans'?\n"
    assert refused("runs", "prune", "orphan", "--yes") == told
    assert left(anchorlab) == set(runs)


def test_a_run_in_use_stays(anchorlab, runs):
    from anchorlab.runs import Cell, Store

    with Store().open(Cell({"members": [1], "format": 1})) as run:
        pass
    with held(Store().training):
        said = anchorlab("runs", "prune", "unfinished", "--yes")
        assert said.code == 2 and f"kept: {Store().root}: in use by process" in said.out
    assert json.loads(anchorlab("runs", "prune", "unfinished", "--yes", "--json").out)["removed"] == [run.address]


@pytest.mark.slow
def test_what_findings_were_made_from_is_kept(anchorlab, runs, workplace):
    assert anchorlab("study", "anchor/identity", "--profile", "smoke").code == 0
    named = {one["run"] for one in json.loads(anchorlab("runs", "--where", "study=anchor/identity", "--json").out)}
    assert named == left(anchorlab) - set(runs) and named
    assert any(not one["trained"] for one in json.loads(anchorlab("runs", "--columns=trained", "--json").out))
    assert json.loads(anchorlab("runs", "prune", "--json").out)["orphans"]["runs"] == sorted(runs)
    record = workplace / "runs" / "studies" / "anchor-identity" / "smoke" / "runs.json"
    record.unlink()
    said = anchorlab("runs", "prune", "orphans", "--yes")
    assert said.code == 2 and "findings of anchor-identity/smoke do not say which runs" in said.err
    assert set(runs) | named == left(anchorlab)


def test_two_runs_side_by_side(anchorlab, runs):
    found = json.loads(anchorlab("runs", "diff", runs[0][:8], runs[1][:8], "--json").out)
    assert [one["run"] for one in found["runs"]] == runs
    assert found["fields"] == {"model.layers": [1, 2]}
    assert found["environment"] == {}
    ends = [json.loads(anchorlab("runs", "show", run, "--json").out)["last"] for run in runs]
    means = [{(one["split"], one["metric"]): one["mean"] for one in last} for last in ends]
    assert {(one["split"], one["metric"]): (one["first"], one["second"]) for one in found["metrics"]} == {
        key: (means[0][key], means[1][key]) for key in means[0]
    }
    for one in found["metrics"]:
        assert one["difference"] == pytest.approx(one["second"] - one["first"])
    said = anchorlab("runs", "diff", *runs).out
    assert ["model.layers", "1", "2"] in [line.split() for line in said.splitlines()]
    assert "metrics at the end, means over members" in said


def test_a_run_of_a_named_store_beside_one_of_the_package(anchorlab, runs):
    said = anchorlab("runs", "diff", "zoo:anchor/identity", runs[0], "--store", "runs", "--json")
    assert said.code == 0 and json.loads(said.out)["runs"][1]["run"] == runs[0]


def test_a_run_is_not_compared_with_itself(refused, runs):
    told = f"anchorlab: second: is the same run, {runs[0]}; name another one\n"
    assert refused("runs", "diff", runs[0], runs[0][:9]) == told


def test_fields_that_only_one_of_two_has():
    from anchorlab.runs import differing

    first = {"model": {"kind": "a", "heads": 2, "mask": True}, "format": 1}
    second = {"model": {"kind": "b", "mask": 1}, "format": 1, "trained": False}
    assert differing(first, second) == {
        "model.kind": ("a", "b"), "model.heads": (2, "—"), "model.mask": (True, 1), "trained": ("—", False),
    }  # fmt: skip


@pytest.fixture
def terminal(monkeypatch):
    """Makes streams a terminal, on which the answers are typed; returns the questions."""

    def become(*streams, answers=()):
        asked = []

        def answer(question):
            asked.append(question)
            if not answers:
                raise EOFError
            return answers[0]

        monkeypatch.setattr("builtins.input", answer)
        for stream in ("stdin", "stdout"):
            monkeypatch.setattr(f"sys.{stream}.isatty", lambda here=stream: here in streams)
        return asked

    return become


@pytest.mark.parametrize(
    ("answers", "removed"), [(["y"], True), (["YES "], True), (["n"], False), ([""], False), ([], False)]
)
def test_a_terminal_is_asked_before_a_run_is_removed(anchorlab, address, terminal, answers, removed):
    asked = terminal("stdin", "stdout", answers=answers)
    said = anchorlab("runs", "remove", address[:6])
    assert asked and asked[0].startswith(f"remove {address} (anchor/identity, 2 members, ")
    assert said.out == (f"removed {address}\n" if removed else "nothing was removed\n")
    assert (left(anchorlab) == set()) is removed
    if not removed:
        anchorlab("runs", "prune", "orphans")
        assert len(asked) == 2 and asked[1].startswith("remove 1 run, ") and left(anchorlab) == {address}
        assert anchorlab("runs", "remove", address, "--yes").out == f"removed {address}\n"
        assert len(asked) == 2


@pytest.mark.parametrize("streams", [["stdin"], ["stdout"], []])
def test_without_a_terminal_a_run_is_removed_only_with_yes(anchorlab, address, terminal, streams):
    terminal(*streams, answers=["y"])
    said = anchorlab("runs", "remove", address[:6])
    assert (said.code, said.out) == (2, "")
    assert said.err == f"anchorlab: yes: cannot ask whether to remove {address}; add --yes to remove it\n"
    terminal("stdin", "stdout", answers=["y"])
    said = anchorlab("runs", "prune", "orphans", "--json")  # which asks nothing on a terminal
    assert said.code == 2 and said.err.startswith("anchorlab: yes: cannot ask whether to remove 1 run, ")
    assert left(anchorlab) == {address}
    anchorlab("runs", "prune", "orphans")
    assert left(anchorlab) == set()


def test_check_counts_unfinished_runs(anchorlab, address, workplace):
    assert json.loads(anchorlab("runs", "check", "--json").out) == {"runs": 1, "unfinished": 0, "problems": []}
    run = workplace / "runs" / address
    (run / "manifest.json").unlink()
    (run / "metrics.parquet").unlink()  # as it was before it was finished
    assert anchorlab("runs", "check").out == "1 run, all files as they were written, 1 of them unfinished\n"
    (run / "spec.json").write_text("{}")
    told = anchorlab("runs", "check", "--json")
    found = json.loads(told.out)
    assert (told.code, found["unfinished"]) == (2, 1)
    assert "spec.json" in found["problems"][0]
