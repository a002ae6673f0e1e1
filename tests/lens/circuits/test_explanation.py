"""Rules, their maps and hypotheses about a head: against lists of cells written out place by place."""

from itertools import product

import pytest
import torch
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens import circuits
from anchorlab.lens.circuits import AFTER_SAME, EVERYWHERE, SAME, AttentionRule, Explanation, attention_map, hypotheses
from anchorlab.lens.circuits.explanation import Roles, rest_map
from anchorlab.lens.circuits.hypotheses import resolved, rule_attention

LENGTH = 6
ROLES = {
    "first": torch.tensor([[0, 2], [1, -1]]),  # two instances, of which the second sequence has one
    "second": torch.tensor([[1, 3], [2, 4]]),
    "query": torch.tensor([[4, 5], [4, 5]]),
    "marker": torch.tensor([[3], [3]]),  # belongs to all
    "ahead": torch.tensor([[5], [5]]),
}
TOKENS = torch.tensor([[7, 8, 7, 9, 7, 8], [1, 1, 2, 1, 2, 2]])
KEYS = ("first", "second", "query", "marker", "ahead", 0, 1, 3, SAME, AFTER_SAME)


def keys_of(rule: AttentionRule, row: int, query: int) -> set[int]:
    """Where a rule sends one query of one sequence, place by place."""
    asked = (
        [None]
        if rule.query == EVERYWHERE
        else [i for i, at in enumerate(ROLES[rule.query][row].tolist()) if at == query]
    )
    tokens, found = TOKENS[row].tolist(), set()
    for instance in asked:
        if rule.key == SAME:
            found |= {at for at in range(query) if tokens[at] == tokens[query]}
        elif rule.key == AFTER_SAME:
            found |= {at + 1 for at in range(query) if tokens[at] == tokens[query]}
        elif isinstance(rule.key, int):
            found |= {query - rule.key} if query >= rule.key else set()
        else:
            places = ROLES[rule.key][row].tolist()
            place = places[0] if len(places) == 1 else places[instance]
            found |= {place} if place >= 0 else set()
    return found


def map_of(explanation: Explanation, causal: bool) -> Tensor:
    """The map of an explanation, cell by cell."""
    found = torch.zeros(2, LENGTH, LENGTH)
    for row, query in product(range(2), range(LENGTH)):
        seen = [key for rule in explanation.rules for key in keys_of(rule, row, query) if key <= query or not causal]
        for key in seen:
            found[row, query, key] += 1 / len(seen)
        if not seen and explanation.rest == "itself":
            found[row, query, query] = 1
        elif not seen and explanation.rest == "uniform":
            reach = query + 1 if causal else LENGTH
            found[row, query, :reach] = 1 / reach
    return found


def fitting_rules() -> list[AttentionRule]:
    """Every rule of the roles; those for every position have keys that belong to all."""
    rules = [AttentionRule(query, key) for query, key in product(("first", "second", "query"), KEYS)]
    rules += [AttentionRule("marker", key) for key in ("ahead", 0, 1, SAME)]
    return rules + [AttentionRule(EVERYWHERE, key) for key in ("marker", "ahead", 0, 1, 5, SAME, AFTER_SAME)]


@pytest.mark.parametrize("rule", fitting_rules(), ids=str)
def test_cells_are_those_listed(rule):
    expected = torch.zeros(2, LENGTH, LENGTH, dtype=torch.bool)
    for row, query in product(range(2), range(LENGTH)):
        for key in keys_of(rule, row, query):
            expected[row, query, key] = True
    assert torch.equal(circuits.rule_cells(rule, ROLES, LENGTH, TOKENS), expected)


def test_places_by_hand():
    """Both are -1 where one is missing; a single instance is the key of all; a place before the first is none."""

    def places(query: str, key: str | int) -> tuple[list[list[int]], list[list[int]]]:
        queries, keys = circuits.rule_places(AttentionRule(query, key), ROLES, LENGTH)
        return queries.tolist(), keys.tolist()

    assert places("query", "first") == ([[4, 5], [4, -1]], [[0, 2], [1, -1]])
    assert places("first", "query") == ([[0, 2], [1, -1]], [[4, 5], [4, -1]])
    assert places("query", "marker") == ([[4, 5], [4, 5]], [[3, 3], [3, 3]])
    assert places("first", 1) == ([[-1, 2], [1, -1]], [[-1, 1], [0, -1]])
    assert places(EVERYWHERE, 4) == ([[-1, -1, -1, -1, 4, 5]] * 2, [[-1, -1, -1, -1, 0, 1]] * 2)
    assert places(EVERYWHERE, "marker") == ([[0, 1, 2, 3, 4, 5]] * 2, [[3] * 6] * 2)
    queries, keys = circuits.rule_places(AttentionRule(EVERYWHERE, "marker"), ROLES, LENGTH, causal=True)
    assert (queries.tolist(), keys.tolist()) == ([[-1, -1, -1, 3, 4, 5]] * 2, [[-1, -1, -1, 3, 3, 3]] * 2)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("rest", circuits.RESTS)
def test_maps_are_those_listed(rest, causal):
    """Of every single rule, and of every two."""
    rules = fitting_rules()
    for chosen in [(), *((rule,) for rule in rules), *zip(rules, rules[7:] + rules[:7], strict=True)]:
        one = Explanation(rest, chosen)
        found = attention_map(one, ROLES, LENGTH, causal, TOKENS)
        assert torch.allclose(found, map_of(one, causal)), str(one)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (AttentionRule("frist", "marker"), "rule.query: unknown role 'frist'; did you mean 'first'?"),
        (AttentionRule("first", "maker"), "rule.key: unknown role 'maker'; did you mean 'marker'?"),
        (AttentionRule("first", 6), "rule.key: 6 before is not within 6 positions"),
        (AttentionRule("first", -1), "rule.key: -1 before is not within 6 positions"),
        (AttentionRule("marker", "first"), "rule.key: 'first' has 2 instances, 'marker' 1"),
        (AttentionRule(EVERYWHERE, "first"), "rule.key: 'first' has 2 instances, 'every position' 6"),
        (AttentionRule("query", SAME), "tokens: are missing for a rule about the same token"),
    ],
)
def test_a_rule_that_does_not_fit_says_so(rule, problem):
    with pytest.raises(SpecError) as caught:
        circuits.rule_cells(rule, ROLES, LENGTH)
    assert str(caught.value).startswith(problem)
    with pytest.raises(SpecError, match=r"rule\.key"):  # a rule about the same token has no single place
        circuits.rule_places(AttentionRule("query", AFTER_SAME), ROLES, LENGTH)


def test_explanations_in_words_and_with_one_rule_less():
    join, ask = AttentionRule("second", "first"), AttentionRule("query", 0)
    one = Explanation("nothing", (join, ask))
    assert str(one) == "second → first; query → itself; else nothing"
    assert one.without(join) == Explanation("nothing", (ask,), cut=(join,))
    assert one.without(join).without(ask) == Explanation("nothing", (), cut=(join, ask))
    assert (
        one.without(AttentionRule("second", 1))
        == one.without(AttentionRule("second", 1)).without(AttentionRule("first", 0))
        == one
    )
    assert str(Explanation("uniform")) == "uniform" and str(AttentionRule(EVERYWHERE, 2)) == "every position → 2 before"


# Hypotheses about a head, from where it looks: against patterns written by hand.
def test_attention_along_a_rule_by_hand():
    pattern = torch.zeros(2, LENGTH, LENGTH)
    pattern[0, 4, 0], pattern[0, 5, 2], pattern[1, 4, 1], pattern[1, 5, 5] = 0.5, 0.25, 0.75, 1.0
    assert rule_attention(pattern, AttentionRule("query", "first"), ROLES) == pytest.approx(1.5 / 3)  # one is missing
    assert rule_attention(pattern, AttentionRule("query", 0), ROLES) == pytest.approx(1 / 4)
    nowhere = {**ROLES, "lost": torch.full((2, 2), -1)}
    assert rule_attention(pattern, AttentionRule("query", "lost"), nowhere) == 0
    # of the token at 4 there were two before in the first sequence, one in the second; of that at 5, one and two
    pattern[0, 4, 2], pattern[1, 5, 4] = 0.25, 0.5
    assert rule_attention(pattern, AttentionRule("query", SAME), ROLES, TOKENS) == pytest.approx((0.5 + 0.25 + 0.5) / 4)


def test_rules_for_every_position_by_roles():
    """What stands always before a role is named by its own role; a rule that says nothing of a role leaves it out."""
    roles = {
        "anchor": torch.tensor([[1], [2]]), "key": torch.tensor([[2], [3]]), "start": torch.tensor([[0], [0]]),
        "end": torch.tensor([[5], [5]]),
    }  # fmt: skip
    assert resolved(AttentionRule(EVERYWHERE, 1), roles, LENGTH) == (
        AttentionRule("anchor", 1),
        AttentionRule("key", "anchor"),
        AttentionRule("end", 1),
    )
    assert resolved(AttentionRule(EVERYWHERE, 5), roles, LENGTH) == (AttentionRule("end", "start"),)
    tokens = torch.tensor([[4, 7, 8, 9, 5, 7], [4, 5, 7, 8, 9, 7]])
    assert resolved(AttentionRule(EVERYWHERE, SAME), roles, LENGTH, tokens) == (AttentionRule("end", "anchor"),)
    assert resolved(AttentionRule(EVERYWHERE, AFTER_SAME), roles, LENGTH, tokens) == (AttentionRule("end", "key"),)
    twice = torch.tensor([[7, 7, 8, 9, 5, 7], [4, 5, 7, 8, 9, 7]])
    assert AttentionRule("end", SAME) in resolved(AttentionRule(EVERYWHERE, SAME), roles, LENGTH, twice)


def rules_tried(pattern: Tensor, tokens: Tensor | None = None, roles: Roles = ROLES) -> list[tuple[AttentionRule, ...]]:
    """The sets of rules in their order; each is checked to come with each rest, the simplest first."""
    found = hypotheses(pattern, roles, tokens)
    assert len(found) == len(set(found)) and [one.rest for one in found] == [*circuits.RESTS] * (len(found) // 3)
    return [one.rules for one in found[::3]]


def test_hypotheses_come_from_where_the_head_looks():
    single = hypotheses(torch.ones(4, 1, 1), {"asked": torch.zeros(4, 1, dtype=torch.int64)})
    assert single[:3] == [Explanation("uniform"), Explanation("itself"), Explanation("nothing")]
    uniform = rest_map("uniform", LENGTH).expand(2, -1, -1)
    assert rules_tried(uniform)[0] == () and not rules_tried(torch.zeros(2, LENGTH, LENGTH))[1:]
    for shift in (1, 2, 3):
        assert rules_tried(map_of(Explanation("itself", (AttentionRule(EVERYWHERE, shift),)), causal=True))[1] == (
            AttentionRule(EVERYWHERE, shift),
        )
    same = map_of(Explanation("itself", (AttentionRule(EVERYWHERE, SAME),)), causal=True)
    assert (AttentionRule(EVERYWHERE, SAME),) in rules_tried(same, TOKENS)
    assert (AttentionRule(EVERYWHERE, SAME),) not in rules_tried(same)
    after = map_of(Explanation("itself", (AttentionRule(EVERYWHERE, AFTER_SAME),)), causal=True)
    assert (AttentionRule(EVERYWHERE, AFTER_SAME),) in rules_tried(after, TOKENS)


def test_a_head_that_broadcasts_is_said_to_do_it_at_every_position():
    """Of all positions from the marker on, which stands once; what the queries stand at is no such place."""
    told, last = (AttentionRule(EVERYWHERE, "marker"),), AttentionRule(EVERYWHERE, "ahead")
    pattern = map_of(Explanation("uniform", told), causal=True)
    assert told in rules_tried(pattern)
    assert rule_attention(pattern, told[0], ROLES) == 1  # positions before the marker cannot see it
    assert told not in rules_tried(0.15 * pattern + 0.85 * torch.eye(LENGTH))
    ahead = map_of(Explanation("uniform", told), causal=False)
    assert told in rules_tried(ahead) and rule_attention(ahead, told[0], ROLES) == 1
    ahead[:, 0, 3], ahead[:, 0, 0] = 0.5, 0.5  # one of six that can see it looks half as much
    assert rule_attention(ahead, told[0], ROLES) == pytest.approx(5.5 / 6)
    # the last position sees itself alone, so that behind a mask nobody else looks there
    assert not [rules for rules in rules_tried(torch.eye(LENGTH).expand(2, -1, -1)) if last in rules]
    shared = rules_tried(map_of(Explanation("uniform", (*told, last)), causal=False))
    assert shared.index((*told, last)) > max(shared.index(told), shared.index((last,)))


def test_hypotheses_by_role_take_strong_attention_first():
    """Queries give 0.7 of their attention to the first's and 0.3 to the second's place."""
    roles = {"first": torch.tensor([[0], [1]]), "second": torch.tensor([[2], [3]]), "end": torch.tensor([[7], [7]])}
    pattern = torch.zeros(2, 8, 8)
    pattern[0, 7, 0] = pattern[1, 7, 1] = 0.7
    pattern[0, 7, 2] = pattern[1, 7, 3] = 0.3
    strong, weak = rules_tried(pattern, roles=roles)[1:]
    assert strong == (AttentionRule("end", "first"),)
    assert weak == (AttentionRule("end", "first"), AttentionRule("end", "second"))


def test_of_roles_that_stand_alike_the_first_is_named():
    places = {"asked": torch.tensor([[3]]), "twin": torch.tensor([[3]]), "key": torch.tensor([[1]])}
    pattern = torch.eye(4).unsqueeze(0)
    pattern[0, 3] = torch.tensor([0.0, 1.0, 0.0, 0.0])
    told = {rule for one in hypotheses(pattern, places) for rule in one.rules}
    assert AttentionRule("asked", "key") in told
    assert not any("twin" in (rule.query, rule.key) for rule in told)
