"""`anchorlab verify`: a plan within a budget, what is compared with the published values, and kills."""

import json
import os
import signal
import time
from contextlib import redirect_stdout
from dataclasses import replace

import pytest

from anchorlab.cli import main
from anchorlab.cli.studies import verify
from anchorlab.cli.studies.verify import run_until
from anchorlab.papers.published import published_entries
from anchorlab.papers.truncation import associative_memory
from anchorlab.papers.verifying import Candidate, Plan, Step, candidates
from anchorlab.runs import Store
from anchorlab.training import trainer
from tests.processes import processes

FLOW, MEMORY = "retrieval/information-flow", "truncation/associative-memory"


@pytest.mark.slow
def test_the_plan_is_shown_and_nothing_written(anchorlab):
    said = anchorlab("verify", FLOW, MEMORY, "anchor/recitation", "--dry-run", "--json", "--budget", "1h")
    assert (said.code, said.new_files) == (0, set())
    plan = json.loads(said.out)
    assert {(one["study"], one["profile"]) for one in plan["within"]} >= {(FLOW, "quick"), (MEMORY, "paper")}
    assert [one["study"] for one in plan["beyond"]] == ["anchor/recitation"]
    assert len({claim for one in plan["within"] for claim in one["claims"]}) == 5 + 8
    words = anchorlab("verify", FLOW, "--dry-run", "--budget", "1s").out
    assert "beyond it" in words and "nothing fits 1s; retrieval/information-flow takes about" in words


@pytest.mark.slow
def test_exact_claims_are_settled_and_compared(anchorlab):
    rows = json.loads(anchorlab("verify", FLOW, "--json").out)
    assert [(one["scope"], one["verdict"], one["agreement"]) for one in rows] == [("exact", "reproduced", "equal")] * 5
    assert all(one["value"] == pytest.approx(one["published"]) for one in rows)
    words = anchorlab("verify", FLOW).out
    assert "every claim that these studies settle is settled in this store" in words
    assert "5 of 5 claims settled here; next to what is published: 5 equal" in words


@pytest.mark.parametrize("name", ["one-step/feedforward-margin", "rank-one-noise/b-limit"])
def test_a_check_of_a_theorem_is_compared_at_its_own_sizes(name):
    """Values at the sizes of `quick` and of `paper` differ, whatever is strongest; so do exact ones."""
    entry = published_entries()[f"truncation/{name}"]
    own = {one.result.profile: one.result for one in entry.evidence}
    assert own.keys() == {"quick", "paper"} and own["quick"].value != own["paper"].value
    for result in own.values():
        (row,) = verify._rows({entry.claim.id: result})
        assert (row["published"], row["agreement"]) == (result.value, "equal")


def test_a_row_of_the_plan_says_why_it_is_cheap():
    (memory,) = [each for each in candidates([MEMORY]) if each.profile == "paper"]
    (flow,) = candidates([FLOW])
    cases = [
        (Step(flow, flow.claims, 1.0), "trains nothing"),
        (Step(memory, memory.claims, 1.0), ""),
        (Step(memory, memory.claims, 1.0, shared=("anchor/identity",)), "uses runs of anchor/identity, above"),
        (Step(memory, memory.claims, 1.0, shared=("a/b",), kept=True), "uses runs of a/b, above and runs in the store"),
    ]
    assert [verify._plan_row(step)[-1] for step, _ in cases] == [note for _, note in cases]


def test_at_the_end_of_the_budget_training_stops(tmp_path, capsys):
    (one,) = [each for each in candidates([MEMORY]) if each.profile == "paper"]
    step = Step(Candidate(one.study, "smoke", one.claims, ()), one.claims, 1.0)
    store = Store(tmp_path)
    assert not run_until(Plan((step, step), ()), store, 1, "cpu", time.monotonic() - 1)
    assert "the budget is spent; the same command goes on with 2 of these studies" in capsys.readouterr().out
    assert not list(tmp_path.glob("studies/*/*/findings.json"))
    assert not run_until(Plan((step,), ()), store, 1, "cpu", time.monotonic() + 600)
    assert len(list(tmp_path.glob("studies/*/*/findings.json"))) == 1


def verify_in_small(root, dies):
    """Verify in a process of its own, with the sizes of the smallest profile as the paper's setting.

    One that dies is killed as soon as the first of its runs is finished.
    """
    whole = associative_memory.STUDY
    small = replace(whole.profile("smoke"), paper=True)
    associative_memory.STUDY = replace(whole, profiles={**whole.profiles, "paper": small})
    trainer._REPORT_EVERY = 0.0

    def report(status):
        if any(root.glob("runs/*/manifest.json")):
            os.kill(os.getpid(), signal.SIGKILL)

    if dies:
        verify._until = lambda end, show: report
    with (root / "rows.json").open("w") as said, redirect_stdout(said):
        code = main(["verify", MEMORY, "--budget=1h", "--workers=1", "--json", f"--store={root / 'runs'}"])
    os._exit(code)


def verified(root, dies=False):
    """The exit code and the rows of a verification in a folder of its own."""
    root.mkdir(exist_ok=True)
    child = processes.Process(target=verify_in_small, args=(root, dies))
    child.start()
    child.join()
    text = (root / "rows.json").read_text()
    return child.exitcode, json.loads(text) if text else None


@pytest.mark.killed
def test_a_killed_verification_goes_on(tmp_path):
    code, rows = verified(tmp_path / "whole")
    assert code == 0 and len(rows) == 8 and {one["scope"] for one in rows} == {"theory", "paper"}
    assert verified(tmp_path / "killed", dies=True) == (-signal.SIGKILL, None)
    store = Store(tmp_path / "killed" / "runs")
    (kept,) = [run for run in store.runs() if run.finished]
    assert verified(tmp_path / "killed") == (0, rows)
    assert len(store.runs()) == len(Store(tmp_path / "whole" / "runs").runs()) > 1
    assert store.find(kept.address).modified == kept.modified
