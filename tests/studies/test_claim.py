"""Claims on the functions that measure them."""

import math

import numpy as np
import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.findings import at_least, within
from anchorlab.studies.claim import Measurement, claim, claims, judge, measures_in, over
from anchorlab.theory import PowerLaw

LIMIT, WORDS = 0.25, "mean over seeds"


@claim("Fig 2", "about 1", at_least(0.5))
def is_high(seen) -> torch.Tensor:
    """It is high.

    Height above {LIMIT:g}, {WORDS}; judged only where it is known.
    """
    return seen


@claim("Theorem 1", "1", within(1.0, 1.0), exact=True)
def _exactly_one(seen) -> float:
    """It is exact.

    LSTM's value.
    """
    return float(seen.mean())


@claims("Fig {width}", "{width} times", at_least(0.5), {"wide": 12, "narrow": 8}, theory=True)
def of_width(seen, width: int) -> float:
    """At d = {width} it holds.

    Width times what was seen, over {LIMIT:g}, for d = {width}.
    """
    return width * float(seen.mean())


def test_claims_that_differ_in_a_case_share_a_function_and_name_the_case_in_their_words():
    wide, narrow = (one.claim("own/study", "") for one in of_width)
    assert (wide.id, wide.statement, wide.source, wide.paper) == (
        "own/study/wide",
        "At d = 12 it holds",
        "Fig 12",
        "12 times",
    )
    assert (narrow.id, narrow.measured_as) == ("own/study/narrow", "width times what was seen, over 0.25, for d = 8")
    assert wide.theory and not wide.exact
    assert [one(torch.ones(2)) for one in of_width] == [12.0, 8.0]


def test_a_claim_takes_its_words_from_the_function_and_is_called_as_it():
    made = is_high.claim("own/study", "paper")
    assert (made.id, made.statement, made.source) == ("own/study/is-high", "It is high", "paper, Fig 2")
    assert made.measured_as == "height above 0.25, mean over seeds; judged only where it is known"
    assert (made.paper, made.band, made.exact) == ("about 1", (0.5, None), False)
    other = _exactly_one.claim("own/study", "")
    assert (other.id, other.source, other.exact) == ("own/study/exactly-one", "Theorem 1", True)
    assert other.measured_as == "LSTM's value"  # a name of capitals keeps them
    assert is_high(torch.ones(2)).tolist() == [1.0, 1.0]
    assert measures_in(__name__) == (is_high, _exactly_one, *of_width)  # in the order of the module


@pytest.mark.parametrize(
    ("measured", "value", "spread", "detail"),
    [
        (torch.tensor([0.25, 0.75]), 0.5, "0.25 to 0.75 over 2 seeds", ""),
        (torch.tensor([0.3]), pytest.approx(0.3), "one value", ""),
        (torch.tensor([]), None, None, ""),
        (0.7, 0.7, None, ""),
        (None, None, None, ""),
        (PowerLaw(-0.5, -0.6, -0.4, 1.0), -0.5, None, ""),
        (torch.tensor([True, False, True]), pytest.approx(2 / 3), "2 of 3 seeds", ""),
        (Measurement(0.2, "wide", "why"), 0.2, "wide", "why"),
        (over(torch.tensor([1.0, 3.0]), of="pairs", taken=torch.min, detail="d"), 1.0, "1 to 3 over 2 pairs", "d"),
        (over(torch.tensor([]), detail="none there"), None, None, "none there"),
    ],
)
def test_what_a_measure_may_return(measured, value, spread, detail):
    result = judge(is_high.claim("a/b", ""), measured, "quick")
    assert (result.value, result.spread, result.detail) == (value, spread, detail)


@pytest.mark.parametrize(("passed", "edge"), [(5, 0.05 ** (1 / 5)), (0, 1 - 0.05 ** (1 / 5))])
def test_the_bounds_of_a_share_are_over_its_units(passed, edge):
    """Clopper and Pearson's closed forms for all units and for none."""
    low, high = over(torch.arange(5) < passed).interval
    assert (low, high) == pytest.approx((edge, 1.0) if passed else (0.0, edge))


@pytest.mark.parametrize("measured", [torch.tensor([1, 2]).eq(torch.tensor([1, 2])).all(), torch.tensor([True])])
def test_one_truth_value_is_one_value_which_decides_what_is_exact(measured):
    found = judge(_exactly_one.claim("a/b", ""), measured, "quick")
    assert (found.value, found.units, found.interval, found.verdict) == (1.0, (1.0,), None, "reproduced")
    assert judge(_exactly_one.claim("a/b", ""), ~measured, "quick").verdict == "contradicted"
    assert judge(is_high.claim("a/b", ""), measured, "quick").verdict == "undecided"


def test_verdicts_of_measures_and_of_smoke_profiles():
    made = is_high.claim("a/b", "")
    low = torch.tensor([0.39, 0.4, 0.41])
    assert judge(made, low + 0.2, "quick").verdict == "agrees at small scale"
    assert judge(made, low, "quick").verdict == "differs at small scale"
    assert judge(made, low, "paper", paper_setting=True).verdict == "contradicted"
    assert judge(made, 0.4, "quick").verdict == judge(made, low.mean(), "quick").verdict == "undecided"  # one value
    assert judge(made, math.nan, "quick").verdict == "not measured"
    assert judge(_exactly_one.claim("a/b", ""), 0.9, "quick").verdict == "contradicted"
    exact = _exactly_one.claim("a/b", "")
    assert judge(exact, 0.9, "smoke").scope == "other"
    assert judge(exact, 0.9, "smoke").verdict == "undecided"
    made = is_high.claim("a/b", "")
    assert judge(made, torch.tensor([True, True, False, True]), "quick").value == 0.75
    assert judge(made, torch.tensor([1, 2]), "quick").value == 1.5
    assert judge(made, np.float64(0.5), "quick").value == judge(made, torch.tensor(0.5), "quick").value == 0.5


@pytest.mark.untyped
@pytest.mark.parametrize("measured", [True, "0.5", [0.5], torch.zeros(2, 2), object()])
def test_what_a_measure_may_not_return(measured):
    with pytest.raises(SpecError, match=r"^claim\.a/b/is-high: its measure returned .*; return a tensor"):
        judge(is_high.claim("a/b", ""), measured, "quick")


@pytest.mark.untyped
def test_claims_that_are_refused():
    def decorated(doc, band=(0.0, 1.0)):
        def norm(seen):
            return 0.0

        norm.__doc__ = doc
        return claim("Fig 1", "1", band)(norm)

    assert decorated("It is.\n\nR^2 of the fit.").measured_as == "R^2 of the fit"
    assert decorated("It is.\n\nNorm of W_{{QK}}.").measured_as == "norm of W_{QK}"
    stated = decorated("At most {LIMIT:g} of {{x}}\n  are high.\n\n  Share.\n\n  Over seeds.")
    assert (stated.statement, stated.measured_as) == ("At most 0.25 of {x} are high", "share. Over seeds")
    for doc, message in (
        (None, r"^claim\.norm: has no docstring; state the claim in the first paragraph"),
        ("It is.", r"^claim\.norm: its docstring has no second paragraph; .* how it is measured in the second"),
        ("Norm of W_{QK}.", r"^claim\.norm: its docstring has braces that name nothing .*QK.*; write \{\{ and \}\}"),
        ("Norm of {", r"^claim\.norm: its docstring has braces"),
    ):
        with pytest.raises(SpecError, match=message):
            decorated(doc)
    for band in (0.5, (1.0, 0.0), (None,)):
        with pytest.raises(SpecError, match=r"^claim\.norm\.band: "):
            decorated("It is.\n\nNorm.", band)
