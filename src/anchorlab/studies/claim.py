"""Claims, declared on the functions that measure them.

`@claim("Fig 16", "in every row", at_least(0.8))` makes a function the measure of a claim. Its docstring states the
claim and then how it is measured; reports print both. A measure is a pure function of what a study saw, so that it can
be tested on runs made by hand.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import cleandoc, signature, unwrap
from math import isnan
from numbers import Real
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Shaped
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.findings import Band, Claim, ClaimResult, Control, check_band
from anchorlab.findings.interval import Interval, share
from anchorlab.studies.interval import Statistic, interval
from anchorlab.theory import PowerLaw

Seen = TypeVar("Seen")
Case = TypeVar("Case")


@dataclass(frozen=True)
class Measurement:
    """A measured value, with its variation and other details in words; None if not measured.

    `units` are the values of its independent units and `interval` is its 95 % interval over these, as in `over`. A
    measurement without units counts as a single value.
    """

    value: float | None
    spread: str | None = None
    detail: str = ""
    units: tuple[float, ...] = ()
    interval: Interval | None = None


Measured = Shaped[Tensor, "seed"] | Shaped[Tensor, ""] | PowerLaw | Measurement | float | None
"""What a measure returns.

A tensor of one value per seed is judged by its mean, a tensor of truth values by their share, a power law by its
exponent, a number by itself; None and an empty tensor count as not measured.
"""


@dataclass(frozen=True)
class Measure(Generic[Seen]):
    """A claim and the function that measures it; call it as the function.

    `name` is the function's, with dashes; `at` is the place in the study's paper. An `own` claim is not the paper's,
    even in the study of a paper. With `theory`, the claim is checked at sizes of ours. A `precondition` is required by
    the claims named in `of`, by default by all but the `own` ones. `case` holds the case of a claim made by `claims`.
    """

    name: str
    statement: str
    at: str
    paper: str
    measured_as: str
    band: Band
    exact: bool
    function: Callable[..., Measured]
    own: bool = False
    precondition: bool = False
    of: tuple[str, ...] = ()
    theory: bool = False
    case: tuple[Any, ...] = ()

    def __call__(self, seen: Seen) -> Measured:
        """Return what the function measures."""
        return self.function(seen, *self.case)

    def claim(self, study: str, paper: str, other_work: bool = False) -> Claim:
        """Return the claim as a plain value; `paper` is `""` for none, `other_work` marks a claim of another work."""
        source = ", ".join(part for part in ("" if self.own else paper, self.at) if part)
        return Claim(
            id=f"{study}/{self.name}",
            statement=self.statement,
            source=source,
            paper=self.paper,
            measured_as=self.measured_as,
            band=self.band,
            exact=self.exact,
            precondition=self.precondition,
            other_work=other_work,
            theory=self.theory,
        )


def claim(
    at: str,
    paper: str,
    band: Band,
    *,
    exact: bool = False,
    own: bool = False,
    theory: bool = False,
) -> Callable[[Callable[[Seen], Measured]], Measure[Seen]]:
    """Return a decorator that makes a function the measure of a claim.

    The function's name becomes the claim's. The first paragraph of its docstring is the claim, in one sentence; the
    rest says how it is measured. A name in braces in the docstring, such as `{LEARNED:g}`, is replaced by that constant
    of the function's module.

    Args:
        at: the place in the study's paper
        paper: the paper's value in words
        band: the values that accept the claim: `at_least`, `at_most` or `within`
        exact: True if derivation, enumeration or exact computation decides, without training
        own: True for a question of your own in a study of a paper
        theory: True for a theorem or argument that names no sizes, checked by a number at sizes that the study chooses

    Errors: `SpecError` for a function whose docstring lacks either part.
    """

    def decorate(function: Callable[[Seen], Measured]) -> Measure[Seen]:
        name = function.__name__.strip("_").replace("_", "-")
        return _measure(function, name, at, paper, band, exact=exact, own=own, theory=theory)

    return decorate


def claims(
    at: str,
    paper: str,
    band: Band,
    cases: Mapping[str, Case],
    *,
    own: bool = False,
    theory: bool = False,
) -> Callable[[Callable[[Seen, Case], Measured]], tuple[Measure[Seen], ...]]:
    """Return a decorator that makes a function the measure of several claims, which differ in one value, the case.

    The function takes the case as its second argument; braces in its docstring, in `at` and in `paper` can name it.
    With the cases `{"rank-two-12": 12, "rank-two-8": 8}`, `def rank_two(seen, width)` measures the claims `rank-two-12`
    and `rank-two-8`, and `{width}` is 12 in the words of the first.

    Args:
        at, paper, band, own, theory: as in `claim`
        cases: the case of each claim by the claim's name

    Errors: as in `claim`.
    """

    def decorate(function: Callable[[Seen, Case], Measured]) -> tuple[Measure[Seen], ...]:
        _, argument = signature(function).parameters
        return tuple(
            _measure(function, name, at, paper, band, {argument: case}, exact=False, own=own, theory=theory)
            for name, case in cases.items()
        )

    return decorate


def _measure(
    function: Callable[..., Measured],
    name: str,
    at: str,
    paper: str,
    band: Band,
    case: Mapping[str, Any] | None = None,
    **kind: Any,
) -> Measure[Any]:
    check_band(band, f"claim.{name}.band")
    if case:
        at, paper = at.format_map(case), paper.format_map(case)
    statement, measured_as = _words_of(name, function, case or {})
    values = tuple((case or {}).values())
    return Measure(name, statement, at, paper, measured_as, band, function=function, case=values, **kind)


def precondition(
    at: str, paper: str, band: Band, *, of: tuple[str, ...] = ()
) -> Callable[[Callable[[Seen], Measured]], Measure[Seen]]:
    """Return a decorator that makes a function the measure of a precondition, such as that the task is learned.

    A claim whose precondition is not met counts as not measured. A precondition without a value counts as met.

    Args:
        at, paper, band: as in `claim`
        of: the names of the claims that depend on it; by default all of the study except your own hypotheses
    """

    def decorate(function: Callable[[Seen], Measured]) -> Measure[Seen]:
        return replace(claim(at, paper, band)(function), precondition=True, of=of)

    return decorate


def _words_of(name: str, function: Callable[..., Any], case: Mapping[str, Any]) -> tuple[str, str]:
    """Return a claim's statement and how it is measured, from the docstring of its function."""
    try:
        text = cleandoc(function.__doc__ or "").format_map({**unwrap(function).__globals__, **case})
    except (KeyError, ValueError, AttributeError) as error:
        problem = f"its docstring has braces that name nothing in the module ({error})"
        raise SpecError(f"claim.{name}", problem, "write {{ and }} for braces") from None
    statement, measured_as = (" ".join(part.split()).removesuffix(".") for part in (*text.split("\n\n", 1), "")[:2])
    if not measured_as:
        problem = "its docstring has no second paragraph" if statement else "has no docstring"
        remedy = "state the claim in the first paragraph of its docstring, and how it is measured in the second"
        raise SpecError(f"claim.{name}", problem, remedy)
    if measured_as[1:2].islower():
        measured_as = measured_as[:1].lower() + measured_as[1:]
    return statement, measured_as


def measures_in(module: str) -> tuple[Measure[Any], ...]:
    """Return the measures defined in a module, in order; a study passes its own `__name__`."""
    found = [each for one in vars(sys.modules[module]).values() for each in (one if isinstance(one, tuple) else (one,))]
    return tuple(one for one in found if isinstance(one, Measure) and one.function.__module__ == module)


def over(
    values: Shaped[Tensor, "*unit"], of: str = "seeds", taken: Statistic | None = None, detail: str = ""
) -> Measurement:
    """Return a measurement of several values: their mean, or the result of `taken`, with spread and interval.

    Args:
        values: any shape, one for each independent unit; empty for not measured. The mean of several truth values, or
            of numbers that are 0 and 1, is a share, with exact bounds.
        of: the name of the units, in the plural
        taken: reduces the values to one number, such as `torch.min`; by default their mean
        detail: other details in words
    """
    if not values.numel():
        return Measurement(None, detail=detail)
    flat = values.flatten().double()
    value = float(flat.mean() if taken is None else taken(flat))
    if not flat.isfinite().all():
        return Measurement(value, spread(flat, of), detail)
    units = tuple(flat.tolist())
    if taken is None and (values.dtype == torch.bool or set(units) == {0, 1}):
        bounds = share(int(flat.sum()), len(flat)) if len(flat) > 1 else None
        return Measurement(value, f"{int(flat.sum())} of {len(flat)} {of}", detail, units, bounds)
    return Measurement(value, spread(flat, of), detail, units, interval(flat, taken))


def spread(values: Shaped[Tensor, "*unit"], of: str = "seeds") -> str:
    """Describe the range of values over seeds, or over the units named `of`, in words."""
    if values.numel() < 2:
        return "one value"
    return f"{float(values.min()):.3g} to {float(values.max()):.3g} over {values.numel()} {of}"


def judge(
    claim: Claim, measured: Measured, profile: str, paper_setting: bool = False, own: bool = False
) -> ClaimResult:
    """Return the result of a claim, with its verdict, for what its measure returned; otherwise as `Claim.judge`.

    Errors: `SpecError` that names the claim, for a value of a type other than `Measured`.
    """
    found = _measurement(claim, measured)
    units = found.units
    if found.value is not None and not units and found.interval is None:
        units = (found.value,)
    about = found.value, profile, found.spread, found.detail, paper_setting
    return claim.judge(*about, own=own, units=units, interval=found.interval)


def as_control(claim: Claim, measured: Measured) -> Control:
    """Return the control of a claim from its measure's result on untrained members or an untrained model.

    Errors: as in `judge`.
    """
    result = judge(claim, measured, "")
    if result.value is None:
        return Control(None, result.detail)
    if isnan(result.value):
        return Control(None, "not a number")
    return Control(result.value, result.spread or "")


def _measurement(claim: Claim, measured: Any) -> Measurement:
    if isinstance(measured, Measurement):
        return measured
    if isinstance(measured, Tensor) and measured.ndim <= 1:
        return over(measured)
    if isinstance(measured, PowerLaw):
        return Measurement(measured.slope, interval=(measured.low, measured.high))
    if measured is None or (isinstance(measured, Real) and not isinstance(measured, bool)):
        return Measurement(None if measured is None else float(measured))
    problem = f"its measure returned {type(measured).__name__}"
    raise SpecError(f"claim.{claim.id}", problem, "return a tensor [seed], a number, None or a Measurement")
