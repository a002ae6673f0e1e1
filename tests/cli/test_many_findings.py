"""Stores with more findings than anybody reads: the first ones are shown, and the work for the rest is small."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from anchorlab.cli.studies import claims as claims_module
from anchorlab.findings import Claim, Findings, Provenance, at_least
from anchorlab.findings.seal import seal
from anchorlab.runs import Store
from anchorlab.studies import STUDIES, findings_directory, study
from anchorlab.studies.study import Study

SOURCE = Provenance("quick", "0..2", "2 CPU cores", "0" * 40, "2.13", 1.0)


def keep(findings, folder=None):
    """Write findings, by default where their study keeps them."""
    folder = folder or findings_directory(Store("runs"), findings.study, findings.profile)
    folder.mkdir(parents=True)
    (folder / "findings.json").write_text(seal(findings.to_json()))


def made(name, profile="quick", claims=3):
    """Findings of one's own with claims in words of their own."""
    results = [
        Claim(f"{name}/{at}", f"Statement {at} of {name}.", "", "", "its height", at_least(0.5)).judge(0.7, profile)
        for at in range(claims)
    ]
    return Findings(name, "Made up", "", profile, replace(SOURCE, profile=profile), claims=tuple(results))


@pytest.fixture
def laid_out(monkeypatch):
    """The results whose words are laid out."""
    found, values = [], claims_module._values
    monkeypatch.setattr(claims_module, "_values", lambda result, *more: found.append(result) or values(result, *more))
    return found


def test_claims_lays_out_the_first_results_alone(anchorlab, monkeypatch, laid_out):
    for number in range(20):
        keep(made(f"own/many-{number:02d}"))
    monkeypatch.setattr(claims_module, "_FIRST_PAGE", 4)
    said = anchorlab("claims", "--measured").out
    assert len(laid_out) == 4
    assert [f"Statement {at} of own/many-{number:02d}." in said for number, at in ((0, 0), (0, 2), (1, 0))] == [
        True
    ] * 3
    assert "Statement 1 of own/many-01." not in said and "own/many-02" not in said
    assert "4 of 60 results; name studies, or --limit 0 shows all\n" in said
    assert "● agrees at small scale       60" in said  # the counts cover all results


def test_limit_takes_any_number_of_results(anchorlab, laid_out):
    for number in range(3):
        keep(made(f"own/many-{number}"))
    whole = anchorlab("claims", "own/*").out
    assert len(laid_out) == 9 and "results;" not in whole
    assert anchorlab("claims", "own/*", "--limit", "0").out == whole
    assert "2 of 9 results" in anchorlab("claims", "own/*", "--limit", "2").out
    assert len(json.loads(anchorlab("claims", "own/*", "--json").out)) == 9
    assert len(json.loads(anchorlab("claims", "own/*", "--json", "--limit", "2").out)) == 2
    said = anchorlab("claims", "--limit", "-1")
    assert (said.code, said.err) == (2, "anchorlab: limit: -1 is negative; give a number of results, or 0 for all\n")


def test_every_profile_and_every_study_without_claims_counts_as_a_result(anchorlab, laid_out):
    for number in range(30):
        keep(made("own/many", f"quick@m{number:02d}", claims=1))
    for name in ("own/nothing", "own/nothing-either"):
        keep(made(name, claims=0))
    said = anchorlab("claims", "own/*", "--limit", "3").out
    assert len(laid_out) == 3 and said.count("also: ") == 2
    assert "quick@m19 and 10 more, 1 claim: agrees 1" in " ".join(said.split())
    assert "own/nothing" not in said and "3 of 32 results" in said
    said = anchorlab("claims", "own/*", "--limit", "31").out
    assert "own/nothing  profile quick, no claims" in said and "own/nothing-either" not in said
    assert json.loads(anchorlab("claims", "own/nothing*", "--json").out) == []
    assert "own/nothing  profile quick, no claims" in anchorlab("claims", "--limit", "0").out


def test_prune_asks_a_study_for_its_experiments_once(anchorlab, monkeypatch):
    name = next(one for one in STUDIES if study(one).trains_models)
    asked, of = [], Study.experiments_of
    monkeypatch.setattr(Study, "experiments_of", lambda self, profile: asked.append(profile) or of(self, profile))
    for number in range(20):
        keep(replace(made(name), claims=()), Path("runs") / "studies" / f"copy-{number}" / "quick")
    told = json.loads(anchorlab("runs", "prune", "--json").out)
    assert asked == ["quick"] and told["findings_without_record"] == [f"{name} (quick)"]


def test_prune_names_few_of_many_findings_without_a_record(anchorlab):
    for number in range(30):
        keep(made(f"own/many-{number:02d}"))
    said = " ".join(anchorlab("runs", "prune").out.split())
    assert "findings of own/many-00 (quick)," in said and "own/many-04 (quick) and 25 more do not say" in said
    assert "own/many-05" not in said
    refused = anchorlab("runs", "prune", "orphans", "--yes")
    assert refused.code == 2 and "own/many-04 (quick) and 25 more do not say" in refused.err
    assert len(json.loads(anchorlab("runs", "prune", "--json").out)["findings_without_record"]) == 30
