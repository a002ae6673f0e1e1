"""The ledger: every claim with its results under all profiles, the strongest first."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from anchorlab.findings.claims import (
    OTHER_TASK,
    SMOKE,
    SYMBOLS,
    UNTRAINED,
    VERDICTS,
    Claim,
    ClaimResult,
    Scope,
    Verdict,
    base_profile,
)
from anchorlab.findings.findings import Findings
from anchorlab.findings.provenance import Provenance

SCOPES: tuple[Scope, ...] = ("paper", "exact", "other")
"""The scopes of the papers' claims."""

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


@dataclass(frozen=True)
class Counts:
    """How many claims have each verdict, by the scope of their strongest evidence, and how many a control passes too.

    `also_untrained` counts those that hold untrained, `also_other_task` those that hold for another task.
    """

    verdicts: Mapping[Verdict, Mapping[Scope, int]]
    also_untrained: int
    also_other_task: int

    def of(self, verdict: Verdict) -> int:
        """Return the number of claims with a verdict, whatever its scope."""
        return sum(self.verdicts[verdict].values())

    @property
    def total(self) -> int:
        """The number of claims."""
        return sum(map(self.of, self.verdicts))


def counts(results: Iterable[ClaimResult]) -> Counts:
    """Count the three papers' claims by verdict and scope, given a result for each; each is there, with 0 at least.

    Preconditions are left out, and so is what `counts_apart` counts.
    """
    found = [result for result in results if result.scope in SCOPES and not result.apart]
    pairs = Counter((result.verdict, result.scope) for result in found)
    verdicts: dict[Verdict, Mapping[Scope, int]] = {
        verdict: {scope: pairs[verdict, scope] for scope in SCOPES} for verdict in VERDICTS
    }
    passed = (sum(name in result.marks for result in found) for name in (UNTRAINED, OTHER_TASK))
    return Counts(verdicts, *passed)


def counts_apart(results: Iterable[ClaimResult]) -> dict[Verdict, int]:
    """Count the claims of other works and the questions of one's own by verdict; only verdicts that there are."""
    found = Counter(result.verdict for result in results if result.apart)
    return {verdict: found[verdict] for verdict in SYMBOLS if found[verdict]}


def ledger(findings: Iterable[Findings]) -> list[Entry]:
    """Return one entry for every claim in the findings of any number of studies and profiles, in order of appearance.

    Preconditions have none. Within an entry, results with a measured value come before those without; then the paper's
    own setting and exact computation before other settings; then more units, such as seeds, before fewer; then profiles
    in the order of `PROFILES`. Where profiles in other settings than the paper's disagree, the strongest is `disputed`.
    """
    found: dict[str, tuple[str, list[Evidence]]] = {}
    for one in findings:
        for result in one.claims:
            if result.claim.precondition:
                continue
            found.setdefault(result.claim.id, (one.study, []))[1].append(Evidence(result, one.provenance))
    entries = []
    for study, evidence in found.values():
        ranked = sorted(evidence, key=lambda one: _rank(one.result))
        if _disputed([one.result for one in ranked]):
            ranked[0] = replace(ranked[0], result=replace(ranked[0].result, disputed=True))
        entries.append(Entry(study, ranked[0].result.claim, tuple(ranked)))
    return entries


def _disputed(ranked: Sequence[ClaimResult]) -> bool:
    """Return whether own profiles of a study, all in settings that are not the paper's, are on both sides of a band."""
    if ranked[0].scope != "other":
        return False
    decided = {"agrees at small scale", "differs at small scale"}
    own = [one for one in ranked if base_profile(one.profile) == one.profile != SMOKE and one.scope == "other"]
    return len({one.verdict for one in own} & decided) == 2


def _rank(result: ClaimResult) -> tuple[bool, bool, bool, int, int]:
    place = PROFILES.index(result.profile) if result.profile in PROFILES else len(PROFILES)
    other, units = result.scope == "other", -len(result.units)
    return base_profile(result.profile) == SMOKE, result.verdict == "not measured", other, units, place
