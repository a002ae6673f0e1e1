"""What a search is made of: passes that begin at the first new block, and cuts of paths whose costs are known."""

from math import inf
from random import Random

import pytest
import torch
from torch import Tensor, nn

from anchorlab.lens import AttentionRule, Explanation, find_circuit
from anchorlab.lens.circuits import Assignment, AttentionLosses
from anchorlab.lens.circuits.search import _pruned
from anchorlab.lens.look import Intervention, Operand
from anchorlab.lens.look.inputs import as_ensemble
from anchorlab.models import FNNSpec, VectorSpec
from anchorlab.tasks import task
from anchorlab.training.ensemble import initialise
from tests.lens import hand_built
from tests.lens.circuits import test_search
from tests.lens.circuits.test_search import ASK, IDENTITY, JOIN, check_every_path_is_needed, louder, search_batch
from tests.lens.hand_built import ANCHOR, BROUGHT, PREDICTED, TOKEN, blank, carrying, everywhere, identity_solver, where


class LossesByTable(AttentionLosses):
    """Losses that depend on the rules of the head 0.0 alone."""

    TABLE = {"ABC": 0.0, "BC": 3.0, "AC": 0.1, "AB": 4.0, "C": 2.0, "A": 0.5, "B": 5.0, "": 0.9}  # noqa: RUF012
    RULES = {"A": ASK, "B": JOIN, "C": AttentionRule("asked", "anchor 1")}  # noqa: RUF012

    def worst_loss(self, assignment: Assignment, enough: float) -> float:
        rules = assignment[0, 0].rules
        return self.TABLE["".join(name for name, rule in self.RULES.items() if rule in rules)]


def test_pruning_goes_on_until_no_path_can_be_cut():
    """The first round cuts B and keeps A, at a loss of 2; the second cuts C, and then A at a loss of 0.9."""
    batch = IDENTITY.sample("test", 2, 0)
    search = LossesByTable(as_ensemble(identity_solver()), IDENTITY, batch)
    every = {(0, 0): Explanation("uniform", tuple(search.RULES.values()))}
    one_left = {(0, 0): Explanation("uniform", (ASK,))}
    nothing = {(0, 0): Explanation("uniform")}
    phases = []
    assert _pruned(search, every, 0.0, 1.0, lambda *phase: phases.append(phase)) == nothing
    assert phases == [("cutting paths", done, of) for done, of in ((0, 3), (1, 3), (0, 2), (1, 2))]
    assert _pruned(search, every, 0.0, 0.6, lambda *phase: None) == one_left


class Shared(LossesByTable):
    """Without A, B and C do its work: B costs more from then on than C does."""

    TABLE = {"ABC": 0.0, "BC": 0.1, "AC": 0.2, "AB": 0.3, "C": 0.9, "B": 0.4, "A": 5.0, "": 5.0}  # noqa: RUF012


def test_the_cheapest_path_is_cut_by_what_it_costs_after_the_cuts_before():
    """First A. B was the next to cost least, at 0.2 against 0.3; now it costs 0.9, and C 0.4."""
    search = Shared(as_ensemble(identity_solver()), IDENTITY, IDENTITY.sample("test", 2, 0))
    every = {(0, 0): Explanation("uniform", tuple(search.RULES.values()))}
    only_b = {(0, 0): Explanation("uniform", (JOIN,))}
    assert _pruned(search, every, 0.0, 1.0, lambda *phase: None) == only_b
    assert _pruned(search, only_b, 0.0, 1.0, lambda *phase: None) == only_b


def twice_joined() -> nn.Module:
    """With two heads in the first layer that bring each token to the next position; either is enough."""
    module = blank(layers=2)
    for head in (0, 2):
        hand_built.shifting(module, 0, head, 1)
        carrying(module, 0, head, TOKEN, BROUGHT)
    hand_built.matching(module, 1, 0, everywhere(), where(BROUGHT, ANCHOR))
    carrying(module, 1, 0, TOKEN, PREDICTED)
    return louder(module)


def test_a_path_that_does_what_another_does_is_no_part_of_the_circuit():
    """Cutting one of the two leaves the loss as it is; cutting the other then costs all that there is."""
    module = twice_joined()
    search, heads = search_batch(module, IDENTITY, 64), ((0, 0), (0, 2), (1, 0))
    every = dict.fromkeys(search.patterns, Explanation("uniform"))
    every |= {head: Explanation("uniform", (ASK if head[0] else JOIN,)) for head in heads}
    own = search.loss({})
    left = _pruned(search, every, own, own + 0.04, lambda *phase: None)
    with_paths = [head for head, one in left.items() if one.rules]
    assert with_paths in ([(0, 0), (1, 0)], [(0, 2), (1, 0)])
    for head in with_paths:
        cut = {**left, head: left[head].without(left[head].rules[0])}
        assert search.worst_loss(cut, inf) > 1.0


@pytest.mark.slow
def test_the_search_leaves_no_path_that_does_what_another_does():
    module = twice_joined()
    found = find_circuit(module, IDENTITY, rise=0.02, sequences=64)
    assert test_search.paths_of(found) in ({(0, 0, JOIN), (1, 0, ASK)}, {(0, 2, JOIN), (1, 0, ASK)})
    assert found.threshold == pytest.approx(search_batch(module, IDENTITY, 64).loss({}) + 0.02)
    check_every_path_is_needed(found, search_batch(module, IDENTITY, 64))
    assert found.minimality > 20


@pytest.mark.parametrize(
    ("hidden", "visible", "left"), [(0.0, 2.0, (JOIN, ASK)), (2.0, 0.0, (JOIN, ASK)), (0.0, 0.0, ())]
)
def test_a_path_is_cut_only_if_the_loss_is_allowed_with_its_keys_hidden_and_with_them_visible(hidden, visible, left):
    class Losses(AttentionLosses):
        def worst_loss(self, assignment: Assignment, enough: float) -> float:
            one = assignment[0, 0]
            return 0.0 if len(one.rules) == 2 else hidden if one.cut else visible

    search = Losses(as_ensemble(identity_solver()), IDENTITY, IDENTITY.sample("test", 2, 0))
    both = {(0, 0): Explanation("uniform", (JOIN, ASK))}
    assert _pruned(search, both, 0.0, 1.0, lambda *phase: None) == {(0, 0): Explanation("uniform", left)}


# Passes that begin at the first new block give what whole passes give.
CHAINS = task("retrieval/minimal", chains=2, steps=2)
FIRST_PAIR, FIRST = AttentionRule("x1 of pair 1", "x0 of pair 1"), AttentionRule("query x0", "x1 of pair 1")
EXPLANATIONS = (
    None, Explanation("uniform"), Explanation("itself", (FIRST_PAIR,)), Explanation("nothing", (FIRST_PAIR, FIRST)),
    Explanation("uniform", (FIRST,), cut=(FIRST_PAIR,)),
)  # fmt: skip


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
    passes, run = AttentionLosses(ensemble, CHAINS, CHAINS.sample("test", 8, seed=0))._resumed, []
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
    model = as_ensemble(FNNSpec(width=4).build(one.shape))
    assert AttentionLosses(model, one, one.sample("test", 2, 0))._resumed is None
