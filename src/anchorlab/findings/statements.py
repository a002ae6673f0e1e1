"""The claims of a study before anything is measured, as plain values, and how kept results are judged by them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic.dataclasses import dataclass

from anchorlab.errors import SpecError
from anchorlab.findings.claims import Claim, ClaimResult, base_profile
from anchorlab.findings.findings import Findings
from anchorlab.findings.interval import interval_again
from anchorlab.findings.limits import Text
from anchorlab.spec import JSON_CONFIG, check_known


@dataclass(frozen=True, config=JSON_CONFIG)
class Statement:
    """A claim of a study; an `own` one is not the paper's. A precondition is required by the claims named in `of`."""

    claim: Claim
    own: bool = False
    of: tuple[Text, ...] = ()

    @property
    def name(self) -> str:
        """The name of the measure, the last part of the claim's id."""
        return self.claim.id.rpartition("/")[2]

    def required_by(self, other: "Statement") -> bool:
        """Return whether this is a precondition of another claim: by default, of all but the `own` ones."""
        needed = other.name in self.of or not (self.of or other.own)
        return self.claim.precondition and not other.claim.precondition and needed


@dataclass(frozen=True, config=JSON_CONFIG)
class Statements:
    """Everything about the claims of a study that is known without its measures.

    Fields
        study: the name of the study
        claims: its claims, preconditions included
        papers: by profile, whether it is the paper's own setting: for all claims, or for the named ones
        own: whether all claims are the study's own hypotheses
        chosen_on: the seeds on which its settings were chosen, as text; empty if it names none
    """

    study: Text
    claims: tuple[Statement, ...]
    papers: Mapping[Text, bool | tuple[Text, ...]]
    own: bool = False
    chosen_on: Text = ""

    def unmeasured(self) -> list[ClaimResult]:
        """Return the results of the claims, without preconditions, before anything is measured."""
        return [one.claim.judge(None, "", own=one.own or self.own) for one in self.claims if not one.claim.precondition]

    def judge_again(self, findings: Findings) -> Findings:
        """Judge findings of the study again by these claims: values stay; words, bands, scopes, search seeds are new.

        Errors: `SpecError` for an unknown profile, and for a claim whose value is missing or was measured differently.
        """
        before = {one.claim.id: one for one in findings.claims}
        results = []
        for one in self.claims:
            claim, old = one.claim, before.get(one.claim.id)
            if old is None or old.claim.measured_as != claim.measured_as:
                problem = "has no value" if old is None else f"was measured as {old.claim.measured_as!r}"
                raise SpecError(claim.id, f"{problem} under {findings.profile}", f"run {self.study} again")
            values = old.value, findings.profile, old.spread, old.detail
            interval = interval_again(old.value, old.units, old.interval, old.spread) if old.value is not None else None
            setting, own = self._is_papers_setting(findings.profile, one.name), one.own or self.own
            result = claim.judge(*values, setting, old.untrained, own, old.units, interval)
            results.append(replace(result, other_task=old.other_task))
        source = replace(findings.provenance, chosen_on=self.chosen_on)
        return replace(findings, provenance=source, claims=where_met(self.claims, results))

    def _is_papers_setting(self, profile: str, claim: str) -> bool:
        """Return whether a profile is the paper's own setting for a claim; with another model, none is."""
        own = profile.partition("@")[0]
        base = own if own in self.papers else base_profile(own)
        check_known("profile", base, self.papers, "profile")
        papers = self.papers[base]
        return own == profile and (papers if isinstance(papers, bool) else claim in papers)


def where_met(claims: Sequence[Statement], results: Sequence[ClaimResult]) -> tuple[ClaimResult, ...]:
    """Return the results of a study's claims, in order; a claim whose precondition is not met loses its value."""
    both = list(zip(claims, results, strict=True))
    unmet = [one for one, result in both if result.verdict == "not met"]

    def judged(claim: Statement, result: ClaimResult) -> ClaimResult:
        missing = [needed.claim.statement for needed in unmet if needed.required_by(claim)]
        if not missing or result.value is None:
            return result
        why = f"precondition not met: {'; '.join(missing)}"
        return replace(result, value=None, spread=None, detail=why, units=(), interval=None)

    return tuple(judged(*one) for one in both)
