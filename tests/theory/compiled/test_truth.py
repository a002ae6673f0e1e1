"""The truth, checked by removing units: of all subsets, exactly the minimal sets of the truth suffice."""

from itertools import product

import pytest

from anchorlab.theory.compiled import COMPILED, VARIANTS, Truth, compiled
from tests.theory.compiled.removed import accuracies, subsets

IN_GATES = {  # one model in all variants, and the others in turns
    ("identity", "plain", False),
    ("identity", "backup", True),
    ("identity", "distractor", False),
    ("identity", "cancelling", True),
    ("two-distances", "backup", True),
    ("reading-comprehension", "distractor", False),
    ("induction", "cancelling", True),
    ("recall", "plain", False),
    ("composite", "backup", False),
    ("synonym", "distractor", True),
    ("multi-anchor", "cancelling", False),
    ("retrieval", "plain", True),
}
CASES = [
    pytest.param(*case, marks=() if case in IN_GATES else pytest.mark.nightly)
    for case in product(COMPILED, VARIANTS, (False, True))
]


@pytest.mark.parametrize(("name", "variant", "rotated"), CASES)
def test_the_minimal_sets_are_those_of_all_subsets(name, variant, rotated):
    """By listing every subset of units that do something: of the plain model zeroed, of the rotated one by means."""
    made = compiled(name, variant, rotated=rotated, seed=4)
    units = [unit.name for unit in made.truth.units if not unit.role.startswith("idle")]
    found = accuracies(made, subsets(units), "mean" if rotated else "zero")
    enough = {frozenset(some) for some, accuracy in found.items() if accuracy == 1}
    smallest = {some for some in enough if not any(other < some for other in enough)}
    assert smallest == {frozenset(some) for some in made.truth.minimal}
    lone = [set(some) for some in found if len({*some} & {*sum(made.truth.cancelling, ())}) == 1]
    assert not [some for some in lone if frozenset(some) in enough]
    without_one = (set(some) - {unit} for some in made.truth.minimal for unit in some)
    assert max(found[tuple(unit for unit in units if unit in some)] for some in without_one) < 0.6
    whole = {frozenset(some) for some in found if {*some} >= {*made.truth.needed}}
    useful = [some for some in whole - enough if any({*minimal} <= some for minimal in made.truth.minimal)]
    assert all(some in map(frozenset, lone) for some in useful)  # nothing else breaks a sufficient set


@pytest.mark.parametrize("rule", ["zero", "mean"])
def test_a_backup_backs_up_and_a_pair_cancels(rule):
    """On the whole model of two distances: its answer head is there twice, or three heads write beside each other."""
    made = compiled("two-distances", "backup")
    assert made.truth.minimal == (("0.0", "1.0"), ("0.0", "1.1")) and made.truth.needed == ("0.0",)
    found = accuracies(made, [("0.0", "1.0"), ("0.0", "1.1"), ("0.0",)], rule)
    assert [*found.values()][:2] == [1, 1] and found["0.0",] < 0.1
    made = compiled("two-distances", "cancelling")
    (pair,) = made.truth.cancelling
    whole = tuple(unit.name for unit in made.truth.units)
    kept = [whole, *(tuple(unit for unit in whole if unit != one) for one in pair)]
    kept.append(tuple(unit for unit in whole if unit not in pair))
    with_both, without_first, without_second, without_both = accuracies(made, kept, rule).values()
    assert with_both == without_both == 1 and without_first < 0.05 and without_second < 0.05


def test_units_have_roles_and_jobs():
    truth = compiled("composite", "distractor").truth
    assert [(unit.name, unit.job) for unit in truth.units] == [
        ("0.0", "collect"),
        ("0.1", None),
        ("0.mlp", "add"),
        ("1.0", "answer"),
        ("1.1", None),
    ]
    assert truth.minimal == (("0.0", "0.mlp", "1.0"),) and truth.useful == truth.needed == ("0.0", "0.mlp", "1.0")
    assert [unit.role.partition(":")[0] for unit in truth.units if unit.job is None] == ["idle", "distractor"]
    assert Truth.parse(truth.model_dump(mode="json")) == truth
