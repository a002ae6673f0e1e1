"""The ledger: every claim with its results under all profiles, the strongest first."""

from collections.abc import Iterable
from dataclasses import dataclass

from anchorlab.findings.claims import SMOKE, Claim, ClaimResult
from anchorlab.findings.findings import Findings
from anchorlab.findings.provenance import Provenance

PROFILES = ("paper", "scaled", "quick")
"""Profiles from the strongest evidence to the weakest; any other comes after these, and `smoke` last."""


@dataclass(frozen=True)
class Evidence:
    """One result of a claim, with the provenance of its value."""

    result: ClaimResult
    provenance: Provenance


@dataclass(frozen=True)
class Entry:
    """A claim of a study with its evidence, at least one, the strongest first."""

    study: str
    claim: Claim
    evidence: tuple[Evidence, ...]

    @property
    def strongest(self) -> ClaimResult:
        """The result that decides on the claim."""
        return self.evidence[0].result


def ledger(findings: Iterable[Findings]) -> list[Entry]:
    """Return one entry for every claim in the findings of any number of studies and profiles, in order of appearance.

    Within an entry, results with a measured value come before those without; then the paper's own setting and exact
    computation before other settings; then profiles in the order of `PROFILES`.
    """
    found: dict[str, tuple[str, list[Evidence]]] = {}
    for one in findings:
        for result in one.claims:
            found.setdefault(result.claim.id, (one.study, []))[1].append(Evidence(result, one.provenance))
    entries = []
    for study, evidence in found.values():
        ranked = sorted(evidence, key=lambda one: _rank(one.result))
        entries.append(Entry(study, ranked[0].result.claim, tuple(ranked)))
    return entries


def _rank(result: ClaimResult) -> tuple[bool, bool, bool, int]:
    place = PROFILES.index(result.profile) if result.profile in PROFILES else len(PROFILES)
    return result.profile == SMOKE, result.verdict == "not measured", result.scope == "other", place
