"""Programs that add: what they refuse, and other operations than the paper's."""

import re

import pytest

from anchorlab.errors import SpecError
from anchorlab.models.model import predict
from anchorlab.tasks import AnchorFunction, Vocabulary, task
from anchorlab.theory.compiled import assemble
from anchorlab.theory.compiled.sums import addition


def test_other_amounts_and_items():
    one = task("anchor/composite", operations=("+7", "-3", "x", "+11"), items=(30, 60), length=6, unseen=((3, 4),))
    spec, weights = assemble(addition(one), 25.0, 15.0)
    module = spec.build(one.shape)
    module.load_state_dict(weights)
    for split in one.splits:
        batch = one.sample(split, 100, seed=0)
        outputs = predict(module, batch.inputs, batch.positions)
        assert (outputs.argmax(dim=-1) == batch.answers).all() and outputs.amax(dim=-1).min() > 14.99


@pytest.mark.parametrize(
    ("name", "choices", "message"),
    [
        (
            "anchor/composite",
            {"operations": ("*2", "+1", "-2", "-8"), "size": 501},
            "operations.1: is no addition; use",
        ),
        ("anchor/two-distances", {}, "rules: `4 . x` is no sum that is compiled; use x A B or A x"),
    ],
)
def test_what_is_no_sum_is_refused(name, choices, message):
    with pytest.raises(SpecError, match=f"^{re.escape(message)}"):
        addition(task(name, **choices))


def test_two_amounts_are_no_addition():
    table = ", ".join(f"{item} -> {item + (1 if item < 35 else 2)}" for item in range(30, 41))
    one = AnchorFunction(vocabulary=Vocabulary(anchors=(3,), items=(30, 40)), operations={3: table})
    with pytest.raises(SpecError, match=r"^operations\.3: is no addition; use operations such as \+5$"):
        addition(one)
