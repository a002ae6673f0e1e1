"""The truth, checked by removing units: of all subsets, exactly the minimal sets of the truth suffice."""

from itertools import chain, combinations, product

import pytest
import torch

from anchorlab.lens import Intervention, look
from anchorlab.truth import COMPILED, VARIANTS, Truth, compiled, reordered


def removal(unit: str, rule: str) -> Intervention:
    layer, part = unit.split(".")
    if part == "mlp":
        return Intervention(site=f"blocks.{layer}.hook_mlp_out", rule=rule, may_do_nothing=True)
    return Intervention(site=f"blocks.{layer}.attn.hook_z", where={"head": int(part)}, rule=rule, may_do_nothing=True)


def accuracies(made, kept, rule="zero", n=60, seed=3) -> dict[tuple[str, ...], float]:
    """The accuracy if only some units are kept, by set of units, over sequences of every split."""
    every = [unit.name for unit in made.truth.units]
    candidates = {
        ",".join(some): [removal(unit, rule) for unit in every if unit not in some] for some in map(tuple, kept)
    }
    right = []
    for split in made.task.splits:
        batch = made.task.sample(split, n, seed)
        outputs = look(made.ensemble, batch, candidates=candidates, positions=batch.positions)["output"][0]
        right.append((outputs.argmax(dim=-1) == batch.answers).double().flatten(1))
    found = torch.cat(right, dim=1).mean(dim=1).tolist()
    return dict(zip(map(tuple, kept), found, strict=True))


def subsets(units):
    return list(chain.from_iterable(combinations(units, size) for size in range(len(units) + 1)))


# The truth, checked by removing units: of all subsets, exactly the minimal sets of the truth suffice.
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


def test_units_have_roles_and_jobs():
    truth = compiled("composite", "distractor").truth
    assert [(unit.name, unit.job) for unit in truth.units] == [
        ("0.0", "collect"), ("0.1", None), ("0.mlp", "add"), ("1.0", "answer"), ("1.1", None),
    ]  # fmt: skip
    assert truth.minimal == (("0.0", "0.mlp", "1.0"),) and truth.useful == truth.needed == ("0.0", "0.mlp", "1.0")
    assert [unit.role.partition(":")[0] for unit in truth.units if unit.job is None] == ["idle", "distractor"]
    assert Truth.parse(truth.model_dump(mode="json")) == truth


# Compiled models with their heads in random order: the same function, and a truth that moves with the heads.
@pytest.mark.parametrize(("name", "variant"), [("identity", "cancelling"), ("composite", "backup")])
def test_the_truth_moves_with_the_heads(name, variant):
    """The sets that suffice are found again by keeping every subset of the units."""
    made = compiled(name, variant)
    moved = reordered(made, torch.Generator().manual_seed(1))
    batch = made.task.sample(made.task.splits[-1], 50, seed=0)
    assert torch.allclose(moved.model(batch.inputs), made.model(batch.inputs), atol=1e-3)
    assert moved.truth.minimal != made.truth.minimal
    units = [unit.name for unit in made.truth.units]
    assert [unit.name for unit in moved.truth.units] == units
    assert sorted(unit.role for unit in moved.truth.units) == sorted(unit.role for unit in made.truth.units)
    found = accuracies(moved, subsets(units), n=20)
    enough = [{*kept} for kept, accuracy in found.items() if accuracy > 0.9]
    least = {frozenset(one) for one in enough if not any(other < one for other in enough)}
    assert least == {frozenset(one) for one in moved.truth.minimal}
    jobs = {unit.name: unit.role.startswith("cancelling") for unit in moved.truth.units}
    assert {unit for pair in moved.truth.cancelling for unit in pair} == {
        name for name, is_one in jobs.items() if is_one
    }


def test_every_order_occurs_and_the_pair_that_cancels_moves_with_its_heads():
    """Wherever the answer head lands among three, the pair is the two others, as their roles say."""
    plain, random = compiled("identity", "distractor"), torch.Generator().manual_seed(0)
    # two layers of two heads have four orders; the head of layer 1 that copies shows its own
    orders = {reordered(plain, random).truth.needed for _ in range(40)}
    assert orders == {(first, second) for first in ("0.0", "0.1") for second in ("1.0", "1.1")}
    made, found = compiled("identity", "cancelling"), set()
    for seed in range(12):
        truth = reordered(made, torch.Generator().manual_seed(seed)).truth
        names = {unit.name for unit in truth.units if unit.role.startswith("cancelling")}
        assert {name for pair in truth.cancelling for name in pair} == names
        found.add(frozenset(names))
    assert len(found) == 3
