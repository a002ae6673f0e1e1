"""Claims of papers, the bands of accepted values, and verdicts with their scope."""

from math import inf, isfinite
from typing import Annotated, Literal, SupportsFloat, get_args

from pydantic import Field
from pydantic.dataclasses import dataclass

from anchorlab.errors import SpecError
from anchorlab.findings.interval import ENOUGH, ROUNDING, Band, Interval, all_equal, units_needed
from anchorlab.findings.limits import Text
from anchorlab.spec import JSON_CONFIG

Scope = Literal["paper", "exact", "theory", "other", "own", "precondition"]
"""How a value was obtained: in the paper's own setting (`paper`), by an exact computation (`exact`), by a numerical
check of a theorem at sizes that we chose, as the paper gives none (`theory`), in another setting (`other`), or for a
study's own hypothesis or setting, about which no paper claims anything (`own`). A precondition of claims has a scope of
its own (`precondition`) and is not counted."""

PaperVerdict = Literal[
    "reproduced",
    "contradicted",
    "agrees at our sizes",
    "differs at our sizes",
    "agrees at small scale",
    "differs at small scale",
    "undecided",
    "not measured",
]
Verdict = Literal[PaperVerdict, "supported", "not supported", "met", "not met"]
"""Whether a value supports its claim; `ClaimResult.verdict` has the rules."""

VERDICTS: tuple[Verdict, ...] = get_args(PaperVerdict)
"""The verdicts on a paper's claim, decisive ones first. Hypotheses and preconditions have other verdicts."""

SMOKE = "smoke"
"""The name of profiles that only exercise the code; they do not even decide exact claims."""

UNTRAINED, OTHER_TASK = "untrained", "other task"
"""The column headings of the two controls."""

MARKS = {UNTRAINED: "also holds untrained", OTHER_TASK: "also holds for another task"}
"""The marks of a claim that untrained members pass, or members trained on a task other than the study's."""

SYMBOLS: dict[Verdict, str] = {
    "reproduced": "✓",
    "contradicted": "✗",
    "agrees at our sizes": "◆",
    "differs at our sizes": "◇",
    "agrees at small scale": "●",
    "differs at small scale": "○",
    "undecided": "◐",
    "not measured": "—",
    "supported": "✓",
    "not supported": "✗",
    "met": "✓",
    "not met": "✗",
}
"""The sign of each verdict on pages and in terminals."""


def base_profile(profile: str) -> str:
    """Return a profile's name without its pretrained model or chosen seeds: `quick` for `quick@gpt2`, `quick:1002`."""
    return profile.partition("@")[0].partition(":")[0]


def at_least(low: float) -> Band:
    """Return the band of values from `low` up."""
    return low, None


def at_most(high: float) -> Band:
    """Return the band of values up to `high`."""
    return None, high


def within(low: float, high: float) -> Band:
    """Return the band of values from `low` to `high`."""
    return low, high


def accepts(band: Band, value: float | None) -> bool:
    """Return whether a band accepts a value; None, NaN and infinity are never accepted."""
    low, high = _edges(band)
    return value is not None and isfinite(value) and low <= value <= high


def splits(band: Band, interval: Interval | None) -> bool:
    """Return whether an interval lies partly inside and partly outside a band, so that its value decides nothing."""
    if interval is None:
        return False
    low, high = _edges(band)
    meets = interval[0] <= high and interval[1] >= low
    return meets and not (low <= interval[0] and interval[1] <= high)


def _edges(band: Band) -> tuple[float, float]:
    """Return the lowest and the highest value that a band accepts, moved outwards to tolerate float32 rounding.

    For example, the mean of accuracies of 1 may be 1.0000001.
    """
    low, high = (-inf if band[0] is None else band[0]), (inf if band[1] is None else band[1])
    return low - ROUNDING * abs(low) if isfinite(low) else low, high + ROUNDING * abs(high) if isfinite(high) else high


def check_band(band: Band, at: str = "band") -> None:
    """Raise `SpecError` unless a band is a pair of lowest and highest value, in order; None leaves a side open."""
    if not isinstance(band, tuple) or len(band) != 2:
        raise SpecError(at, f"{band!r} is not a band", "use at_least, at_most or within")
    low, high = band
    if low is not None and high is not None and low > high:
        raise SpecError(at, f"{low:g} to {high:g} accepts no value", "give the lower end first")


def band_text(band: Band) -> str:
    """Return a band as text, such as `at least 0.95`."""
    low, high = band
    if low is None:
        return "any value" if high is None else f"at most {high:g}"
    if high is None:
        return f"at least {low:g}"
    return f"exactly {low:g}" if low == high else f"{low:g} to {high:g}"


@dataclass(frozen=True, config=JSON_CONFIG)
class Claim:
    """A statement of a paper that a number can check.

    Fields
        id: the names of the study and of the measure, such as `anchor/identity/enough-data`
        statement: what the paper says, in one sentence
        source: where the paper says so, such as `anchor functions, Fig 4`
        paper: the paper's value as text
        measured_as: how our value is measured
        band: the values that support the claim
        exact: whether a derivation, an enumeration or an exact computation decides the claim, without training
        always: unused; findings kept by earlier versions have it
        precondition: whether other claims presuppose this one, such as that the task is learned; it is not counted
        other_work: whether the claim is from a work other than the three papers
        theory: whether the claim is of a theorem or argument that names no sizes, so that a number can only check it at
            sizes that we chose; with `exact`, no training is needed for the check
    """

    id: Text
    statement: Text
    source: Text
    paper: Text
    measured_as: Text
    band: Band
    exact: bool = False
    always: bool = False
    precondition: bool = False
    other_work: bool = False
    theory: bool = False

    @property
    def band_text(self) -> str:
        """The band as text, such as `at least 0.95`."""
        return band_text(self.band)

    def judge(
        self,
        value: SupportsFloat | None,
        profile: str,
        spread: str | None = None,
        detail: str = "",
        paper_setting: bool = False,
        untrained: "Control | None" = None,
        own: bool = False,
        units: tuple[float, ...] = (),
        interval: Interval | None = None,
    ) -> "ClaimResult":
        """Return the result of the claim for a value measured under a profile.

        Args:
            value: our value; None, NaN and infinity count as not measured
            profile, untrained, units, interval: as in `ClaimResult`
            spread: text on how the value varies over seeds
            detail: text with anything else that a reader should know
            paper_setting: whether the profile is the paper's own setting for this claim
            own: whether the claim is the study's own hypothesis, about which no paper says anything
        """
        scope = self._scope(profile, paper_setting, own)
        number = None if value is None else float(value)
        return ClaimResult(self, number, profile, spread, detail, scope, untrained, units, interval)

    def _scope(self, profile: str, paper_setting: bool, own: bool) -> Scope:
        if self.precondition:
            return "precondition"
        if own:
            return "own"
        if base_profile(profile) != SMOKE and (self.theory or self.exact):
            return "theory" if self.theory else "exact"
        return "paper" if paper_setting and not self.theory else "other"


PRESUPPOSES = "no member meets what the measure presupposes"
"""The default reason why a control has no value: the measure presupposes a result of training."""


@dataclass(frozen=True, config=JSON_CONFIG)
class Control:
    """A claim's measure on control members, which are untrained or were trained on another task.

    Fields
        value: the measure's value on these members; None if it has none
        note: text on how the value varies over seeds, or why there is none
    """

    value: float | None
    note: Text = ""

    def __post_init__(self) -> None:
        if self.value is None and not self.note:
            object.__setattr__(self, "note", PRESUPPOSES)

    @property
    def text(self) -> str:
        """The value in four significant digits."""
        return "no value" if self.value is None else f"{self.value:.4g}"


@dataclass(frozen=True, config=JSON_CONFIG)
class ClaimResult:
    """A claim with our value, made by `Claim.judge`.

    Fields
        scope: how the value was obtained
        untrained: the control of untrained members; None if no training decides the claim, or if it was not computed
        other_task: the control of members trained on another task; None if there are none, or if the claim reads no
            weights
        units: one value for each independent unit, such as a seed; empty if nothing is random
        interval: the ends of the value's 95 % interval over units; None for a single unit, for equal units, or if
            nothing is random
        disputed: whether two profiles of the study, both in settings or at sizes of ours, or two language models give
            opposite verdicts
        models: how many language models decide the claim, and how many measured it; None for a single one. Only the
            ledger knows this, so it is not kept
    """

    claim: Claim
    value: float | None
    profile: Text
    spread: Text | None = None
    detail: Text = ""
    scope: Scope = "other"
    untrained: Control | None = None
    units: Annotated[tuple[float, ...], Field(max_length=1_000_000)] = ()
    interval: Interval | None = None
    disputed: bool = False
    other_task: Control | None = None
    models: Annotated[tuple[int, int] | None, Field(exclude=True)] = None

    @property
    def apart(self) -> bool:
        """Whether the claim is from another work or the study's own, counted apart from the three papers' claims."""
        return self.scope == "own" or (self.claim.other_work and not self.claim.precondition)

    @property
    def agrees(self) -> bool:
        """Whether the value is in the band, regardless of the setting."""
        return accepts(self.claim.band, self.value)

    @property
    def is_share(self) -> bool:
        """Whether the value is a share of units, whose interval is two bounds that hold with 95 % each."""
        return self.interval is not None and bool(self.units) and set(self.units) <= {0, 1}

    @property
    def decides(self) -> bool:
        """Whether the units suffice for a verdict.

        The interval must lie wholly inside or outside the band. Equal units decide from `ENOUGH` on. A value without
        units always decides; a single unit does so only for an exact claim or a theorem, where nothing need be random.
        """
        if self.interval is not None:
            return not splits(self.claim.band, self.interval)
        alone = self.scope in ("exact", "theory") or (self.scope == "own" and self.claim.exact)
        if not self.units or (len(self.units) == 1 and alone):
            return True
        return len(self.units) >= ENOUGH and all_equal(self.units)

    @property
    def interval_text(self) -> str:
        """The interval as text, in three significant digits, or why there is none, and how many units would decide.

        Empty where nothing is random, and where `spread` says that there is one value.
        """
        needed = None
        if self.interval is None and len(self.units) > 1 and all_equal(self.units):
            text, needed = f"{len(self.units)} equal values", ENOUGH
        elif self.interval is None:
            alone = len(self.units) == 1 and self.scope not in ("exact", "theory")
            return "one value" if alone and self.spread != "one value" else ""
        elif self.is_share:
            text = f"95 % bounds {self.interval[0]:.3g} and {self.interval[1]:.3g}"
            needed = units_needed(self.claim.band) if self.agrees and len(set(self.units)) == 1 else None
        else:
            text = f"95 % interval {self.interval[0]:.3g} to {self.interval[1]:.3g}"
        return f"{text}, needs {needed}" if needed and not self.decides else text

    @property
    def holds_untrained(self) -> bool:
        """Whether this and untrained members pass, so that the claim says little about the effect of training."""
        return UNTRAINED in self.marks

    @property
    def holds_for_other_task(self) -> bool:
        """Whether this and members trained on another task pass, so that the claim says little about this task."""
        return OTHER_TASK in self.marks

    @property
    def controls(self) -> dict[str, Control]:
        """The controls of this result, by column heading."""
        both = {UNTRAINED: self.untrained, OTHER_TASK: self.other_task}
        return {name: control for name, control in both.items() if control is not None}

    @property
    def marks(self) -> dict[str, str]:
        """The marks of the controls that pass too, by column heading."""
        passed = self.controls.items() if self.agrees else ()
        return {name: MARKS[name] for name, control in passed if accepts(self.claim.band, control.value)}

    @property
    def scope_text(self) -> str:
        """The scope as text; empty unless it is `paper`, `exact` or `theory`."""
        texts = {"paper": "in the paper's own setting", "exact": "exact", "theory": "numerical check of a theorem"}
        return texts.get(self.scope, "")

    @property
    def agreement_text(self) -> str:
        """How many language models decide the claim, such as `3 of 4 models`, or `disputed`; empty for one model."""
        if self.disputed or self.models is None:
            return "disputed" if self.disputed else ""
        return f"{self.models[0]} of {self.models[1]} models"

    @property
    def verdict_text(self) -> str:
        """The verdict with its sign and scope, whether models agree, and the controls that pass too."""
        scope = f" ({self.scope_text})" if self.scope_text and self.verdict != "not measured" else ""
        parts = (f"{SYMBOLS[self.verdict]} {self.verdict}{scope}", self.agreement_text, *self.marks.values())
        return ", ".join(filter(None, parts))

    @property
    def verdict(self) -> Verdict:
        """Whether the value supports the claim; `not measured` without a finite value.

        - `met`, `not met`: a precondition, by whether the value is in the band, regardless of its interval.
        - `undecided`: the units do not suffice (`decides`), the result is `disputed`, or a further model is undecided.
        - `supported`, `not supported`: the study's own hypothesis, inside and outside the band.
        - `reproduced`, `contradicted`: in the paper's own setting, or by an exact computation.
        - `agrees at our sizes`, `differs at our sizes`: a numerical check of a theorem that names no sizes.
        - `agrees at small scale`, `differs at small scale`: in any other setting; neither settles the claim.
        """
        if self.value is None or not isfinite(self.value):
            return "not measured"
        if self.scope == "precondition":
            return "met" if self.agrees else "not met"
        if self.disputed or not self.decides or (self.models and self.models[0] < self.models[1]):
            return "undecided"
        accepted = self.agrees
        if self.scope == "own":
            return "supported" if accepted else "not supported"
        if self.scope == "theory":
            return "agrees at our sizes" if accepted else "differs at our sizes"
        if self.scope == "other":
            return "agrees at small scale" if accepted else "differs at small scale"
        return "reproduced" if accepted else "contradicted"
