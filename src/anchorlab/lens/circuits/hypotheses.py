"""Hypotheses about what a head does, derived from its attention pattern, the simplest first."""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.lens.circuits.explanation import (
    AFTER_SAME,
    EVERYWHERE,
    RESTS,
    SAME,
    AttentionRule,
    Explanation,
    Roles,
    rule_cells,
    rule_places,
)
from anchorlab.lens.heads import detectors

FOLLOWED = 0.2
"""The smallest mean attention along a rule for which the head counts as following it."""

_LEVELS = (0.8, 0.5, FOLLOWED)  # thresholds of the mean attention from a role to a key, the strictest first
_SHIFTED = 0.3  # threshold of the mean attention of a head that shifts
_NEAR = 3  # the largest distance from a query back to a key without a role


def hypotheses(
    pattern: Float[Tensor, "batch query key"],
    roles: Roles,
    tokens: Int[Tensor, "batch position"] | None = None,
) -> list[Explanation]:
    """Return the explanations to try for a head, the simplest first (stacked attention heads, appendix E).

    1. No rule, only a `rest` for all queries: uniform, itself, nothing.
    2. One rule for every position: the best shift, earlier copies of the token, or the positions after these.
    3. Broadcasts: every position attends to a role with one instance, or to several such roles.
    4. Rules by role: every key with a mean attention of at least 0.8 from the role; then of at least 0.5; then 0.2.

    Each set of rules is combined with each `rest`. If several roles always have the same positions, only the first is
    used.
    """
    roles = _apart(roles)
    simple = [(), *_everywhere(pattern, tokens), *_broadcast(pattern, roles)]
    named = dict.fromkeys([*simple, *_by_role(pattern, roles)])
    return [Explanation(rest, rules) for rules in named for rest in RESTS]


def _everywhere(pattern: Tensor, tokens: Tensor | None) -> Iterator[tuple[AttentionRule, ...]]:
    heads = pattern.unsqueeze(1)
    shifts = {k: float(detectors.shift(heads, k)) for k in range(1, pattern.shape[-1] // 2 + 1)}
    best = max(shifts, key=shifts.__getitem__, default=0)
    if best and shifts[best] >= _SHIFTED:
        yield (AttentionRule(EVERYWHERE, best),)
    if tokens is not None and bool((tokens.sort(dim=1).values.diff(dim=1) == 0).any()):  # a token occurs twice
        for key, detector in ((SAME, detectors.matching), (AFTER_SAME, detectors.induction)):
            if float(detector(heads, tokens)) >= _SHIFTED:
                yield (AttentionRule(EVERYWHERE, key),)


def _broadcast(pattern: Tensor, roles: Roles) -> Iterator[tuple[AttentionRule, ...]]:
    """Yield a rule for each role that other positions attend to, one at a time, and then all rules together."""
    rules = [AttentionRule(EVERYWHERE, name) for name in roles if roles[name].shape[1] == 1]
    found = [rule for rule in rules if _from_others(pattern, rule, roles) >= FOLLOWED]
    yield from ((rule,) for rule in found)
    if len(found) > 1:
        yield tuple(found)


def _from_others(pattern: Tensor, rule: AttentionRule, roles: Roles) -> float:
    """Return the mean attention along a rule from queries other than the key; 0 unless they outnumber the sequences."""
    causal = not bool(pattern.triu(1).any())
    cells = rule_cells(rule, roles, pattern.shape[-1], causal=causal) & ~torch.eye(pattern.shape[-1], dtype=torch.bool)
    return float(pattern[cells].mean()) if int(cells.sum()) > len(pattern) else 0.0


def _by_role(pattern: Tensor, roles: Roles) -> Iterator[tuple[AttentionRule, ...]]:
    """Yield the rules by role whose mean attention reaches a level, for each level in turn."""
    rules = [rule for query in roles for rule in _rules(query, roles, pattern.shape[-1])]
    found = [(rule, rule_attention(pattern, rule, roles)) for rule in rules]
    for level in _LEVELS:
        yield tuple(rule for rule, score in found if score >= level)


def _apart(roles: Roles) -> Roles:
    """Return the roles without duplicates: a role with the same positions as an earlier role is left out."""
    names = list(roles)
    alike = {name for at, name in enumerate(names) if any(torch.equal(roles[name], roles[one]) for one in names[:at])}
    return {name: places for name, places in roles.items() if name not in alike}


def _rules(query: str, roles: Roles, length: int) -> list[AttentionRule]:
    """Return a rule for each possible key of a role: roles with one or equally many instances, or near positions."""
    named = [key for key in roles if key != query and roles[key].shape[1] in (1, roles[query].shape[1])]
    places = [roles[key].expand_as(roles[query]) for key in named]
    near = [
        distance
        for distance in range(min(_NEAR + 1, length))
        if not any(torch.equal((roles[query] - distance).clamp(min=-1), place) for place in places)
    ]
    return [AttentionRule(query, key) for key in named] + [AttentionRule(query, distance) for distance in near]


def rule_attention(
    pattern: Float[Tensor, "batch query key"],
    rule: AttentionRule,
    roles: Roles,
    tokens: Int[Tensor, "batch position"] | None = None,
) -> float:
    """Return the mean attention along a rule, over the queries with a visible key; 0 without such queries.

    Keys ahead of their queries count as visible if the head attends to any of them.
    """
    if rule.key in (SAME, AFTER_SAME):
        cells = rule_cells(rule, roles, pattern.shape[-1], tokens)
        return float((pattern * cells).sum() / cells.any(dim=-1).sum().clamp(min=1))
    queries, keys = rule_places(rule, roles, pattern.shape[-1])
    row, instance = torch.nonzero(queries >= 0, as_tuple=True)
    query, key = queries[row, instance], keys[row, instance]
    along = pattern[row, query, key]
    seen = along if bool(along[key > query].any()) else along[key <= query]
    return float(seen.mean()) if len(seen) else 0.0


def resolved(
    rule: AttentionRule, roles: Roles, length: int, tokens: Int[Tensor, "batch position"] | None = None
) -> tuple[AttentionRule, ...]:
    """Return the rules by role that a rule for every position implies; queries without a role are left out.

    The key of a rule is given as a role if that role always has the key's position.
    """
    found = []
    for query in roles:
        own = rule_cells(AttentionRule(query, rule.key), roles, length, tokens)
        if bool(own.any()):
            same = (one for one in _rules(query, roles, length) if torch.equal(rule_cells(one, roles, length), own))
            found.append(next(same, AttentionRule(query, rule.key)))
    return tuple(found)
