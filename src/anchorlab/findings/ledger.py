"""The ledger: every claim with its results under all profiles, strongest evidence first."""

import re
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

SCOPES: tuple[Scope, ...] = ("paper", "exact", "theory", "other")
"""The scopes of the papers' claims, from the strongest evidence to the weakest."""

PROFILES = ("paper", "scaled", "quick")
"""Profiles from the strongest evidence to the weakest; other profiles come after these, and `smoke` last."""


@dataclass(frozen=True)
class Evidence:
    """One result of a claim, with the provenance of its value."""

    result: ClaimResult
    provenance: Provenance


@dataclass(frozen=True)
class LedgerEntry:
    """A claim of a study with its evidence: at least one result, strongest first."""

    study: str
    claim: Claim
    evidence: tuple[Evidence, ...]

    @property
    def strongest(self) -> ClaimResult:
        """The result that decides the claim."""
        return self.evidence[0].result


@dataclass(frozen=True)
class Counts:
    """The number of claims with each verdict and scope of their strongest evidence, and of claims that controls pass.

    `also_untrained` counts the claims that hold for untrained members too, `also_other_task` the claims that hold for
    members trained on another task too.
    """

    verdicts: Mapping[Verdict, Mapping[Scope, int]]
    also_untrained: int
    also_other_task: int

    def of(self, verdict: Verdict) -> int:
        """Return the number of claims with a verdict, over all scopes."""
        return sum(self.verdicts[verdict].values())

    @property
    def total(self) -> int:
        """The number of claims."""
        return sum(map(self.of, self.verdicts))


def counts(results: Iterable[ClaimResult]) -> Counts:
    """Count the three papers' claims by verdict and scope, given one result per claim; every pair has a count.

    Preconditions are left out, and so are the claims that `counts_apart` counts.
    """
    found = [result for result in results if result.scope in SCOPES and not result.apart]
    pairs = Counter((result.verdict, result.scope) for result in found)
    verdicts: dict[Verdict, Mapping[Scope, int]] = {
        verdict: {scope: pairs[verdict, scope] for scope in SCOPES} for verdict in VERDICTS
    }
    passed = (sum(name in result.marks for result in found) for name in (UNTRAINED, OTHER_TASK))
    return Counts(verdicts, *passed)


def counts_apart(results: Iterable[ClaimResult]) -> dict[Verdict, int]:
    """Count the claims of other works and the studies' own questions by verdict; verdicts without any are left out."""
    found = Counter(result.verdict for result in results if result.apart)
    return {verdict: found[verdict] for verdict in SYMBOLS if found[verdict]}


def ledger(findings: Iterable[Findings]) -> list[LedgerEntry]:
    """Return one entry for every claim in the findings of any number of studies and profiles, in order of appearance.

    Preconditions have no entries. Within an entry, profiles called `smoke` come last; then measured results come before
    unmeasured ones, others before a single value that decides nothing, the paper's own setting and exact computations
    before checks of theorems and these before other settings, a study's own language model before others, more units
    (such as seeds) before fewer, and profiles follow the order of `PROFILES`. If profiles in settings or at sizes of
    ours disagree, the strongest result is `disputed`; if several language models have measured it, they decide
    together, as in `of_models`.
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
        results = [one.result for one in ranked]
        first = of_models(results)
        ranked[0] = replace(ranked[0], result=replace(first, disputed=first.disputed or _disputed(results)))
        entries.append(LedgerEntry(study, ranked[0].result.claim, tuple(ranked)))
    return entries


def of_models(ranked: Sequence[ClaimResult]) -> ClaimResult:
    """Return the first result, with the joint decision of all language models that measured the claim.

    Each model is one unit, with the result of one profile such as `quick` or `quick@gpt2`. A revision, such as an early
    checkpoint, does not count, nor does a profile that compares several models, `quick@a,b`. All models must decide the
    claim the same way: it is `disputed` if two decide it in opposite ways, and undecided if one model does not decide.
    """
    first = ranked[0]
    base = re.escape(first.profile.partition("@")[0])
    named = {one.profile: one for one in ranked if one.scope == first.scope and one.verdict != "not measured"}
    models = [one for name, one in named.items() if re.fullmatch(f"{base}(@[^@,]*)?", name)]
    if len(models) < 2:
        return first
    return replace(first, disputed=_opposite(models), models=(sum(one.decides for one in models), len(models)))


def _disputed(ranked: Sequence[ClaimResult]) -> bool:
    """Return whether results in settings or at sizes of ours both agree and differ, with no stronger result.

    Only the study's own profiles count: not `smoke`, and no variant such as `quick@gpt2` or `quick:2`.
    """
    scope = ranked[0].scope
    own = [one for one in ranked if base_profile(one.profile) == one.profile != SMOKE and one.scope == scope]
    return scope in ("theory", "other") and _opposite(own)


def _opposite(results: Iterable[ClaimResult]) -> bool:
    """Return whether one result decides that a value is in the band, and another that it is not."""
    return len({one.agrees for one in results if one.decides and one.verdict != "not measured"}) > 1


def _rank(result: ClaimResult) -> tuple[bool, bool, bool, int, int, int, int]:
    place = PROFILES.index(result.profile) if result.profile in PROFILES else len(PROFILES)
    weakness = {"theory": 1, "other": 2}.get(result.scope, 0)
    unmeasured, units = result.verdict == "not measured", -len(result.units)
    alone = len(result.units) == 1 and not result.decides  # one value says nothing
    return base_profile(result.profile) == SMOKE, unmeasured, alone, weakness, result.profile.count("@"), units, place
