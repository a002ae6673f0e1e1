"""Compiled models with their heads in random order: the same function, and a truth that moves with the heads."""

import pytest
import torch

from anchorlab.theory.compiled import compiled, reordered
from tests.theory.compiled.removed import accuracies, subsets


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


def test_every_order_occurs():
    """Two layers of two heads have four orders; the head of layer 1 that copies shows its own."""
    made = compiled("identity", "distractor")
    random = torch.Generator().manual_seed(0)
    assert {reordered(made, random).truth.needed for _ in range(40)} == {
        ("0.0", "1.0"),
        ("0.1", "1.0"),
        ("0.0", "1.1"),
        ("0.1", "1.1"),
    }


def test_the_pair_that_cancels_moves_with_its_heads():
    """Wherever the answer head lands among three, the pair is the two others, as their roles say."""
    made, found = compiled("identity", "cancelling"), set()
    for seed in range(12):
        truth = reordered(made, torch.Generator().manual_seed(seed)).truth
        names = {unit.name for unit in truth.units if unit.role.startswith("cancelling")}
        assert {name for pair in truth.cancelling for name in pair} == names
        found.add(frozenset(names))
    assert len(found) == 3
