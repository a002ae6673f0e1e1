"""Preconditions: what claims presuppose is shown and not counted, and a claim without it counts as not measured."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest

from anchorlab.errors import SpecError
from anchorlab.findings import Findings, at_least, counts, ledger
from anchorlab.runs import Store
from anchorlab.studies import STUDIES, Observed, Profile, Study, precondition, run_study, study
from anchorlab.studies.claim import Measure
from tests.studies.made_up_claims import decided, made_up

ALL = ()
PRECONDITIONS = {
    "anchor/composite": {"data": ALL},
    "anchor/condensation": {
        "learned": ("heads-alike", "all-broadcast"),
        "learned-at-rates": ("neurons-with-gamma", "heads-with-gamma"),
    },
    "anchor/every-token": {"fits": ALL},
    "anchor/identity": {"fits": ("enough-data", "little-data")},
    "anchor/learners": {"fits": ("lstm-enough", "lstm-needs-more", "fnn-never")},
    "anchor/mechanism": {"learned": ALL},
    "anchor/range-split": {"fits": ALL},
    "anchor/attention": {"fits": ALL},
    "anchor/multi-anchor": {"fits": ("operations", "boundary", "worst", "rarity-explains")},
    "anchor/nine-tasks": {
        f"{name}-fitted": (name,)
        for name in ("classification", "composite", "working-memory", "synonym", "recitation", "statistical-output")
    },
    "anchor/order": {"learned": ("along-the-curve", "neighbours", "picture")},
    "anchor/phase-diagram": {"learned": ALL},
    "anchor/reading-comprehension": {"fits": ALL},
    "anchor/recitation": {"learns": ALL},
    "anchor/two-distances": {"learned": ALL},
    "classics/associative-recall": {
        f"learns{of}": (f"width-grows{of}", f"overflows{of}", f"wider-knows-more{of}", f"attention-ahead{of}")
        for of in ("", "-mamba", "-gated")
    },
    "classics/grokking": {"memorised": ALL},
    "classics/in-context-regression": {"learned": ALL},
    "language/edges": {"solved": ALL},
    "language/poems": {"poems-known": ("backward-not-recited", "forward-easier")},
    "retrieval/buffers": {
        "learned": ALL,
        "chains-solved": (
            "chains-one-layer-each", "chains-move-answers", "chains-later-follow", "chains-match-start",
            "chains-apart",
        ),
    },
    "retrieval/circuits": {"solved": ("suffices", "needed-as-printed", "first-is-indirect")},
    "retrieval/depth": {"second-step-retrieved": ("chain-order", "later-is-harder", "least-layers")},
    "retrieval/emergence": {"solved": ("ablated",)},
    "retrieval/plateau": {"curriculum-learns": ("without-it-fails",)},
    "retrieval/language-models": {"one-step": ALL},
    "truth/methods": {"learns": ALL},
    "truncation/noise-first": {"tuning-knew": ("tuning-peak", "tuning-settles")},
}  # fmt: skip
"""The preconditions of each study, and the claims that presuppose them; `ALL` for all of the study."""


class Seen(NamedTuple):
    fitted: float | None = 1.0
    solved: float | None = 1.0


fits = made_up("fits", at_least(0.9), lambda seen: seen.fitted, says="The data are fitted", kind=precondition)
solved = made_up(
    "solved",
    at_least(0.5),
    lambda seen: seen.solved,
    says="The task is solved",
    kind=precondition,
    of=("late",),
)
early = made_up("early", at_least(2.0), lambda seen: decided(3.0))
late = made_up("late", at_least(2.0), lambda seen: decided(5.0), says="It is late")
mine = made_up("mine", at_least(2.0), lambda seen: decided(7.0))


def made(seen: Seen, claims: Sequence[Measure] = (fits, solved, early, late)) -> Study:
    return Study(
        name="a/b",
        doc="Three constants.\n\nThey are given.",
        claims=claims,
        profiles={"quick": Profile(None, "")},
        observe=lambda setting, context: Observed(seen, None, "a model"),
        paper="anchor functions",
    )


def judged(seen: Seen, claims: Sequence[Measure] = (fits, solved, early, late)) -> dict[str, tuple]:
    found = made(seen, claims).judge(seen, "quick")
    return {one.claim.id.removeprefix("a/b/"): (one.verdict, one.value) for one in found}


AGREES = {"early": ("agrees at small scale", 3.0), "late": ("agrees at small scale", 5.0)}
NOTHING = ("not measured", None)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (Seen(), {"fits": ("met", 1.0), "solved": ("met", 1.0), **AGREES}),
        (Seen(0.9, 0.5), {"fits": ("met", 0.9), "solved": ("met", 0.5), **AGREES}),
        (Seen(0.89, 1.0), {"fits": ("not met", 0.89), "solved": ("met", 1.0), "early": NOTHING, "late": NOTHING}),
        (Seen(1.0, 0.49), {"fits": ("met", 1.0), "solved": ("not met", 0.49), **AGREES, "late": NOTHING}),
        (Seen(None, 1.0), {"fits": NOTHING, "solved": ("met", 1.0), **AGREES}),
    ],
)
def test_a_claim_is_judged_where_its_preconditions_are_met(seen, expected):
    assert judged(seen) == expected


def test_a_claim_says_which_preconditions_are_not_met_and_one_s_own_only_which_name_it():
    early_one, late_one = made(Seen(0.8, 0.2)).judge(Seen(0.8, 0.2), "quick")[2:]
    assert early_one.detail == "precondition not met: The data are fitted"
    assert late_one.detail == "precondition not met: The data are fitted; The task is solved"
    assert (late_one.units, late_one.interval, late_one.spread) == ((), None, None)
    with pytest.raises(SpecError, match=r"^claim\.solved\.of: 'late' is not a claim of the study; name some of"):
        made(Seen(), (solved, early))
    own = replace(mine, own=True)
    found = judged(Seen(0.8, 0.2), (fits, solved, early, own, late))
    assert (found["early"], found["mine"]) == (NOTHING, ("supported", 7.0))
    assert judged(Seen(0.8), (replace(fits, of=("mine",)), early, own)) == {
        "fits": ("not met", 0.8), "early": AGREES["early"], "mine": NOTHING,
    }  # fmt: skip


def test_a_precondition_is_not_counted_and_has_no_entry(tmp_path):
    findings = run_study(made(Seen(1.0, 0.2)), "quick", Store(tmp_path))
    assert [entry.claim.id for entry in ledger([findings])] == ["a/b/early", "a/b/late"]
    assert counts(findings.claims).total == 2
    assert [one.claim.id for one in made(Seen()).statements.unmeasured()] == ["a/b/early", "a/b/late"]
    assert "✗ not met: The task is solved (0.2)" in str(findings)
    assert "— not measured: It is late (precondition not met: The task is solved)" in str(findings)


def test_kept_findings_are_judged_by_the_preconditions_of_today(tmp_path):
    before = (replace(fits, precondition=False), replace(solved, precondition=False), early, late)
    findings = run_study(made(Seen(1.0, 0.2), before), "quick", Store(tmp_path))
    assert {one.verdict for one in findings.claims} == {"agrees at small scale", "undecided"}
    again = made(Seen()).judge_again(Findings.from_json(findings.to_json()))
    assert [one.verdict for one in again.claims] == ["met", "not met", "agrees at small scale", "not measured"]
    assert again.claims[3].detail == "precondition not met: The task is solved"


def test_the_preconditions_of_every_study():
    found = {name: {one.name: one.of for one in study(name).claims if one.precondition} for name in STUDIES}
    assert {name: some for name, some in found.items() if some} == PRECONDITIONS
