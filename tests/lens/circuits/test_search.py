"""Circuits of models that are built by hand, where they are known."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import AttentionRule, Circuit, Explanation, find_circuit
from anchorlab.lens.circuits import AFTER_SAME, EVERYWHERE, RESTS, Assignment, AttentionLosses
from anchorlab.lens.circuits.explanation import RESERVED, rest_map
from anchorlab.lens.circuits.search import _by_roles, _joined
from anchorlab.lens.look.inputs import as_ensemble
from anchorlab.models import FNNSpec
from anchorlab.rng import child_seed
from anchorlab.tasks import AnchorFunction, Batch, NoisyRecall, Task, TokenRetrieval, task
from anchorlab.theory import retrieval_circuit
from tests.lens import hand_built
from tests.lens.hand_built import ANCHOR, BROUGHT, HEAD_WIDTH, HEADS, LENGTH, TOKEN, VOCABULARY, blank, identity_solver

IDENTITY = task("anchor/identity", length=LENGTH, anchors=(ANCHOR,), items=(4, 11), size=VOCABULARY)
JOIN, ASK = AttentionRule("key 1", "anchor 1"), AttentionRule("asked", "key 1")


def louder(module: nn.Module) -> nn.Module:
    """With logits nine times as large, so that a right answer costs next to nothing."""
    with torch.no_grad():
        dict(module.named_parameters())["unembed.W_U"].mul_(9)
    return module


def with_useless_heads(module: nn.Module, *heads: tuple[int, int]) -> nn.Module:
    """With heads that attend at random and carry next to nothing."""
    generator, weights = torch.Generator().manual_seed(0), dict(module.named_parameters())
    with torch.no_grad():
        for layer, head in heads:
            columns = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
            for name, size in (("W_Q", 1.0), ("W_K", 1.0), ("W_V", 0.05)):
                weight = weights[f"blocks.{layer}.attn.{name}"][:, columns]
                weight.copy_(torch.randn(weight.shape, generator=generator) * size)
            out = weights[f"blocks.{layer}.attn.W_O"][columns]
            out.copy_(torch.randn(out.shape, generator=generator) * 0.05)
    return module


def paths_of(circuit: Circuit) -> set[tuple[int, int, AttentionRule]]:
    return {(path.layer, path.head, path.rule) for path in circuit.paths}


def search_batch(module: nn.Module, one: Task, sequences: int, seed: int = 0) -> AttentionLosses:
    """The sequences that a circuit was searched for on."""
    batch = one.sample(one.splits[-1], sequences, child_seed(seed, "search"))
    return AttentionLosses(as_ensemble(module), one, batch)


def check_every_path_is_needed(circuit: Circuit, search: AttentionLosses) -> None:
    """Whole, both losses stay below the threshold; with any path cut, one of them does not."""
    for live in (False, True):
        assert search.loss(circuit.explanations, live) <= circuit.threshold
    assert circuit.paths
    for path in circuit.paths:
        cut = circuit.without(path)
        assert max(search.loss(cut), search.loss(cut, live=True)) > circuit.threshold, str(path)


CHAIN_CIRCUITS = {
    1: {(0, "x1 of pair 1", "x0 of pair 1"), (1, "query x0", "x1 of pair 1")},
    2: {
        (0, "x1 of pair 1", "x0 of pair 1"), (0, "x2 of pair 2", "x1 of pair 2"), (1, "query x0", "x1 of pair 1"),
        (2, "query x0", "x2 of pair 2"),
    },
    # in the second layer x2 learns x3 of pair 3, so that the query, which knows x1 by then, finds both at x2 of pair 2
    3: {
        (0, "x1 of pair 1", "x0 of pair 1"), (0, "x2 of pair 2", "x1 of pair 2"), (0, "x3 of pair 3", "x2 of pair 3"),
        (1, "query x0", "x1 of pair 1"), (1, "x2 of pair 2", "x3 of pair 3"), (2, "query x0", "x2 of pair 2"),
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("steps", CHAIN_CIRCUITS)
def test_the_circuit_of_a_model_that_follows_chains(steps):
    """Scores of later layers are softened: else uniform attention, which gives the right place most, would do."""
    chains = TokenRetrieval(chains=3, steps=steps, symbols=3 * steps + 5, asked_steps=(steps,))
    module = louder(retrieval_circuit(chains))
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if name.endswith("W_Q") and not name.startswith("blocks.0"):
                weight.mul_(0.2)
    found = find_circuit(module, chains, threshold=0.01, sequences=64)
    assert paths_of(found) == {(layer, 0, AttentionRule(query, key)) for layer, query, key in CHAIN_CIRCUITS[steps]}
    assert all(path.attention > 0.99 for path in found.paths)
    assert found.unexplained == () and found.heads == tuple((layer, 0) for layer in range(2 if steps == 1 else 3))
    assert found.useful_heads == found.heads  # all of them bring something from elsewhere
    assert found.roles[-1] == "query x0" and found.roles[:2] == (
        f"x{steps - 1} of pair {steps}",
        f"x{steps} of pair {steps}",
    )
    assert found.faithfulness == pytest.approx(1, abs=1e-3)
    if steps < 3:  # in the third layer others than the query know x3, too, and uniform attention reads it there
        assert found.completeness == pytest.approx(1, abs=1e-3)
    check_every_path_is_needed(found, search_batch(module, chains, 64))


@pytest.mark.slow
def test_useless_heads_and_layers_are_no_part_of_it():
    """Four layers of three heads; one of the second joins anchor and key, one of the fourth reads the key."""
    module, own = blank(layers=4), ((1, 2), (3, 1))
    with_useless_heads(
        module, *((layer, head) for layer in range(4) for head in range(HEADS) if (layer, head) not in own)
    )
    hand_built.shifting(module, 1, 2, 1)
    hand_built.carrying(module, 1, 2, TOKEN, BROUGHT)
    hand_built.matching(module, 3, 1, hand_built.everywhere(), hand_built.where(BROUGHT, ANCHOR))
    hand_built.carrying(module, 3, 1, TOKEN, hand_built.PREDICTED)
    found = find_circuit(louder(module), IDENTITY, sequences=128)
    assert paths_of(found) == {(1, 2, JOIN), (3, 1, ASK)}
    assert len(found.explanations) == 12 and found.unexplained == ()
    assert all(not one.rules for head, one in found.explanations.items() if head not in own)
    check_every_path_is_needed(found, search_batch(module, IDENTITY, 128))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "rules"),
    [
        (
            TokenRetrieval(chains=3, steps=1, symbols=VOCABULARY),
            (AttentionRule("x1 of pair 1", "x0 of pair 1"), AttentionRule("query x0", "x1 of pair 1")),
        ),
        (
            NoisyRecall(
                length=LENGTH, source="uniform", tokens=VOCABULARY - 1, alpha=0, triggers=(1, 2, 3, 4),
                scored="after_trigger",
            ),
            # the trigger occurs several times there
            (AttentionRule("output", "earlier trigger"), AttentionRule("asked", AFTER_SAME)),
        ),
    ],
    ids=["retrieval", "recall"],
)  # fmt: skip
def test_the_induction_circuit(one, rules):
    module = louder(with_useless_heads(hand_built.induction_circuit(), (0, 1), (0, 2), (1, 1), (1, 2)))
    found = find_circuit(module, one, sequences=128)
    assert one.shape == hand_built.SHAPE
    assert paths_of(found) == {(layer, 0, rule) for layer, rule in enumerate(rules)}
    check_every_path_is_needed(found, search_batch(module, one, 128))


def answers(module: nn.Module, tokens: Tensor, attend) -> Tensor:
    """A hand-built decoder's outputs, computed from its weights; `attend(layer, head, pattern)` gives the pattern."""
    weights = {name: weight.detach() for name, weight in module.named_parameters()}
    ahead = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    stream = weights["embed.W_E"][tokens] + weights["pos_embed.W_pos"]
    for layer in range(2):
        brought = torch.zeros_like(stream)
        for head in range(HEADS):
            columns = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
            query, key, value = (stream @ weights[f"blocks.{layer}.attn.W_{name}"][:, columns] for name in "QKV")
            scores = (query @ key.transpose(1, 2) / HEAD_WIDTH**0.5).masked_fill(ahead, -torch.inf)
            pattern = attend((layer, head), scores.softmax(dim=-1))
            brought += pattern @ value @ weights[f"blocks.{layer}.attn.W_O"][columns]
        stream = stream + brought
    return stream @ weights["unembed.W_U"]


def loss_by_hand(module: nn.Module, batch: Batch, attend) -> float:
    """The loss of these answers at the last position."""
    return float(nn.functional.cross_entropy(answers(module, batch.inputs, attend)[:, -1], batch.answers[:, 0]))


@pytest.mark.slow
def test_losses_are_those_of_the_maps():
    """Every number of a circuit, from weights and sequences alone; later scores are soft, so that all differ."""
    module = louder(with_useless_heads(identity_solver(), (0, 2), (1, 1)))
    with torch.no_grad():
        dict(module.named_parameters())["blocks.1.attn.W_Q"].mul_(0.1)
    found = find_circuit(module, IDENTITY, sequences=64, seed=3)
    assert paths_of(found) == {(0, 0, JOIN), (1, 0, ASK)}
    assert found.live_loss > 1.01 * found.loss
    assert all(path.cut_loss > 1.01 * path.mapped_cut_loss or path.rule == ASK for path in found.paths)
    batch = IDENTITY.sample("test", 64, child_seed(3, "fresh"))
    anchor, key = (batch.latents[name][:, 0] for name in ("anchor_positions", "key_positions"))
    rows, ruled = torch.arange(64), {(0, 0): (key, anchor), (1, 0): (torch.full_like(key, LENGTH - 1), key)}

    loss, uniform = partial(loss_by_hand, module, batch), rest_map("uniform", LENGTH)

    def explained(without: tuple[int, int] | None, live: bool):
        def attend(head: tuple[int, int], own: Tensor) -> Tensor:
            pattern = rest_map(found.explanations[head].rest, LENGTH).expand_as(own).clone()
            if head in ruled and head != without:
                queries, keys = ruled[head]
                pattern[rows, queries] = own[rows, queries] if live else nn.functional.one_hot(keys, LENGTH).float()
            return pattern

        return attend

    def robbed(head: tuple[int, int], own: Tensor) -> Tensor:
        if head in ruled:
            own = own.clone()
            own[rows, ruled[head][0]] = uniform[ruled[head][0]]
        return own

    assert found.loss == pytest.approx(loss(explained(None, live=False)), rel=1e-4)
    assert found.live_loss == pytest.approx(loss(explained(None, live=True)), rel=1e-4)
    assert found.model_loss == pytest.approx(loss(lambda head, own: own), rel=1e-4)
    assert found.empty_loss == pytest.approx(loss(lambda head, own: uniform.expand_as(own)), rel=1e-4)
    assert found.rest_loss == pytest.approx(loss(robbed), rel=1e-4)
    for path in found.paths:
        cut = path.layer, path.head
        assert path.cut_loss == pytest.approx(loss(explained(cut, live=True)), rel=1e-4)
        assert path.mapped_cut_loss == pytest.approx(loss(explained(cut, live=False)), rel=1e-4)
    whole = found.empty_loss - found.model_loss
    assert found.faithfulness == pytest.approx((found.empty_loss - found.loss) / whole)
    assert found.completeness == pytest.approx((found.rest_loss - found.model_loss) / whole)
    assert found.minimality == pytest.approx(min(path.cut_loss for path in found.paths) / found.live_loss)


def threshold_of(module: nn.Module) -> float:
    """4 % of the way from the model's loss to that with one and the same rest in all heads, where it is lowest."""

    loss = partial(loss_by_hand, module, search_batch(module, IDENTITY, 64).batch)
    lowest = min(loss(lambda head, own, rest=rest: rest_map(rest, LENGTH).expand_as(own)) for rest in RESTS)
    return 0.96 * loss(lambda head, own: own) + 0.04 * lowest


def test_live_nothing_is_attended_along_a_path_that_is_cut():
    """Of two paths of a query, the other keeps its share of 1; what another rule sends it to, it may still see."""
    module = with_useless_heads(identity_solver(), (0, 1))
    search, head = search_batch(module, IDENTITY, 64), (0, 1)
    anchor, rows, last = search.batch.latents["anchor_positions"][:, 0], torch.arange(64), LENGTH - 1
    to_anchor, to_key = AttentionRule("asked", "anchor 1"), AttentionRule("asked", "key 1")

    def loss(seen: Tensor) -> float:
        def attend(which: tuple[int, int], own: Tensor) -> Tensor:
            if which != head:
                return own
            pattern = rest_map("uniform", LENGTH).expand_as(own).clone()
            pattern[:, last] = own[:, last] * seen / (own[:, last] * seen).sum(dim=1, keepdim=True)
            return pattern

        return loss_by_hand(module, search.batch, attend)

    whole, hidden = torch.ones(2, 64, LENGTH)
    hidden[rows, anchor] = 0
    both = Explanation("uniform", (to_anchor, to_key))
    assert search.loss({head: both}, live=True) == pytest.approx(loss(whole), rel=1e-5)
    cut = {head: both.without(to_anchor)}
    assert search.loss(cut, live=True) == pytest.approx(loss(hidden), rel=1e-5) != pytest.approx(loss(whole), rel=1e-5)
    told_twice = Explanation("uniform", (to_anchor, AttentionRule(EVERYWHERE, "anchor 1"))).without(to_anchor)
    every = Explanation("uniform", (AttentionRule(EVERYWHERE, "anchor 1"),))
    assert search.loss({head: told_twice}, live=True) == pytest.approx(search.loss({head: every}, live=True), rel=1e-6)


def test_roles_that_do_not_follow_a_shift_have_no_path():
    """The first head joins anchor and key; let the position that is asked look at itself."""
    search = search_batch(louder(identity_solver()), IDENTITY, 64)
    own = search.patterns[0, 0].clone()
    own[:, -1] = torch.eye(LENGTH)[-1]
    search.__dict__["patterns"] = {**search.patterns, (0, 0): own}
    shift = {(0, 0): Explanation("uniform", (AttentionRule(EVERYWHERE, 1),))}
    told = _by_roles(search, shift, allowed=10.0)[0, 0]
    assert JOIN in told.rules and "asked" not in {rule.query for rule in told.rules}


@pytest.mark.slow
def test_no_other_rest_of_a_head_would_cost_less():
    """The random heads carry a little, so that it matters where their queries look."""
    module = louder(with_useless_heads(identity_solver(), (0, 1), (0, 2), (1, 1), (1, 2)))
    found, search = find_circuit(module, IDENTITY, sequences=64), search_batch(module, IDENTITY, 64)

    def worst(explanations) -> float:
        return max(search.loss(explanations), search.loss(explanations, live=True))

    whole, others = worst(found.explanations), []
    for head, one in found.explanations.items():
        others += [worst({**found.explanations, head: replace(one, rest=rest)}) for rest in RESTS if rest != one.rest]
    spare = found.threshold - search.loss({})
    assert min(others) >= whole - 0.02 * spare and max(others) > whole + 0.02 * spare


@pytest.fixture(scope="module")
def solved():
    return find_circuit(louder(identity_solver()), IDENTITY, sequences=64)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_circuit(solved):
    module, told = louder(identity_solver()), []
    assert find_circuit(module, IDENTITY, sequences=64, progress=lambda *now: told.append(now)) == solved
    assert {what for what, _, _ in told} == {"each head alone", "all heads together", "cutting paths"}
    assert [now[1:] for now in told if now[0] == "each head alone"] == [(done, 6) for done in range(6)]
    assert solved.threshold == pytest.approx(threshold_of(module), rel=1e-5)
    other = find_circuit(module, IDENTITY, sequences=64, seed=1)
    assert other.empty_loss != solved.empty_loss and paths_of(other) == paths_of(solved) == {(0, 0, JOIN), (1, 0, ASK)}


def test_a_member_is_chosen_and_attention_may_do_nothing(solved):
    """The first member predicts nothing, so that no attention is needed; what share of nothing it does is no number."""
    pair = hand_built.stacked(blank(layers=2), louder(identity_solver()))
    assert find_circuit(pair, IDENTITY, sequences=64, member=1) == solved
    empty = find_circuit(pair, IDENTITY, sequences=64)
    assert empty.paths == () and set(empty.explanations.values()) == {Explanation("uniform")}
    assert empty.model_loss == empty.loss == empty.empty_loss
    assert empty.faithfulness != empty.faithfulness and empty.minimality == float("inf")


class CostsOfHeads(AttentionLosses):
    """The loss is that of the costliest explanation, by its rest."""

    COSTS = {  # noqa: RUF012
        0: {"uniform": 0.2, "itself": 0.1},  # 0.2 is too much for the first head
        1: {"uniform": 0.2, "itself": 0.1},
        2: {"uniform": 0.7, "itself": 0.6},  # too much for half, so that the simpler one of all may do
        3: {"uniform": 1.2, "itself": 1.1},
    }

    def worst_loss(self, assignment: Assignment, enough: float) -> float:
        return max(self.COSTS[head[1]][one.rest] for head, one in assignment.items() if one is not None)


def test_the_allowance_grows_from_head_to_head_and_the_rest_is_left_for_the_unexplained():
    """With an allowance of 1 the four heads may use 1/8, 1/4, 3/8 and 1/2, and then, where none fits, all of it."""
    search = CostsOfHeads(as_ensemble(identity_solver()), IDENTITY, IDENTITY.sample("test", 2, 0))
    heads = [(0, head) for head in search.COSTS]
    search.__dict__["patterns"] = dict.fromkeys(heads)
    candidates = {head: (0.0, [Explanation("uniform"), Explanation("itself")]) for head in heads}
    found = _joined(search, candidates, 0.0, 1.0, lambda *phase: None)
    assert [one and one.rest for one in found.values()] == ["itself", "uniform", "uniform", None]


def test_a_head_that_no_rule_explains_keeps_its_attention(monkeypatch):
    """Without the role of the key nothing can be said of the head that reads it, and a shift only of all positions."""
    monkeypatch.setattr(AnchorFunction, "roles", lambda one, batch: {"asked": torch.full((len(batch), 1), LENGTH - 1)})
    found = find_circuit(louder(identity_solver()), IDENTITY, sequences=64)
    assert paths_of(found) == {(0, 0, AttentionRule(EVERYWHERE, 1))}
    assert found.unexplained == ((1, 0),) and found.explanations[1, 0] is None
    assert "not explained: 1.0" in str(found)


def test_a_key_ahead_is_none_behind_a_mask():
    """The anchor cannot look at the key after it, so that a rule which says so leaves it to the rest, live as well."""
    search = search_batch(louder(identity_solver()), IDENTITY, 64)
    ahead = {(0, 0): Explanation("uniform", (AttentionRule("anchor 1", "key 1"),))}
    uniform = search.loss({(0, 0): Explanation("uniform")})
    assert search.loss(ahead) == search.loss(ahead, live=True) == uniform
    backwards = {(0, 0): Explanation("uniform", (AttentionRule("anchor 1", 1),))}
    assert search.loss(backwards, live=True) != uniform


@pytest.mark.slow
def test_a_member_that_diverged_is_refused_and_its_neighbour_is_not(solved):
    diverged = identity_solver()
    with torch.no_grad():
        dict(diverged.named_parameters())["unembed.W_U"].fill_(torch.nan)
    pair = hand_built.stacked(diverged, louder(identity_solver()))
    for threshold in (None, 0.1):
        with pytest.raises(SpecError, match=r"^model: has a loss of nan; choose a member or a checkpoint that did not"):
            find_circuit(pair, IDENTITY, sequences=64, threshold=threshold)
    assert find_circuit(pair, IDENTITY, member=1, sequences=64) == solved


def with_fewer_outputs():
    module = identity_solver()
    module.unembed.W_U = nn.Parameter(module.unembed.W_U[:, :-1])
    module.unembed.b_U = nn.Parameter(module.unembed.b_U[:-1])
    return module


def linear():
    module = identity_solver()
    module.blocks[1].attn.softmax = False
    return module


REMEDY = "; give the task that the model was trained on"
LONGER = IDENTITY.replace(placement=IDENTITY.placement.replace(length=LENGTH + 1))
REFUSED = [
    *(({"member": member}, rf"^member: there is no member {member}; choose from 0\.\.0") for member in (1, -1)),
    ({"split": "tst"}, r"^split: unknown split 'tst'; did you mean 'test'"),
    *(({"sequences": few}, rf"^sequences: {few} are too few; give at least 1") for few in (0, -1)),
    ({"threshold": 0.1, "rise": 0.02}, r"^rise: says again what the threshold says; give one of them"),
    ({"threshold": float("nan")}, r"^threshold: nan is below the model's loss 0\.0\d+; raise it, or train"),
    ({"threshold": 0.001}, r"^threshold: 0\.001 is below the model's loss 0\.0\d+; raise it, or train"),
    ({"model": linear()}, r"^pattern: has weights outside 0\.\.1; a head of linear attention has no shares"),
    ({"model": FNNSpec(width=4).build(IDENTITY.shape)}, "no attention to explain"),
    ({"task": "anchor/identity"}, rf"^task: has sequences that hold \d+, a token outside 0\.\.11.*{REMEDY}"),
    ({"task": "retrieval/minimal"},
     f"^task: has sequences that are float32 of shape .*, and the model reads tokens.*{REMEDY}"),
    ({"task": LONGER}, f"^task: has sequences that have 10 positions.*{REMEDY}"),
    ({"model": with_fewer_outputs()}, r"^task: has 12 outputs, and the model 11; give the task that the model was"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_mistakes_name_the_field(given, message):
    with pytest.raises((SiteError, SpecError), match=message):
        find_circuit(**{"model": louder(identity_solver()), "task": IDENTITY, **given})


@pytest.mark.parametrize("name", RESERVED)
def test_a_role_by_the_name_of_what_is_no_role_is_refused(name, monkeypatch):
    """`every position → 1 before` could mean either."""
    roles = {"asked": torch.full((64, 1), LENGTH - 1), name: torch.zeros(64, 1, dtype=torch.int64)}
    monkeypatch.setattr(AnchorFunction, "roles", lambda one, batch: roles)
    with pytest.raises(SpecError, match=rf"^task\.roles: '{name}' has a meaning of its own; call the role something"):
        find_circuit(louder(identity_solver()), IDENTITY, sequences=64)
