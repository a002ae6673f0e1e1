"""The ledger as a referee reads it, over the claims of all studies and over everything that is published of them.

A claim can be read alone, has a measure of its own, values of independent units with an interval (or a reason why one
value is all there is), a control, and seeds on which its setting was not chosen. `exempt.json` lists what does not meet
this yet, by the reason; an exemption that is no longer needed fails.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from inspect import unwrap
from pathlib import Path
from types import CodeType

import pytest

from anchorlab.cli.studies.claims import evidence_data
from anchorlab.findings import ClaimResult, Findings, ledger
from anchorlab.papers.anchor.identity import ENOUGH
from anchorlab.studies import STUDIES, study
from anchorlab.studies.claim import Measure
from anchorlab.studies.seeds import SEARCHED
from tests.papers.test_units import BARE

HERE = Path(__file__)
GALLERY = HERE.parents[2] / "docs" / "gallery"
PUBLISHED = {
    path.parent.name: Findings.from_json(path.read_bytes()) for path in sorted(GALLERY.glob("*/findings.json"))
}
EXEMPT = json.loads(HERE.with_name("exempt.json").read_text("utf-8"))

LEANING = re.compile(
    r"(And|Also|But|Here|In it|In the order|It|Its|Of these|So|Such|That|Their|Then|There|These|They|This|Those|With it"
    r"|With them|Without it|Without them)\b"
    r"|(All|Both|Most|Nearly all|None|One|Some)( heads)? of (it|its|them|their|these|those|that)\b"
    r"|.* (do|does|make|makes|show|shows) (it|so|the same)$"
    r"|(Below|From|With|Without|Behind|Before|After|Under|For|Fine-tuned)\b[^,:]*? (it|they) ",
    re.IGNORECASE,
)
"""A sentence that leans on the one before: a pronoun for what it does not name."""


def leaning() -> set[str]:
    """The claims of all studies whose sentence leans on the one before."""
    claims = (study(name).claim(one) for name in STUDIES for one in study(name).claims)
    return {claim.id for claim in claims if LEANING.match(claim.statement)}


def test_a_sentence_can_be_read_alone():
    assert leaning() == set()


@pytest.mark.parametrize("name", STUDIES)
def test_no_two_claims_say_the_same(name):
    statements = [measure.statement for measure in study(name).claims]
    assert len(set(statements)) == len(statements)


@pytest.mark.parametrize(
    "sentence",
    [
        "So does the order",
        "It fits",
        "With it, depth helps",
        "That falls",
        "Nearly all of its attention goes there",
        "All heads of that layer do the same",
        "Below that size they are not",
        "Fine-tuned with noise it recalls",
        "The picture shows it",
    ],
)
def test_what_leans(sentence):
    assert LEANING.match(sentence)


@pytest.mark.parametrize(
    "sentence",
    ["Iterated maps agree", "Social models learn", "With items it, too, fits", "Thesis", "All heads of layer 1 agree"],
)
def test_what_does_not(sentence):
    assert not LEANING.match(sentence)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_that_trains_says_what_it_was_chosen_on_and_trains_none_of_it(name):
    found = study(name)
    if not found.trains:
        return
    assert set(SEARCHED) <= set(found.chosen_on)
    for profile in found.profiles:
        seeds = {seed for one in found.experiments_of(profile) for seed in one.members.seeds}
        assert seeds
        assert not seeds & set(found.chosen_on), profile


def body(code: CodeType) -> tuple[object, ...]:
    """What a function does: its code without docstring, names of variables and lines."""
    constants = [body(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return code.co_code, code.co_names, *constants


def does(measure: Measure) -> tuple[object, ...]:
    """What a measure does, whatever its docstring, with the values that its function encloses."""
    function = unwrap(measure.function)  # of what checks its types
    code, closed = function.__code__, function.__closure__ or ()
    undocumented = code.replace(co_consts=(None, *code.co_consts[1:]))
    return body(undocumented), *(repr(cell.cell_contents) for cell in closed)


def twins(measures: tuple[Measure, ...]) -> set[frozenset[str]]:
    """The claims with one measure: the same function, whatever its name and words."""
    alike: dict[object, set[str]] = {}
    for one in measures:
        alike.setdefault(does(one), set()).add(one.name)
    return {frozenset(names) for names in alike.values() if len(names) > 1}


@pytest.mark.parametrize("name", STUDIES)
def test_no_two_claims_have_one_measure(name):
    assert twins(tuple(study(name).claims)) == set()


def test_a_twin_under_another_name_is_found():
    first, *others = study("anchor/identity").claims

    def renamed(seen):
        """Other words."""
        return seen.curve.at(ENOUGH)

    twin = replace(others[0], name="renamed", function=renamed)
    assert twins((first, *others, twin)) == {frozenset({first.name, "renamed"})}


def seeds_of(words: str) -> set[int]:
    """The seeds that a provenance names: `1000..1003`, or `0, 3`; none of `none`."""
    ranges = [part.split("..") for part in words.split(", ") if part not in ("", "none")]
    return {seed for ends in ranges for seed in range(int(ends[0]), int(ends[-1]) + 1)}


def without_control() -> set[str]:
    """The studies with claims that agree, without exactness, and that neither untrained members nor others check."""
    return {
        findings.study
        for findings in PUBLISHED.values()
        for one in findings.claims
        if one.agrees and not one.claim.exact and not one.claim.precondition
        if all(control.value is None for control in one.controls.values())
    }


def test_studies_with_claims_that_agree_without_a_control_say_why():
    assert without_control() == set(EXEMPT["controls"])


def lacks_units(result: ClaimResult) -> bool:
    """Whether a value is of no units, nor the slope of a fit with its interval, nor one number with a reason."""
    return not (result.units or result.interval or result.claim.exact or result.claim.id in BARE)


def lacks_interval(result: ClaimResult) -> bool:
    """Whether a value has neither an interval nor the words that it is one value alone, or exact."""
    alone = "one value" in (result.interval_text, result.spread)
    return result.interval is None and not (alone or result.claim.exact or result.claim.id in BARE)


def lacks_control(result: ClaimResult) -> bool:
    """Whether a value of trained members has no control, nor a reason why none has a value."""
    return not result.claim.exact and (result.untrained is None or not (result.untrained.note or result.controls))


def same_units(findings: Findings) -> Iterator[set[str]]:
    """The claims of a study with equal units that vary: a share that is 1 everywhere says nothing of its measure."""
    alike: dict[tuple[float, ...], set[str]] = {}
    for one in findings.claims:
        if len(set(one.units)) > 1:
            alike.setdefault(one.units, set()).add(one.claim.id)
    return (names for names in alike.values() if len(names) > 1)


def faults(findings: Findings) -> list[str]:
    """What a referee would send published findings back for."""
    of, source = study(findings.study), findings.provenance
    measured = [one for one in findings.claims if one.value is not None]
    today = {of.claim(measure).id: of.claim(measure) for measure in of.claims}
    found = {
        "published seeds": not source.seeds,
        "search seeds": of.trains and not source.chosen_on,
        "overlapping seeds": bool(seeds_of(source.seeds) & seeds_of(source.chosen_on)),
        "searched seeds published": of.trains and bool(seeds_of(source.seeds) & set(SEARCHED)),
        "units": any(map(lacks_units, measured)),
        "interval": any(map(lacks_interval, measured)),
        "control": of.trains and any(map(lacks_control, measured)),
        "twins": any(True for _ in same_units(findings)),
        "other claims than today": {one.claim.id: one.claim for one in findings.claims} != today,
    }
    return [name for name, wrong in found.items() if wrong]


@pytest.mark.parametrize("folder", PUBLISHED)
def test_published_findings_meet_what_a_referee_asks(folder):
    exempt = [found[folder] for found in EXEMPT["findings"].values() if folder in found]
    assert [faults(PUBLISHED[folder])] == (exempt or [[]])


def test_exemptions_are_of_what_is_published():
    assert {folder for found in EXEMPT["findings"].values() for folder in found} <= set(PUBLISHED)


def sound() -> Findings:
    """Published findings without a fault."""
    findings = PUBLISHED["anchor-identity"]
    assert faults(findings) == []
    return findings


def with_claim(findings: Findings, place: int, **changes: object) -> Findings:
    claims = list(findings.claims)
    claims[place] = replace(claims[place], **changes)
    return replace(findings, claims=tuple(claims))


def test_each_fault_is_found():
    findings = sound()
    first, shifted = findings.claims[0], findings.claims[4]
    assert len(set(first.units)) > 1
    seeds = replace(findings.provenance, seeds="99..1003")
    for expected, changed in (
        (["units", "interval"], with_claim(findings, 0, units=(), interval=None, spread=None)),
        (["interval"], with_claim(findings, 0, interval=None)),
        (["control"], with_claim(findings, 0, untrained=None)),
        (["twins"], with_claim(findings, 4, units=first.units)),
        (["other claims than today"], with_claim(findings, 4, claim=replace(shifted.claim, band=(0.0, 1.0)))),
        (["overlapping seeds", "searched seeds published"], replace(findings, provenance=seeds)),
        (["search seeds"], replace(findings, provenance=replace(findings.provenance, chosen_on=""))),
        (["published seeds"], replace(findings, provenance=replace(findings.provenance, seeds=""))),
    ):
        assert faults(changed) == expected


def test_published_claims_as_data_carry_what_a_referee_reads():
    """As `anchorlab claims --json` prints them."""
    rows = [evidence_data(one) for entry in ledger(PUBLISHED.values()) for one in entry.evidence]
    for row in rows:
        assert row.keys() >= {"value", "n", "interval", "units", "scope", "verdict", "seeds", "search_seeds"}
        assert row["n"] == (len(row["units"]) or None)
    counted = Counter(row["id"].rpartition("/")[0] for row in rows)
    assert counted["anchor/identity"] == sum(not one.claim.precondition for one in sound().claims)
    (row,) = [row for row in rows if row["id"] == "anchor/identity/shift-mass"]
    assert (row["n"], row["seeds"], row["search_seeds"], row["scope"]) == (10, "1000..1009", "0..99", "other")
    low, high = row["interval"]
    assert low < row["value"] < high and row["value"] == pytest.approx(sum(row["units"]) / 10)
