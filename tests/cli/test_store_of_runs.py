"""Checking and removing runs."""

import json

import pytest


@pytest.mark.parametrize(
    ("answers", "removed"), [(["y"], True), (["YES "], True), (["n"], False), ([""], False), ([], False)]
)
def test_a_terminal_is_asked_before_a_run_is_removed(anchorlab, address, monkeypatch, answers, removed):
    asked = []

    def answer(question):
        asked.append(question)
        if not answers:
            raise EOFError
        return answers[0]

    monkeypatch.setattr("builtins.input", answer)
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    said = anchorlab("runs", "remove", address[:6])
    assert asked and asked[0].startswith(f"remove {address} (anchor/identity, 2 members, ")
    assert said.out == (f"removed {address}\n" if removed else "nothing was removed\n")
    assert (json.loads(anchorlab("runs", "--json").out) == []) is removed
    if not removed:
        assert anchorlab("runs", "remove", address, "--yes").out == f"removed {address}\n"
        assert len(asked) == 1


@pytest.mark.parametrize("terminal", ["stdin", "stdout", None])
def test_without_a_terminal_a_run_is_removed_only_with_yes(anchorlab, address, monkeypatch, terminal):
    monkeypatch.setattr("builtins.input", lambda question: "y")
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda here=stream: here == terminal)
    said = anchorlab("runs", "remove", address[:6])
    assert (said.code, said.out) == (2, "")
    assert said.err == f"anchorlab: yes: nobody can be asked whether to remove {address}; add --yes to remove it\n"
    assert [run["run"] for run in json.loads(anchorlab("runs", "--json").out)] == [address]
    assert anchorlab("runs", "remove", address, "--yes").out == f"removed {address}\n"


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
