"""Claims, their verdicts and evidence, and where findings come from."""

import math
import os
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from anchorlab.errors import SpecError
from anchorlab.findings import (
    Claim,
    Control,
    Findings,
    Provenance,
    at_least,
    at_most,
    band_text,
    check_band,
    counts,
    counts_apart,
    ledger,
    within,
)
from anchorlab.findings.interval import units_needed
from anchorlab.findings.provenance import hardware, seeds_text, versions
from anchorlab.runs import Run


def claim(band, exact=False) -> Claim:
    return Claim("a/b/c", "It is high", "Fig 1", "about 1", "its height", band, exact)


@pytest.mark.parametrize(
    ("band", "value", "inside", "words"),
    [
        (at_least(0.9), 0.9, True, "at least 0.9"),
        (at_least(0.9), 0.8999, False, "at least 0.9"),
        (at_most(2.0), 2.0, True, "at most 2"),
        (at_most(2.0), 2.5, False, "at most 2"),
        (within(0.4, 0.6), 0.5, True, "0.4 to 0.6"),
        (within(0.4, 0.6), 0.7, False, "0.4 to 0.6"),
        (within(0.4, 0.6), 0.3, False, "0.4 to 0.6"),
        (within(1.0, 1.0), 1.0, True, "exactly 1"),
        ((None, None), -7.0, True, "any value"),
        (within(0.95, 1.0), float(np.float32(1) + np.finfo(np.float32).eps), True, "0.95 to 1"),  # rounding of float32
        (within(0.95, 1.0), 1.00001, False, "0.95 to 1"),
        (at_least(0.9), 0.89999, False, "at least 0.9"),
    ],
)
def test_the_verdict_comes_from_the_band_and_the_scope(band, value, inside, words):
    assert band_text(band) == claim(band).band_text == words
    verdict = "agrees at small scale" if inside else "differs at small scale"
    assert claim(band).judge(value, "quick").verdict == verdict
    for result in (
        claim(band).judge(value, "paper", paper_setting=True),
        claim(band, exact=True).judge(value, "quick"),
    ):
        assert result.verdict == ("reproduced" if inside else "contradicted")
    for exact in (False, True):
        theorem = replace(claim(band, exact), theory=True).judge(value, "paper", paper_setting=True)
        assert theorem.verdict == ("agrees at our sizes" if inside else "differs at our sizes")
        own = claim(band, exact).judge(value, "quick", own=True)
        assert (own.verdict, own.scope_text) == ("supported" if inside else "not supported", "")


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_has_no_value_is_not_measured(value):
    for one in (claim(at_least(0.4)), claim(at_most(0.4), exact=True), claim((None, None))):
        assert one.judge(value, "paper", paper_setting=True).verdict == "not measured"


@pytest.mark.parametrize(
    ("band", "interval", "undecided"),
    [
        (at_least(0.5), (0.6, 0.9), False),
        (at_least(0.5), (0.5, 0.9), False),  # the edge accepts
        (at_least(0.5), (0.49, 0.9), True),
        (at_least(0.5), (0.1, 0.5), True),
        (at_least(0.5), (0.1, 0.49), False),
        (at_most(0.5), (0.4, 0.6), True),
        (at_most(0.5), (0.51, 0.6), False),
        (within(0.4, 0.6), (0.3, 0.7), True),  # the band lies within the interval
        (within(0.4, 0.6), (0.45, 0.55), False),
        ((None, None), (-9.0, 9.0), False),
        (at_least(0.5), None, True),  # units that differ, and no interval
    ],
)
def test_an_interval_that_leaves_the_band_decides_nothing(band, interval, undecided):
    for setting in ({}, {"paper_setting": True}, {"own": True}):
        for value in (0.2, 0.55):
            result = claim(band).judge(value, "quick", interval=interval, units=(0.2, 0.55), **setting)
            assert (result.verdict == "undecided") == undecided
    assert claim(band).judge(None, "quick", interval=interval).verdict == "not measured"


def test_scopes_intervals_and_controls_in_words():
    assert claim(at_least(0)).judge(1, "quick", interval=(0.12345, 2)).interval_text == "95 % interval 0.123 to 2"
    assert claim(at_least(0)).judge(1, "quick").interval_text == ""
    for spread, told in ((None, "one value"), ("0 to 2 over 9 heads", "one value"), ("one value", "")):
        assert claim(at_least(0)).judge(1, "quick", spread, units=(1.0,)).interval_text == told
    assert claim(at_least(0), exact=True).judge(1, "quick", units=(1.0,)).interval_text == ""
    plain, exact = claim(at_least(0.5)), claim(at_least(0.5), exact=True)
    assert plain.judge(1, "quick").scope == "other"
    assert plain.judge(1, "paper", paper_setting=True).scope == "paper"
    assert exact.judge(1, "quick").scope == exact.judge(1, "paper", paper_setting=True).scope == "exact"
    assert Control(None).note == "no member meets what the measure presupposes"
    assert Control(None, "fails: E").note == "fails: E" and Control(0.5).note == ""
    one = claim(within(0.95, 1.0))
    assert one.judge(0.999, "quick", interval=(0.997, 1.0000001)).verdict == "agrees at small scale"
    assert one.judge(0.999, "quick", interval=(0.997, 1.00001)).verdict == "undecided"
    assert one.judge(0.999, "quick", interval=(0.94999, 1.0)).verdict == "undecided"


def test_one_unit_and_few_equal_ones_decide_nothing():
    plain, theorem = claim(at_least(0.5)), replace(claim(at_least(0.5)), theory=True)
    for value in (0.1, 0.9):
        for setting in ({}, {"paper_setting": True}, {"own": True}):
            alone = plain.judge(value, "paper", units=(value,), **setting)
            assert (alone.verdict, alone.interval_text) == ("undecided", "one value")
            few = plain.judge(value, "paper", units=(value,) * 13, **setting)
            assert (few.verdict, few.interval_text) == ("undecided", "13 equal values, needs 14")
            enough = plain.judge(value, "paper", units=(value,) * 14, **setting)
            assert enough.verdict != "undecided" and enough.interval_text == "14 equal values"
        for exact in (claim(at_least(0.5), exact=True), theorem):
            assert exact.judge(value, "quick", units=(value,)).verdict not in ("undecided", "not measured")
            assert exact.judge(value, "quick", units=(value,) * 2).verdict == "undecided"
        assert claim(at_least(0.5), exact=True).judge(value, "smoke", units=(value,)).verdict == "undecided"


@pytest.mark.parametrize(
    ("band", "needed"),
    [  # 0.8^13 = 0.055, 0.8^14 = 0.044; 0.9^28 = 0.052, 0.9^29 = 0.047; 0.95^58 = 0.051, 0.95^59 = 0.048
        (at_least(0.8), 14), (within(0.8, 1.0), 14), (at_least(0.9), 29), (at_most(0.2), 14), (within(0.0, 0.05), 59),
        (within(1.0, 1.0), None), (at_most(0.0), None), (within(0.3, 0.7), None), (at_least(-1.0), None),
    ],
)  # fmt: skip
def test_how_many_units_show_a_share_if_all_pass(band, needed):
    assert units_needed(band) == needed


def test_a_share_says_how_many_units_it_needs():
    few = claim(at_least(0.8)).judge(1, "paper", units=(1, 1, 1), interval=(0.05 ** (1 / 3), 1), paper_setting=True)
    assert (few.verdict, few.interval_text) == ("undecided", "95 % bounds 0.368 and 1, needs 14")
    failed = claim(at_least(0.8)).judge(0, "quick", units=(0, 0), interval=(0, 1 - 0.05**0.5))
    assert (failed.verdict, failed.interval_text) == ("differs at small scale", "95 % bounds 0 and 0.776")


@pytest.mark.parametrize("exact", [False, True])
def test_a_theorem_without_sizes_is_never_in_the_papers_own_setting(exact):
    """Whatever the profile says, and whether or not the check is an exact computation."""
    theorem = replace(claim(at_least(0.5), exact=exact), theory=True)
    assert theorem.judge(1, "quick").scope == theorem.judge(1, "paper", paper_setting=True).scope == "theory"
    assert theorem.judge(1, "smoke").scope == theorem.judge(1, "smoke", paper_setting=True).scope == "other"
    assert theorem.judge(1, "quick", own=True).scope == "own"
    assert replace(theorem, precondition=True).judge(1, "quick").scope == "precondition"
    assert theorem.judge(1, "quick").verdict_text == "◆ agrees at our sizes (numerical check of a theorem)"
    assert theorem.judge(0, "quick").verdict_text == "◇ differs at our sizes (numerical check of a theorem)"
    assert theorem.judge(1, "quick", interval=(0.4, 2), units=(0.4, 2.0)).verdict == "undecided"


def findings(profile, *results, study="a/b") -> Findings:
    source = Provenance(profile, "0..2", "2 CPU cores", "0123", "2.6.0", 1.0)
    return Findings(study, "Title", "", profile, source, results)


def entry_of(*results):
    """The entry of the ledger for results of one claim, each of a profile of its own."""
    (entry,) = ledger(findings(result.profile, result) for result in results)
    return entry


def strongest(*results):
    found = entry_of(*results).strongest
    return found.profile, found.verdict


def test_the_strongest_evidence_comes_first_and_is_never_a_smoke_profile():
    one = claim(at_least(0.5))
    quick, scaled, smoke, own = (one.judge(value, name) for value, name in
                                 ((0.1, "quick"), (0.2, "scaled"), (0.9, "smoke"), (0.6, "mine")))  # fmt: skip
    paper = one.judge(0.4, "paper", paper_setting=True)
    entry = entry_of(smoke, own, quick, paper, scaled)
    assert [each.result.profile for each in entry.evidence] == ["paper", "scaled", "quick", "mine", "smoke"]
    assert [each.provenance.profile for each in entry.evidence] == ["paper", "scaled", "quick", "mine", "smoke"]
    assert entry.strongest.verdict == "contradicted"
    one = claim(at_least(0.5), exact=True)
    assert one.judge(0.9, "smoke").scope == "other"
    entry = entry_of(one.judge(0.9, "smoke"), one.judge(None, "quick"))
    assert [each.result.profile for each in entry.evidence] == ["quick", "smoke"]
    assert entry.strongest.verdict == "not measured"


def test_evidence_with_a_value_scope_and_more_units_comes_before_larger_settings():
    one = claim(at_least(0.5))
    unmeasured = one.judge(None, "paper", paper_setting=True)
    part = one.judge(0.7, "paper-start", paper_setting=True)

    def profiles(*results):
        return [each.result.profile for each in entry_of(*results).evidence]

    assert profiles(unmeasured, one.judge(0.1, "scaled"), part) == ["paper-start", "scaled", "paper"]
    quick = one.judge(0.7, "quick", units=(0.6, 0.8), interval=(0.6, 0.8))
    scaled = one.judge(0.9, "scaled", units=(0.9,))
    paper = one.judge(0.6, "paper", paper_setting=True, units=(0.6,), interval=(0.55, 0.65))
    assert profiles(scaled, quick) == ["quick", "scaled"] and strongest(scaled, quick)[1] == "agrees at small scale"
    assert profiles(scaled, quick, paper) == ["paper", "quick", "scaled"]
    assert strongest(scaled, quick, paper)[1] == "reproduced"
    alone = one.judge(0.6, "paper", paper_setting=True, units=(0.6,))  # one value says nothing
    assert profiles(alone, scaled, quick) == ["quick", "paper", "scaled"] and profiles(alone) == ["paper"]
    assert profiles(alone, replace(one, exact=True).judge(0.6, "quick", units=(0.6,))) == ["quick", "paper"]


def test_profiles_or_checks_of_a_theorem_that_disagree_leave_a_claim_undecided():
    one = claim(at_least(0.5))
    quick = one.judge(0.7, "quick", units=(0.6, 0.8), interval=(0.6, 0.8))
    scaled = one.judge(0.1, "scaled", units=(0.1,), interval=(0.0, 0.2))
    smoke, other, paper = (
        one.judge(0.1, "smoke"), one.judge(0.1, "quick:1000"), one.judge(0.1, "paper", paper_setting=True),
    )  # fmt: skip
    assert strongest(quick, scaled)[1] == strongest(scaled, quick)[1] == "undecided"
    alone = replace(scaled, interval=None), smoke, other  # one value says nothing, and two are no profiles of ours
    for one_more in (*alone, one.judge(None, "scaled")):
        assert strongest(quick, one_more)[1] == "agrees at small scale"
    assert strongest(quick, scaled, paper)[1] == "contradicted"
    theorem = replace(claim(at_least(0.5)), theory=True)
    quick, paper, low = theorem.judge(0.7, "quick"), theorem.judge(0.9, "paper"), theorem.judge(0.1, "paper")
    assert strongest(theorem.judge(0.1, "smoke"), quick, paper) == ("paper", "agrees at our sizes")
    assert strongest(quick, low) == ("paper", "undecided")


AGREES, DIFFERS, WIDE = (0.6, 0.8), (0.1, 0.2), (0.1, 0.8)  # 95 % intervals, of a claim that is at least 0.5


@pytest.mark.parametrize(
    ("intervals", "verdict", "told"),
    [  # by model, the study's own first; None has no value
        ([AGREES, AGREES], "agrees at small scale", "2 of 2 models"),
        ([DIFFERS, DIFFERS], "differs at small scale", "2 of 2 models"),
        ([AGREES, DIFFERS], "undecided", "disputed"),
        ([DIFFERS, AGREES], "undecided", "disputed"),
        ([AGREES, WIDE], "undecided", "1 of 2 models"),
        ([WIDE, DIFFERS], "undecided", "1 of 2 models"),
        ([WIDE, WIDE], "undecided", "0 of 2 models"),
        ([AGREES, None], "agrees at small scale", ""),
        ([AGREES], "agrees at small scale", ""),
        ([AGREES, AGREES, AGREES], "agrees at small scale", "3 of 3 models"),
        ([AGREES, AGREES, WIDE], "undecided", "2 of 3 models"),
        ([AGREES, WIDE, DIFFERS], "undecided", "disputed"),
    ],
)
@pytest.mark.parametrize("own", [False, True])
def test_language_models_decide_a_claim_together(intervals, verdict, told, own):
    one = claim(at_least(0.5))
    results = [
        one.judge(
            ends and sum(ends) / 2, f"quick{'@' * bool(place)}{place or ''}", units=ends or (), interval=ends, own=own
        )
        for place, ends in enumerate(intervals)
    ]
    if own:
        verdict = {"agrees at small scale": "supported", "differs at small scale": "not supported"}.get(
            verdict, verdict
        )
    for order in (results, results[::-1]):
        first = entry_of(*order).strongest
        assert (first.profile, first.verdict, first.agreement_text) == ("quick", verdict, told)
        assert first.verdict_text.endswith(f" {verdict}{', ' * bool(told)}{told}")
        kept = findings("quick", first)
        back = Findings.from_json(kept.to_json()).claims[0]
        assert back == replace(first, models=None) and "models" not in kept.to_json()
    assert all(one.models is None for one in results)


def test_only_models_in_one_setting_decide_together():
    """Neither a checkpoint of a model, nor seeds, nor another profile is a further model."""
    one = claim(at_least(0.5))
    low = {"value": 0.15, "units": DIFFERS, "interval": DIFFERS}
    quick, other = one.judge(0.7, "quick", units=AGREES, interval=AGREES), one.judge(profile="quick@a", **low)
    paper = one.judge(0.7, "paper", units=AGREES, interval=AGREES, paper_setting=True)

    def decided(*results):
        return *strongest(*results), entry_of(*results).strongest.models

    assert decided(quick, other) == ("quick", "undecided", (2, 2))
    for name in ("quick@a@step1", "quick@a,b", "quick:1000", "quick-unbegun@a", "smoke"):
        assert decided(quick, one.judge(profile=name, **low)) == ("quick", "agrees at small scale", None)
    assert decided(paper, quick, other, one.judge(profile="paper@a", **low)) == ("paper", "reproduced", None)
    more = one.judge(0.15, "quick@a", units=(*DIFFERS, 0.1), interval=DIFFERS)
    assert strongest(more, quick)[0] == "quick"  # a study's own model comes first, whatever others have of units


def test_the_ledger_keeps_claims_and_studies_in_order():
    first, second = Claim("a/b/x", "X", "", "", "", (0, 1)), Claim("a/b/y", "Y", "", "", "", (0, 1))
    third = Claim("c/d/x", "Z", "", "", "", (0, 1))
    entries = ledger(
        [
            findings("quick", first.judge(1, "quick"), second.judge(1, "quick")),
            findings("quick", third.judge(1, "quick"), study="c/d"),
            findings("paper", second.judge(2, "paper", paper_setting=True)),
        ]
    )
    assert [(entry.study, entry.claim.id) for entry in entries] == [
        ("a/b", "a/b/x"),
        ("a/b", "a/b/y"),
        ("c/d", "c/d/x"),
    ]
    assert [entry.strongest.verdict for entry in entries] == [
        "agrees at small scale", "contradicted", "agrees at small scale",
    ]  # fmt: skip


@pytest.mark.untyped
@pytest.mark.parametrize("band", [0.5, (0.5,), (1.0, 0.0), [0.0, 1.0]])
def test_what_is_no_band(band):
    with pytest.raises(SpecError, match=r"^band: "):
        check_band(band)


@pytest.mark.parametrize(
    ("control", "holds", "text"),
    [
        (None, False, None), (Control(None), False, "no value"), (Control(None, "fails: E"), False, "no value"),
        (Control(0.5), True, "0.5"), (Control(0.49999), False, "0.5"), (Control(inf), False, "inf"),
        (Control(nan), False, "nan"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [0.7, 0.1, None])
def test_a_claim_also_holds_for_the_members_of_a_control_in_its_band(control, holds, text, value):
    holds = holds and value == 0.7  # it holds, too: not if our own value is outside
    ours = claim(at_least(0.5)).judge(value, "quick")
    untrained, other = replace(ours, untrained=control), replace(ours, other_task=control)
    assert (untrained.holds_untrained, untrained.holds_for_other_task) == (holds, False)
    assert (other.holds_untrained, other.holds_for_other_task) == (False, holds)
    assert [*untrained.marks.values()] == ["also holds untrained"] * holds
    assert [*other.marks.values()] == ["also holds for another task"] * holds
    for result, name in ((untrained, "untrained"), (other, "other task")):
        assert {heading: found.text for heading, found in result.controls.items()} == ({name: text} if text else {})
        assert result.verdict == ours.verdict


def test_counts_by_verdict_and_scope():
    one, exact = claim(at_least(0.5)), claim(at_least(0.5), exact=True)
    found = counts(
        [
            one.judge(0.6, "quick", untrained=Control(0.9)),
            replace(one.judge(0.6, "paper", paper_setting=True, untrained=Control(0.1)), other_task=Control(0.9)),
            exact.judge(0.6, "quick"),
            exact.judge(0.4, "quick"),
            replace(one, theory=True).judge(0.6, "paper", paper_setting=True),
            replace(exact, theory=True).judge(0.4, "quick"),
            one.judge(0.4, "quick", untrained=Control(0.9)),
            one.judge(None, "quick"),
            one.judge(0.6, "quick", untrained=Control(0.9), own=True),  # of no paper
            replace(one, other_work=True).judge(0.6, "quick", untrained=Control(0.9)),
            replace(one, precondition=True).judge(0.6, "quick", untrained=Control(0.9)),
        ]
    )
    assert found.verdicts == {
        "reproduced": {"paper": 1, "exact": 1, "theory": 0, "other": 0},
        "contradicted": {"paper": 0, "exact": 1, "theory": 0, "other": 0},
        "agrees at our sizes": {"paper": 0, "exact": 0, "theory": 1, "other": 0},
        "differs at our sizes": {"paper": 0, "exact": 0, "theory": 1, "other": 0},
        "agrees at small scale": {"paper": 0, "exact": 0, "theory": 0, "other": 1},
        "differs at small scale": {"paper": 0, "exact": 0, "theory": 0, "other": 1},
        "undecided": {"paper": 0, "exact": 0, "theory": 0, "other": 0},
        "not measured": {"paper": 0, "exact": 0, "theory": 0, "other": 1},
    }
    assert (found.total, found.of("reproduced"), found.also_untrained, found.also_other_task) == (8, 2, 1, 1)


def test_other_works_and_questions_of_ones_own_are_counted_apart():
    one = claim(at_least(0.5))
    other = replace(one, other_work=True)
    results = [
        one.judge(0.6, "quick"), other.judge(0.4, "quick"), other.judge(0.6, "quick"),
        other.judge(0.7, "paper", paper_setting=True), replace(other, precondition=True).judge(0.6, "quick"),
        one.judge(0.6, "quick", own=True), one.judge(0.6, "quick", own=True), one.judge(0.4, "quick", own=True),
        other.judge(None, "quick", own=True),
    ]  # fmt: skip
    assert [one.apart for one in results] == [False, True, True, True, False, True, True, True, True]
    assert counts_apart(results) == {
        "reproduced": 1, "agrees at small scale": 1, "differs at small scale": 1, "not measured": 1, "supported": 2,
        "not supported": 1,
    }  # fmt: skip
    assert list(counts_apart(results))[:2] == ["reproduced", "agrees at small scale"]
    assert counts_apart([]) == {}


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ([0], "0"), ([0, 1], "0..1"), ([3, 4, 5], "3..5"), ([0, 2, 3], "0, 2, 3"), ([0, 1, 2, 7, 8, 9], "0..2, 7..9"),
        ([], ""),
    ],
)  # fmt: skip
def test_seeds_in_words(seeds, words):
    assert seeds_text(seeds) == words


def test_provenance_and_versions_in_words(monkeypatch):
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert hardware().startswith(f"{cores} CPU core")
    made = Provenance("quick", "none", "1 CPU core", "a" * 40, "2.13.0", 1.0)
    assert made.line == f"profile quick · no seeds · 1 CPU core · commit {'a' * 12}"
    source = Provenance("quick", "0", "1 CPU core", f"{'a' * 40}, {'b' * 40}-dirty, unknown", "2.13.0", 1.0)
    assert source.short_commit == f"{'a' * 12}, {'b' * 12}-dirty, unknown"
    assert source.line.endswith(f"commit {source.short_commit}")
    of_parts = replace(source, commit=", ".join(f"{at}" * 40 for at in range(6)))
    assert of_parts.line.endswith(f"commit {', '.join(f'{at}' * 12 for at in range(4))} and 2 more")
    assert versions([Kept("b"), Kept("a", "b")], "commit") == "a, b"
    assert versions([Kept(None)], "commit") == "unknown"
    monkeypatch.setattr(Kept, "environments", [{"anchorlab": "0.2.0", "commit": one} for one in (None, "a" * 40)])
    assert versions([Kept()], "commit") == f"{'a' * 40}, version 0.2.0"
    made = Provenance("quick", "0", "1 CPU core", "version 0.2.0", "2.13.0", 1.0)
    assert made.line == "profile quick · seeds 0 · 1 CPU core · version 0.2.0"
    assert Provenance("own", "0", "1 CPU core", f"{'a' * 40}, version 0.2.0", "2.13.0", 1.0).line.endswith(
        f"commit {'a' * 12}, version 0.2.0"
    )


class Kept(Run):
    """A run made under these commits."""

    def __init__(self, *commits):
        self.commits = commits

    @property
    def environments(self):
        return [{"commit": one} for one in self.commits]
