"""Passes that begin at the first new block give what whole passes give."""

from random import Random

import pytest
import torch
from torch import Tensor

from anchorlab.lens import AttentionRule, Explanation
from anchorlab.lens.circuits import AttentionLosses
from anchorlab.lens.circuits.resumed import ResumedPasses
from anchorlab.lens.look import Intervention, Operand
from anchorlab.lens.look.inputs import as_ensemble
from anchorlab.models import FNNSpec, VectorSpec
from anchorlab.tasks import task
from anchorlab.training.ensemble import initialise

CHAINS = task("retrieval/minimal", chains=2, steps=2)
JOIN, FIRST = AttentionRule("x1 of pair 1", "x0 of pair 1"), AttentionRule("query x0", "x1 of pair 1")
EXPLANATIONS = (
    None,
    Explanation("uniform"),
    Explanation("itself", (JOIN,)),
    Explanation("nothing", (JOIN, FIRST)),
    Explanation("uniform", (FIRST,), cut=(JOIN,)),
)


@pytest.fixture
def ensemble():
    return initialise(VectorSpec(layers=3, heads=2, width=16, initial_scale=0.3), CHAINS.shape, [0])


def whole(losses: AttentionLosses) -> AttentionLosses:
    """The losses, by passes that always begin at the first block."""
    again = AttentionLosses(losses.ensemble, losses.task, losses.batch)
    again.__dict__["_resumed"] = None
    return again


def test_outputs_are_those_of_whole_passes(ensemble):
    """One head at a time is changed, at random, so that passes begin at every block; and each comes back."""
    random, batch = Random(0), CHAINS.sample("test", 8, seed=0)
    resumed = AttentionLosses(ensemble, CHAINS, batch)
    expected, assignment, tried = whole(resumed), {}, []
    for _ in range(60):
        assignment = {**assignment, (random.randrange(3), random.randrange(2)): random.choice(EXPLANATIONS)}
        tried.append((assignment, random.random() < 0.5))
    for assignment, live in [*tried, *tried]:
        torch.testing.assert_close(resumed.outputs(assignment, live), expected.outputs(assignment, live))


def test_only_blocks_from_the_first_new_one_on_are_run(ensemble):
    passes, run = ResumedPasses.of(ensemble, CHAINS.sample("test", 8, seed=0)), []
    assert passes is not None

    def changes(block: int) -> list[Intervention]:
        run.append(block)
        doubled = Operand(values=torch.tensor(2.0), axes=())
        site = f"blocks.{block}.attn.hook_pattern"
        return [Intervention.parse({"site": site, "rule": "scale", "operand": doubled})]

    def blocks(*names: str) -> tuple[list[int], Tensor]:
        run.clear()
        outputs = passes(names, changes)
        return list(run), outputs

    assert blocks("a", "b", "c")[0] == [0, 1, 2]
    assert blocks("a", "b", "d")[0] == [2]
    assert blocks("a", "e", "c")[0] == [1, 2]
    assert blocks("f", "b", "c")[0] == [0, 1, 2]  # the same changes above, in another stream
    for other in range(100):
        blocks(f"{other}", "b", "c")
    assert blocks("a", "b", "d")[0] == [0, 1, 2]  # too long ago


def test_models_that_begin_nowhere_are_run_whole():
    one = task("anchor/identity", length=5, anchors=(3,), items=(4, 11), size=12)
    assert ResumedPasses.of(as_ensemble(FNNSpec(width=4).build(one.shape)), one.sample("test", 2, 0)) is None
