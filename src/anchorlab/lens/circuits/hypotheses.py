"""Hypotheses about a head, the simplest first, drawn from where it looks."""

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
"""The least mean attention along a rule that a head can be said to follow."""

_LEVELS = (0.8, 0.5, FOLLOWED)  # the least mean attention by which a role looks at a key, first strictly, then less so
_SHIFTED = 0.3  # the least mean attention of a head that shifts
_NEAR = 3  # how far before a query a key without a role may stand


def hypotheses(
    pattern: Float[Tensor, "batch query key"],
    roles: Roles,
    tokens: Int[Tensor, "batch position"] | None = None,
) -> list[Explanation]:
    """What a head may be doing, the simplest first (stacked attention heads, appendix E).

    First a rest alone: uniform, itself, nothing; then one rule for every position: a shift by what the shift detector
    finds, the same token before, or what followed it; a broadcast, every position looking at a role that stands
    once, or at several; at last a rule for each role, for the keys at which the head looks from it, first those with at
    least 0.8 of its attention, then those with half, then those with a fifth. Each with each rest. Of roles that always
    stand alike the first is named.
    """
    roles = _apart(roles)
    simple = [(), *_everywhere(pattern, tokens), *_broadcast(pattern, roles)]
    named = dict.fromkeys([*simple, *_by_role(pattern, roles)])
    return [Explanation(rest, rules) for rules in named for rest in RESTS]


def _everywhere(pattern: Tensor, tokens: Tensor | None) -> Iterator[tuple[AttentionRule, ...]]:
    """One rule for every position."""
    heads = pattern.unsqueeze(1)
    shifts = {k: float(detectors.shift(heads, k)) for k in range(1, pattern.shape[-1] // 2 + 1)}
    best = max(shifts, key=shifts.__getitem__, default=0)
    if best and shifts[best] >= _SHIFTED:
        yield (AttentionRule(EVERYWHERE, best),)
    if tokens is not None and _repeats(tokens):
        for key, detector in ((SAME, detectors.matching), (AFTER_SAME, detectors.induction)):
            if float(detector(heads, tokens)) >= _SHIFTED:
                yield (AttentionRule(EVERYWHERE, key),)


def _broadcast(pattern: Tensor, roles: Roles) -> Iterator[tuple[AttentionRule, ...]]:
    """The roles at which others look, one by one and then together."""
    rules = [AttentionRule(EVERYWHERE, name) for name in roles if roles[name].shape[1] == 1]
    found = [rule for rule in rules if _from_others(pattern, rule, roles) >= FOLLOWED]
    yield from ((rule,) for rule in found)
    if len(found) > 1:
        yield tuple(found)


def _from_others(pattern: Tensor, rule: AttentionRule, roles: Roles) -> float:
    """The mean attention along a rule of all queries but the key itself; 0 if there is but one in a sequence."""
    causal = not bool(pattern.triu(1).any())
    cells = rule_cells(rule, roles, pattern.shape[-1], causal=causal) & ~torch.eye(pattern.shape[-1], dtype=torch.bool)
    return float(pattern[cells].mean()) if int(cells.sum()) > len(pattern) else 0.0


def _repeats(tokens: Tensor) -> bool:
    """Whether any token stands twice in any sequence."""
    return bool((tokens.sort(dim=1).values.diff(dim=1) == 0).any())


def _by_role(pattern: Tensor, roles: Roles) -> Iterator[tuple[AttentionRule, ...]]:
    """Where each role looks, with at least each level's attention."""
    rules = [rule for query in roles for rule in _rules(query, roles, pattern.shape[-1])]
    found = [(rule, rule_attention(pattern, rule, roles)) for rule in rules]
    for level in _LEVELS:
        yield tuple(rule for rule, score in found if score >= level)


def _apart(roles: Roles) -> Roles:
    """The roles without those that stand where an earlier one does."""
    names = list(roles)
    alike = {name for at, name in enumerate(names) if any(torch.equal(roles[name], roles[one]) for one in names[:at])}
    return {name: places for name, places in roles.items() if name not in alike}


def _rules(query: str, roles: Roles, length: int) -> list[AttentionRule]:
    """Every key at which a role may look: roles that belong to it, and places before that are no such role's."""
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
    """The mean attention along a rule, over the queries that have a key they can see; 0 where none has.

    A head that never looks ahead along a rule is taken for one that cannot.
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
    """A rule for every position as one for each role; its key is a role wherever that always stands there.

    What looks from a position that is no role is left out.
    """
    found = []
    for query in roles:
        own = rule_cells(AttentionRule(query, rule.key), roles, length, tokens)
        if bool(own.any()):
            same = (one for one in _rules(query, roles, length) if torch.equal(rule_cells(one, roles, length), own))
            found.append(next(same, AttentionRule(query, rule.key)))
    return tuple(found)
