"""Hypotheses about a head, from where it looks: against patterns written by hand."""

import pytest
import torch
from torch import Tensor

from anchorlab.lens.circuits import AFTER_SAME, EVERYWHERE, RESTS, SAME, AttentionRule, Explanation, hypotheses
from anchorlab.lens.circuits.explanation import Roles, rest_map
from anchorlab.lens.circuits.hypotheses import resolved, rule_attention
from tests.lens.circuits.test_explanation import LENGTH, ROLES, TOKENS, map_of


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
        "anchor": torch.tensor([[1], [2]]),
        "key": torch.tensor([[2], [3]]),
        "start": torch.tensor([[0], [0]]),
        "end": torch.tensor([[5], [5]]),
    }
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
    assert len(found) == len(set(found)) and [one.rest for one in found] == [*RESTS] * (len(found) // 3)
    return [one.rules for one in found[::3]]


def test_hypotheses_come_from_where_the_head_looks():
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


def test_a_single_position_has_its_rests_alone():
    assert hypotheses(torch.ones(4, 1, 1), {"asked": torch.zeros(4, 1, dtype=torch.int64)})[:3] == [
        Explanation("uniform"),
        Explanation("itself"),
        Explanation("nothing"),
    ]


def test_of_roles_that_stand_alike_the_first_is_named():
    places = {"asked": torch.tensor([[3]]), "twin": torch.tensor([[3]]), "key": torch.tensor([[1]])}
    pattern = torch.eye(4).unsqueeze(0)
    pattern[0, 3] = torch.tensor([0.0, 1.0, 0.0, 0.0])
    told = {rule for one in hypotheses(pattern, places) for rule in one.rules}
    assert AttentionRule("asked", "key") in told
    assert not any("twin" in (rule.query, rule.key) for rule in told)
