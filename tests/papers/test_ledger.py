"""The ledger as a referee reads it, over the claims of all studies and over everything that is published of them.

A claim can be read alone, has a measure of its own, values of independent units with an interval (or a reason why one
value is all there is), a control, and seeds on which its setting was not chosen. `exempt.json` lists what does not meet
this yet, by the reason; an exemption that is no longer needed fails.

`bands.json` has a line for each study. A claim has the lowest and the highest value that accept it, null where a side
is open, `exact` where derivation, enumeration or exact computation decides: outside its band it is contradicted; and
`theory` where a number checks a theorem that names no sizes.
"""

import ast
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from inspect import unwrap
from pathlib import Path
from types import CodeType

import pytest

from anchorlab.cli.studies.claims import evidence_data
from anchorlab.engine import run
from anchorlab.findings import ClaimResult, Findings, ledger
from anchorlab.papers.published import published, published_entries
from anchorlab.papers.words import FILE, statements, words_of_today
from anchorlab.runs import Store
from anchorlab.studies import STUDIES, run_study, study
from anchorlab.studies.claim import Measure
from anchorlab.studies.parts import keep_part, seeds_with_parts
from anchorlab.studies.profile_names import part_name
from anchorlab.studies.seeds import SEARCHED
from anchorlab.training import TrainedRun
from tests.documents import ROOT

HERE = Path(__file__)
GALLERY = HERE.parents[2] / "docs" / "gallery"
PUBLISHED = {one.parent.name: Findings.from_json(one.read_bytes()) for one in sorted(GALLERY.glob("*/findings.json"))}
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


def test_the_words_are_those_of_today_and_read_as_they_were_written():
    assert FILE.read_text("utf-8") == words_of_today(), "run `make words`"
    assert statements() == {name: study(name).statements for name in STUDIES}


def test_a_sentence_can_be_read_alone_and_exempt_studies_and_findings_say_why():
    assert leaning() == set()
    assert without_control() == set(EXEMPT["controls"])
    assert {folder for found in EXEMPT["findings"].values() for folder in found} <= set(PUBLISHED)


@pytest.mark.parametrize("name", STUDIES)
def test_the_claims_of_a_study_say_and_measure_different_things_within_their_bands(name):
    statements = [measure.statement for measure in study(name).claims]
    assert len(set(statements)) == len(statements)
    assert twins(tuple(study(name).claims)) == set()
    assert {
        one.name: [*one.band, *["exact"] * one.exact, *["theory"] * one.theory] for one in study(name).claims
    } == BANDS[name]


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_that_trains_says_what_it_was_chosen_on_and_trains_none_of_it(name):
    found = study(name)
    if not found.trains_models:
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
    return body(undocumented), repr(measure.case), *(repr(cell.cell_contents) for cell in closed)


def twins(measures: tuple[Measure, ...]) -> set[frozenset[str]]:
    """The claims with one measure: the same function, whatever its name and words."""
    alike: dict[object, set[str]] = {}
    for one in measures:
        alike.setdefault(does(one), set()).add(one.name)
    return {frozenset(names) for names in alike.values() if len(names) > 1}


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


def lacks_units(result: ClaimResult) -> bool:
    """Whether a value is of no units, nor the slope of a fit with its interval, nor one number with a reason."""
    return not (result.units or result.interval or result.claim.exact or result.claim.id in BARE)


def lacks_interval(result: ClaimResult) -> bool:
    """Whether a value has neither an interval nor the words that it is one value, or equal values, or exact."""
    told = result.interval_text or result.spread == "one value"
    return result.interval is None and not (told or result.claim.exact or result.claim.id in BARE)


def lacks_control(result: ClaimResult) -> bool:
    """Whether a value of trained members has no control, nor a reason why none has a value."""
    return not result.claim.exact and (result.untrained is None or not (result.untrained.note or result.controls))


def is_share(result: ClaimResult) -> bool:
    """Whether a value counts the units that do something, as its words say."""
    counted = f"{sum(result.units):g} of {len(result.units)} "
    return len(result.units) > 1 and set(result.units) <= {0, 1} and (result.spread or "").startswith(counted)


def unreachable(result: ClaimResult) -> bool:
    """Whether no outcome over as many units, or only one of both, would decide the claim.

    All of n units bound a share by 0.05^(1/n) from below, none of them by 1 - 0.05^(1/n) from above.
    """
    if result.claim.exact or result.claim.theory or not result.units:
        return False
    (low, high), count = result.claim.band, len(result.units)
    if not is_share(result):
        return count < 2 or low == high
    least = 0.05 ** (1 / count)  # if all do
    most = 1 - least  # if none does
    if low is None:
        return not (most <= high and least > high)
    return not (high is None and least >= low and most < low)


def decides_alone(result: ClaimResult) -> bool:
    """Whether a single unit has a verdict for or against, though it is neither exact nor the check of a theorem."""
    alone = len(result.units) == 1 and not result.claim.exact and not result.claim.theory
    return alone and not result.claim.precondition and result.verdict not in ("undecided", "not measured")


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
        "search seeds": of.trains_models and not source.chosen_on,
        "overlapping seeds": bool(seeds_of(source.seeds) & seeds_of(source.chosen_on)),
        "searched seeds published": of.trains_models and bool(seeds_of(source.seeds) & set(SEARCHED)),
        "units": any(map(lacks_units, measured)),
        "interval": any(map(lacks_interval, measured)),
        "control": of.trains_models and any(map(lacks_control, measured)),
        "no width": any(one.interval and one.interval[0] == one.interval[1] for one in measured),
        "a range called an interval": any("95 %" in (one.spread or "") for one in measured),
        "decided by one unit": any(map(decides_alone, measured)),
        "unreachable": any(unreachable(one) for one in measured if not one.claim.precondition),
        "twins": any(True for _ in same_units(findings)),
        "other claims than today": {one.claim.id: one.claim for one in findings.claims} != today,
    }
    return [name for name, wrong in found.items() if wrong]


@pytest.mark.parametrize("folder", PUBLISHED)
def test_published_findings_meet_what_a_referee_asks(folder):
    exempt = [found[folder] for found in EXEMPT["findings"].values() if folder in found]
    assert [faults(PUBLISHED[folder])] == (exempt or [[]])


def test_published_claims_as_data_carry_what_a_referee_reads():
    """As `anchorlab claims --json` prints them."""
    rows = [evidence_data(one) for entry in ledger(PUBLISHED.values()) for one in entry.evidence]
    for row in rows:
        assert row.keys() >= {"value", "n", "interval", "units", "scope", "verdict", "seeds", "search_seeds"}
        assert row["n"] == (len(row["units"]) or None)
    counted = Counter(row["id"].rpartition("/")[0] for row in rows)
    identity = [found for found in PUBLISHED.values() if found.study == "anchor/identity"]
    assert counted["anchor/identity"] == sum(not one.claim.precondition for found in identity for one in found.claims)
    (row,) = [row for row in rows if row["id"] == "anchor/identity/shift-mass" and row["value"] is not None]
    assert (row["n"], row["seeds"], row["search_seeds"], row["scope"]) == (30, "1000..1029", "0..109", "other")
    low, high = row["interval"]
    assert low < row["value"] < high and row["value"] == pytest.approx(sum(row["units"]) / 30)


NUMBERS = {
    "truncation/one-step/means": "a distance in standard errors over batches, which is a test of itself",
    "truncation/one-step/variances": "likewise",
    "truncation/one-step/theorem-bounds": "a quantile over training sets, the largest of many points",
}
"""Claims without exactness whose measure returns a number, and why it has no units."""

BARE = {
    **NUMBERS,
    "anchor/order/picture": "without scikit-learn there is no value; with it, one for each seed",
    "retrieval/language-models/better-than-guessing": "the five formulations are all there are, each with an interval",
    "truncation/associative-memory/wider-steadier": "a single run has no quartiles; the ratio's interval resamples all",
    "truncation/attention-gradient/opposite-with-more-noise": "one large draw for each share of noise",
    "truncation/rank-one-noise/descent-slope": "descent from one start without noise: nothing is drawn",
    "truncation/rank-one-noise/descent-follows": "likewise",
}
"""Claims without exactness whose value has no units, and why."""

MEASURED = [name for name in STUDIES if not name.startswith("language/")]


def measures():
    """Every measure without exactness of the studies of the three folders, by its claim."""
    return {
        f"{name}/{one.name}": one
        for name in MEASURED
        for one in study(name).claims
        if not one.exact and "<lambda>" not in one.function.__qualname__
    }


def called_by(function) -> set[str]:
    """The functions that a measure calls by name, itself or through those of its module that it calls."""
    module, seen, open_names = sys.modules[function.__module__], set(), {function.__name__}
    nodes = [*ast.walk(ast.parse(inspect.getsource(module)))]  # a measure may bear the name of a reading, a method
    defined = {node.name: node for node in reversed(nodes) if isinstance(node, ast.FunctionDef)}
    while open_names:
        node = defined[open_names.pop()]
        called = {one.func for one in ast.walk(node) if isinstance(one, ast.Call)}
        found = {
            one.id if isinstance(one, ast.Name) else one.attr
            for one in called
            if isinstance(one, ast.Name | ast.Attribute)
        }
        open_names |= (found - seen) & set(defined)
        seen |= found
    return seen


def test_a_measurement_has_units_but_where_there_are_none():
    bare = {
        name for name, one in measures().items() if "float" in str(inspect.signature(one.function).return_annotation)
    }
    assert bare == set(NUMBERS)
    # `over` and its kin make it of units, a power law has an interval; others may say that nothing is known
    kin = {"over", "over_shared", "mean_of_known", "apart"}
    made = {name: called_by(one.function) for name, one in measures().items()}
    bare = {name for name, called in made.items() if "Measurement" in called and not called & kin}
    assert bare | set(NUMBERS) == set(BARE)
    assert [name for name, one in measures().items() if "reshape(1)" in inspect.getsource(one.function)] == []


def test_only_paper_profiles_are_the_papers_setting():
    assert list(BANDS) == list(STUDIES)
    profiles = {profile for name in STUDIES for profile in study(name).profiles if study(name).profile(profile).paper}
    assert profiles <= {
        "paper", "paper-start", "paper-figure-6", "paper-claimed", "paper-600", "paper-text",
    }  # fmt: skip


BANDS = json.loads(Path(__file__).with_name("bands.json").read_text("utf-8"))


def test_the_package_ships_what_the_gallery_shows_by_the_ids_of_claims():
    shown = [Findings.from_json(path.read_bytes()) for path in GALLERY.glob("*/findings.json")]
    bare = {(one.study, one.profile): replace(one, figures=(), tables=(), views=()) for one in shown}
    assert {(one.study, one.profile): one for one in published()} == bare
    path = GALLERY / "truncation-associative-memory-paper" / "findings.json"
    claim = next(one for one in json.loads(path.read_text())["claims"] if one["scope"] == "paper")
    strongest = published_entries()[claim["claim"]["id"]].strongest
    assert (strongest.scope, strongest.value, strongest.profile) == ("paper", claim["value"], "paper")


PARTED = (
    "anchor/identity", "anchor/frequency", "anchor/reading-comprehension", "anchor/structures",
    "truncation/feedforward-noise", "retrieval/circuits", "retrieval/emergence",
)  # fmt: skip
"""Studies of which seeds in a paper's own setting are published as parts, or will be."""

PAPER_MODELS = Store(ROOT / "docs" / "gallery" / "paper-models")
LARGEST = 3_000_000  # bytes of the parts of one study


def published_parts() -> list[TrainedRun]:
    """The published runs that are kept without weights."""
    return [one for one in map(TrainedRun, PAPER_MODELS.runs()) if not one.has_weights]


def test_published_parts_are_whole_and_small():
    assert PAPER_MODELS.problems() == []
    sizes = Counter()
    for part in published_parts():
        sizes[part.experiment.task.name] += part.run.size
        assert len(part.experiment.members) == 1
        assert all(one["date"] and "host" not in one for one in part.run.made_by)
    assert max(sizes.values(), default=0) <= LARGEST, sizes


def test_published_parts_belong_to_a_papers_setting_of_today():
    """A part of a setting that has changed would be published no more, silently."""
    asked = {one.experiment.members.seeds[0] for one in published_parts()}
    known = {
        each.cell.address
        for name in PARTED
        for profile, about in study(name).profiles.items()
        if about.paper
        for seed in asked
        for each in study(name).experiments_of(part_name(profile, [seed]))
    }
    assert {one.run.address for one in published_parts()} <= known


@pytest.mark.parametrize("name", [PARTED[0], *(pytest.param(one, marks=pytest.mark.nightly) for one in PARTED[1:])])
def test_claims_on_parts_are_those_on_weights(name, tmp_path):
    """Single members and members trained together differ by rounding: 1e-5 of a value in forty steps of float32."""
    one, parts = study(name), Store(tmp_path / "parts")
    seeds = sorted({seed for each in one.experiments_of("smoke") for seed in each.members.seeds})
    for seed in seeds:
        for found in run(one.experiments_of(part_name("smoke", [seed])), tmp_path / "runs", workers=1):
            keep_part(one, "smoke", found, parts.root)
    assert seeds_with_parts(one, "smoke", [parts]) == tuple(seeds)
    assert not list(parts.root.rglob("checkpoints"))
    whole = run_study(one, "smoke", tmp_path / "whole", workers=1, progress=False)
    light = run_study(one, "smoke", tmp_path / "light", workers=1, progress=False, parts=[parts])
    for with_weights, without in zip(whole.claims, light.claims, strict=True):
        assert without.value == pytest.approx(with_weights.value, rel=1e-5, abs=1e-5), without.claim.id
        assert without.units == pytest.approx(with_weights.units, rel=1e-5, abs=1e-5)
    table = zip(whole.tables[0].rows, light.tables[0].rows, strict=True)  # has values where no member learned
    for row, other in table:
        assert [one for one in other if one is not None] == pytest.approx(
            [one for one in row if one is not None], rel=1e-4
        )
