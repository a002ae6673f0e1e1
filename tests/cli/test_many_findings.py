"""Stores with more findings than anybody reads."""

import json
from dataclasses import replace

from anchorlab.findings import Claim, Findings, Provenance, at_least
from anchorlab.findings.seal import seal
from anchorlab.runs import Store
from anchorlab.studies import findings_directory

SOURCE = Provenance("quick", "0..2", "2 CPU cores", "0" * 40, "2.13", 1.0)


def keep(findings):
    folder = findings_directory(Store("runs"), findings.study, findings.profile)
    folder.mkdir(parents=True)
    (folder / "findings.json").write_text(seal(findings.to_json()))


def made(name, profile="quick", claims=3):
    """Findings of one's own with claims in words of their own."""
    results = [
        Claim(f"{name}/{at}", f"Statement {at} of {name}.", "", "", "its height", at_least(0.5)).judge(0.7, profile)
        for at in range(claims)
    ]
    return Findings(name, "Made up", "", profile, replace(SOURCE, profile=profile), claims=tuple(results))


def test_every_profile_is_listed_and_few_are_named(anchorlab):
    for number in range(30):
        keep(made("own/many", f"quick@m{number:02d}", claims=1))
    keep(made("own/nothing", claims=0))
    said = anchorlab("claims", "own/*").out
    assert said.count("also: ") == 29 and "own/nothing  profile quick, no claims" in said
    assert "quick@m19 and 10 more, 1 claim: agrees 1" in " ".join(said.split())


def test_prune_names_few_of_many_findings_without_a_record(anchorlab):
    for number in range(30):
        keep(made(f"own/many-{number:02d}"))
    said = " ".join(anchorlab("runs", "prune").out.split())
    assert "findings of own-many-00/quick," in said and "own-many-04/quick and 25 more do not say" in said
    assert "own-many-05" not in said
    refused = anchorlab("runs", "prune", "orphans", "--yes")
    assert refused.code == 2 and "own-many-04/quick and 25 more do not say" in refused.err
    assert len(json.loads(anchorlab("runs", "prune", "--json").out)["findings_without_record"]) == 30
