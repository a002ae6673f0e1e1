"""Which claims are judged on one number alone, and which are said of all trials."""

import ast
import inspect
import sys

from anchorlab.studies import STUDIES, study

NUMBERS = {
    "truncation/one-step/means": "a distance in standard errors over batches, which is a test of itself",
    "truncation/one-step/variances": "likewise",
    "truncation/one-step/theorem-bounds": "a quantile over training sets, the largest of many points",
}
"""Claims without exactness whose measure returns a number, and why it has no units."""

BARE = {
    **NUMBERS,
    "anchor/order/picture": "without scikit-learn there is no value; with it, one for each seed",
    "retrieval/language-models/better-than-guessing": "the five formulations are all there are, each with an interval",
    "retrieval/language-models/known-by-likelihood": "likewise",
    "truncation/associative-memory/wider-steadier": "a single run has no quartiles; the ratio's interval resamples all",
    "truncation/attention-gradient/opposite-with-more-noise": "one large draw for each share of noise",
    "truncation/rank-one-noise/descent-slope": "descent from one start without noise: nothing is drawn",
    "truncation/rank-one-noise/descent-follows": "likewise",
    "truncation/stability/rates-noise-first": "one seed was trained at each other rate",
    "truncation/stability/rates-dropped": "likewise",
    "truncation/stability/alphas-gain": "likewise, at each other alpha",
}
"""Claims without exactness whose value has no units, and why."""

ALWAYS = {
    "anchor/composite": {"data-first"},
    "anchor/simplified": {"generalises"},
    "anchor/structures": {"full", "badly", "none"},
    "retrieval/circuits": {
        "suffices",
        "few-do-all",
        "needed",
        "needed-as-printed",
        "first-joins-pair",
        "more-than-least",
    },
    "retrieval/depth": {"no-curriculum-fails", "chain-order", "least-layers"},
    "retrieval/plateau": {"without-it-fails"},
    "truncation/feedforward-noise": {"recall-later"},
}
"""Claims on all trials, or on the lowest or the highest of them."""

MEASURED = [name for name in STUDIES if not name.startswith("language/")]


def measures():
    """Every measure without exactness of the studies of the three folders, by its claim."""
    return {
        f"{name}/{one.name}": one
        for name in MEASURED
        for one in study(name).claims
        if not one.exact and "<lambda>" not in one.function.__qualname__
    }


def names(function) -> set[str]:
    """The functions that a measure calls by name, itself or through those of its module that it calls."""
    module, seen, open_names = sys.modules[function.__module__], set(), {function.__name__}
    defined = {
        node.name: node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.FunctionDef)
    }
    while open_names:
        node = defined[open_names.pop()]
        called = {one.func for one in ast.walk(node) if isinstance(one, ast.Call)}
        found = {
            one.id if isinstance(one, ast.Name) else one.attr
            for one in called
            if isinstance(one, ast.Name | ast.Attribute)
        }
        open_names |= (found - seen) & set(defined)
        seen |= found
    return seen


def test_a_measure_returns_a_number_only_where_nothing_is_drawn():
    bare = {
        name for name, one in measures().items() if "float" in str(inspect.signature(one.function).return_annotation)
    }
    assert bare == set(NUMBERS)


def test_a_measurement_has_units_but_where_there_are_none():
    """`over` and its kin make it of units, a power law has an interval; others may say that nothing is known."""
    kin = {"over", "over_shared", "mean_of_known", "apart"}
    made = {name: names(one.function) for name, one in measures().items()}
    bare = {name for name, called in made.items() if "Measurement" in called and not called & kin}
    assert bare | set(NUMBERS) == set(BARE)


def test_no_measure_hides_a_statistic_in_a_tensor_of_one_value():
    assert [name for name, one in measures().items() if "reshape(1)" in inspect.getsource(one.function)] == []


def test_claims_on_all_trials_say_so():
    found = {name: {one.name for one in study(name).claims if one.always} for name in MEASURED}
    assert {name: some for name, some in found.items() if some} == ALWAYS
