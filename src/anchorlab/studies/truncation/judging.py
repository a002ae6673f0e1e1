"""Claims judged by single numbers, or by powers with their confidence intervals."""

from collections.abc import Mapping, Sequence

from anchorlab.findings import Claim, ClaimResult
from anchorlab.theory import PowerLaw


def judge_numbers(
    claims: Sequence[Claim], measured: Mapping[str, float | PowerLaw | None], profile: str
) -> tuple[ClaimResult, ...]:
    """Every claim judged by the number under the last part of its id, a power by its slope; None: not measured."""

    def judged(claim: Claim) -> ClaimResult:
        value = measured[claim.id.rpartition("/")[2]]
        if isinstance(value, PowerLaw):
            return claim.judge(value.slope, profile, f"95 % interval {value.low:.3f} to {value.high:.3f}")
        return claim.judge(value, profile)

    return tuple(map(judged, claims))
