"""Several studies at once, and every claim with its verdict."""

import json
from dataclasses import replace

import pytest

from anchorlab.findings import Control, Findings, Provenance, counts
from anchorlab.runs import Store
from anchorlab.studies import STUDIES, findings_directory, study, study_names

SMOKE = ("--profile", "smoke", "--workers", "1")
TRUNCATION = "truncation/feedforward-noise"
SEARCHED_TOO = {  # studies that were changed once some published seeds had been seen
    "classics/grokking": "0..109, 1000..1003",
    "retrieval/buffers": "0..109, 1100..1104",
    "truth/methods": "0..109, 1000..1007, 1100..1107",
}
SOURCE = Provenance("smoke", "0", "2 CPU cores", "0123456789abcdef", "2.6.0", 141.0)


def claims_of(chosen):
    """Its claims, without preconditions, which are not listed among them."""
    return [chosen.claim(measure) for measure in chosen.claims if not measure.precondition]


@pytest.fixture(autouse=True)
def instant(monkeypatch):
    """Studies that take no time: the first claim has a value in its band, nothing else is measured."""

    def run(chosen, profile, store, *_, on, parts, claims):
        first, *others = claims_of(chosen)
        inside = next(end for end in first.band if end is not None)
        results = [first.judge(inside, profile), *(claim.judge(None, profile) for claim in others)]
        findings = Findings(chosen.name, chosen.title, "", profile, SOURCE, claims=tuple(results))
        folder = findings_directory(store, chosen.name, profile)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "findings.json").write_text(findings.to_json())
        return findings

    monkeypatch.setattr("anchorlab.studies.run_study", run)
    return run


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["*"], ["anchor/identity", TRUNCATION, "retrieval/depth"]),
        (["retrieval/*", "anchor/identity"], ["retrieval/depth", "anchor/identity"]),
        (["*/[di]*", "anchor/identity"], ["anchor/identity", "retrieval/depth"]),
        (["retrieval/dept?"], ["retrieval/depth"]),
    ],
)
def test_names_and_patterns(asked, found):
    known = ("anchor/identity", TRUNCATION, "retrieval/depth")
    assert [name for name in study_names(asked) if name in known] == found


def test_several_studies_have_a_page_each_and_one_for_all(anchorlab, workplace):
    said = anchorlab("study", "truncation/feedforward-n*", "anchor/identity", *SMOKE, "--report", "all.html")
    assert (said.code, said.err) == (0, "")
    pages = {path.partition("/studies/")[2] for path in said.new_files if path.endswith("report.html")}
    assert pages == {"truncation-feedforward-noise/smoke/report.html", "anchor-identity/smoke/report.html"}
    page = workplace / "all.html"
    assert TRUNCATION in page.read_text() and "anchor/identity" in page.read_text()
    summary = said.out[said.out.index("\nsummary\n") :].splitlines()
    assert [line.split()[0] for line in summary[3:5]] == [TRUNCATION, "anchor/identity"]
    assert f"{len(study(TRUNCATION).claims)} claims: agrees 1, not measured" in summary[3]
    assert summary[3].rstrip().endswith("141 s")


def test_one_pattern_gives_a_list_and_one_name_an_object(anchorlab):
    many = json.loads(anchorlab("study", "truncation/feedforward-n*", *SMOKE, "--json").out)
    one = json.loads(anchorlab("study", TRUNCATION, *SMOKE, "--json").out)
    assert set(one) == {"study", "profile", "report", "claims", "provenance"}
    assert many == [one]


class Stopped(Exception):
    pass


@pytest.mark.parametrize("error", [Stopped, ValueError])
def test_a_failing_study_does_not_stop_the_others(anchorlab, monkeypatch, instant, error):
    def failing(chosen, *arguments, **choices):
        if chosen is study("anchor/identity"):
            raise error("it broke\nhere")
        return instant(chosen, *arguments, **choices)

    monkeypatch.setattr("anchorlab.studies.run_study", failing)
    said = anchorlab("study", "anchor/identity", "truncation/feedforward-n*", *SMOKE)
    assert said.code == 2
    assert said.err.splitlines()[-1] == f"anchorlab: anchor/identity failed: {error.__name__}: it broke here"
    assert "Traceback" in said.err
    assert "claims: agrees 1" in said.out and "failed" in said.out
    told = anchorlab("study", "anchor/identity", "truncation/feedforward-n*", *SMOKE, "--json")
    failed, done = json.loads(told.out)
    assert told.code == 2
    assert failed == {"study": "anchor/identity", "profile": "smoke", "error": f"{error.__name__}: it broke\nhere"}
    assert done["study"] == TRUNCATION


def test_every_claim_is_listed(anchorlab):
    """Those of studies that have not been run are not measured."""
    expected = {claim.id for name in STUDIES for claim in claims_of(study(name))}
    listed = json.loads(anchorlab("claims", "--json").out)
    assert {claim["id"] for claim in listed} == expected
    assert {(claim["verdict"], claim["value"], claim["profile"]) for claim in listed} == {("not measured", None, None)}
    for claim in listed:
        of = claim["id"].rpartition("/")[0]
        searched = SEARCHED_TOO.get(of, "0..109")
        trained = study(of).trains_models or of == "language/along-training"  # which trains outside the engine
        assert claim["search_seeds"] == (searched if trained else "")

    anchorlab("study", TRUNCATION, *SMOKE)
    listed = json.loads(anchorlab("claims", "--json").out)
    assert {claim["id"] for claim in listed} == expected and len(listed) == len(expected)
    assert [claim["verdict"] for claim in listed].count("agrees at small scale") == 1
    run = {claim["id"] for claim in listed if claim["profile"] == "smoke"}
    assert run == {claim.id for claim in claims_of(study(TRUNCATION))}
    words = anchorlab("claims").out
    assert (
        f"{TRUNCATION}  profile smoke, {len(study(TRUNCATION).claims)} claims: agrees 1" in words
        and "retrieval/depth  not run here; " in words
    )


def test_counts_by_verdict_and_scope(anchorlab, workplace):
    results = [result for name in STUDIES for result in study(name).statements.unmeasured()]
    apart = {one.claim.id.rpartition("/")[0] for one in results if one.apart}
    assert apart == {
        *(
            f"anchor/{name}"
            for name in ("attention", "composite", "every-token", "learners", "mechanism", "open-questions", "order")
        ),
        *("anchor/synonym", "anchor/phase-diagram", "anchor/reading-comprehension", "language/truncation-search"),
        *(f"classics/{name}" for name in ("associative-recall", "grokking", "in-context-regression")),
        *(f"retrieval/{name}" for name in ("buffers", "circuits", "emergence", "known-depth", "mixture", "plateau")),
        *(
            "language/edges",
            "language/heads",
            "language/noise",
            "truncation/attention-gradient",
            "truncation/joint-dynamics",
            "truncation/memories",
            "truncation/one-step",
            "truncation/rank-one-noise",
            "truncation/richer-noise",
            "truth/methods",
        ),
    }
    total = sum(not one.apart for one in results)
    whole = json.loads(anchorlab("claims", "--counts", "--json").out)
    assert whole["claims"] == whole["verdicts"]["not measured"]["all"] == total and whole["also_untrained"] == 0
    assert whole["apart"] == {"not measured": len(results) - total}
    said = " ".join(anchorlab("claims", "--counts").out.split())
    assert said.endswith(f"of other works and your own or our questions: {len(results) - total} not measured")

    chosen = study(TRUNCATION)
    first, second, third, *others = claims_of(chosen)
    inside, outside = (next(end for end in first.band if end is not None), 1e9)
    third = replace(third, exact=True)
    results = (
        replace(first.judge(inside, "quick", untrained=Control(inside)), other_task=Control(inside)),
        second.judge(outside if second.band[1] is not None else -outside, "quick", untrained=Control(None)),
        third.judge(next(end for end in third.band if end is not None), "quick"),
        *(claim.judge(None, "quick") for claim in others),
    )
    findings = Findings(TRUNCATION, "t", "", "quick", replace(SOURCE, profile="quick"), claims=results)
    verdicts = counts(results).verdicts
    assert (verdicts["reproduced"]["exact"], verdicts["agrees at small scale"]["other"]) == (1, 1)
    folder = findings_directory(Store(workplace / "runs"), TRUNCATION, "quick")
    folder.mkdir(parents=True)
    (folder / "findings.json").write_text(findings.to_json())
    told = json.loads(anchorlab("claims", TRUNCATION, "--counts", "--json").out)
    assert told["claims"] == len(results) and told["also_untrained"] == told["also_other_task"] == 1
    # by the claims of today the third is not exact
    assert told["verdicts"]["agrees at small scale"] == {"all": 2, "paper": 0, "exact": 0, "theory": 0, "other": 2}
    assert told["verdicts"]["reproduced"]["all"] == 0
    assert told["verdicts"]["differs at small scale"] == {"all": 1, "paper": 0, "exact": 0, "theory": 0, "other": 1}

    words = anchorlab("claims", TRUNCATION).out
    assert max(map(len, words.splitlines())) <= 80
    table = words[words.index("counts by verdict and scope") :].splitlines()
    assert table[1].split() == ["verdict", "claims", "paper", "exact", "theory", "other"]
    assert table[2].split() == ["✓", "reproduced", "0", "0", "0", "0", "0"]
    assert table[6].split() == ["●", "agrees", "at", "small", "scale", "2", "0", "0", "0", "2"]
    assert table[-2:] == [f"1 of {len(results)} also hold untrained", "1 also hold for another task"]
    assert anchorlab("claims", TRUNCATION, "--counts").out == words[words.index("counts by verdict and scope") :]
    joined = " ".join(words.split())
    assert joined.count("· also holds untrained") == joined.count("· also holds for another task") == 1
    assert f"· untrained {inside:.4g} · also holds untrained · other task {inside:.4g} ·" in joined
    assert "· untrained no value" in joined

    first_row = json.loads(anchorlab("claims", TRUNCATION, "--json").out)[0]
    assert (first_row["untrained"], first_row["holds_untrained"]) == (inside, True)
    assert (first_row["other_task"], first_row["holds_for_other_task"]) == (inside, True)


def test_claims_of_some_studies(anchorlab):
    ids = [claim["id"] for claim in json.loads(anchorlab("claims", "retrieval/d*", "--json").out)]
    assert ids == [claim.id for claim in claims_of(study("retrieval/depth"))]
    said = anchorlab("claims", "retr*", "--measured")
    assert "none of these studies has been run" in said.out
    assert "study: unknown study 'retrieval/dept'; did you mean" in anchorlab("claims", "retrieval/dept").err
