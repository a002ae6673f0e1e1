"""`docs/gallery/zoo.py`: which runs it keeps, and when weights may be rounded."""

import pytest
import torch

import anchorlab as al
from tests.documents import DOCS
from tests.test_docs import load

MAKING = load(DOCS / "gallery" / "zoo.py")


def test_the_zoo_is_what_the_script_declares():
    declared = {name: (one.experiment.take(range(one.members)), one) for name, one in MAKING.cells().items()}
    listed = {row["name"]: row for row in al.zoo().iter_rows(named=True)}
    assert list(declared) == list(listed)
    for name, (experiment, cell) in declared.items():
        row = listed[name]
        assert al.zoo(name).run.address == experiment.cell.address
        assert (row["study"], row["members"], row["checkpoints"]) == (cell.study, cell.members, cell.checkpoints)


@pytest.mark.parametrize(("second", "kept"), [(1.001, torch.float32), (2.0, torch.bfloat16)])
def test_weights_are_rounded_only_where_no_answer_changes(second, kept):
    """Every output is a bias: 1 of token 30 and `second` of token 31; in bfloat16, 1.001 is 1, a tie."""
    run = al.zoo("anchor/identity")
    ensemble = run.ensemble()
    weights = {name: torch.zeros_like(value) for name, value in ensemble.weights.items()}
    weights["unembed.b_U"][:, 30], weights["unembed.b_U"][:, 31] = 1.0, second
    assert MAKING.weight_type(ensemble.with_weights(weights), run.experiment.task) == kept


@pytest.mark.parametrize(
    ("steps", "count", "kept"),
    [([0, 5, 10], 1, [10]), (list(range(0, 90, 10)), 8, [0, 10, 20, 30, 50, 60, 70, 80]), ([0, 5, 10], 2, [0, 10])],
)
def test_checkpoints_are_evenly_spaced_with_the_last(steps, count, kept):
    assert MAKING.spread(steps, count) == kept
