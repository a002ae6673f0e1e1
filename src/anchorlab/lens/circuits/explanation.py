"""Explanations of heads: rules from queries to keys, and the attention maps that follow from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.heads.chance import uniform_attention
from anchorlab.spec import check_known

Rest = Literal["uniform", "itself", "nothing"]
"""The attention of queries without a rule: uniform, to themselves, or none (all weights 0)."""

RESTS: tuple[Rest, ...] = ("uniform", "itself", "nothing")
"""All rests, the simplest first. The paper (stacked attention heads, appendix E) replaces useless heads by the first
two; in useful heads, queries without a rule attend to nothing."""

EVERYWHERE = "every position"
SAME, AFTER_SAME = "same token", "after same token"
RESERVED = (EVERYWHERE, SAME, AFTER_SAME)
"""Names with a special meaning for queries and keys; a task must not give these names to roles."""

Roles = Mapping[str, Int[Tensor, "batch _"]]
"""Positions by role, `[batch instance]`, from `Task.roles`; roles may differ in their number of instances."""


@dataclass(frozen=True)
class AttentionRule:
    """A rule for attention: the queries of one role attend to one key.

    `query` is a role, or `every position`. `key` is a role, a number of positions before the query (0: itself),
    `same token` (all earlier copies of the query's token) or `after same token` (the positions after these).
    """

    query: str
    key: str | int

    def __str__(self) -> str:
        return f"{self.query} → {self.key_text}"

    @property
    def key_text(self) -> str:
        """The key in words."""
        if isinstance(self.key, str):
            return self.key
        return "itself" if self.key == 0 else f"{self.key} before"


@dataclass(frozen=True)
class Explanation:
    """An explanation of a head's attention: rules for some queries, and `rest` for all others.

    Several rules for one query share its attention. Rules in `cut` are removed paths: queries do not attend
    along them even if the model computes their attention, unless a rule in `rules` gives the query the same key.
    Queries whose rules are all cut follow `rest`.
    """

    rest: Rest
    rules: tuple[AttentionRule, ...] = ()
    cut: tuple[AttentionRule, ...] = ()

    def __str__(self) -> str:
        return "; ".join([*map(str, self.rules), f"else {self.rest}" if self.rules else self.rest])

    def without(self, rule: AttentionRule) -> "Explanation":
        """Return the explanation with one of its rules cut; the rule's queries follow their other rules, or `rest`."""
        if rule not in self.rules:
            return self
        return Explanation(self.rest, tuple(one for one in self.rules if one != rule), (*self.cut, rule))


def rule_places(
    rule: AttentionRule, roles: Roles, length: int, causal: bool = False
) -> tuple[Int[Tensor, "batch instance"], Int[Tensor, "batch instance"]]:
    """Return the positions of a rule's queries, and of the key of each query.

    Both positions are -1 if query or key is missing or, with `causal`, if the key is ahead of the query.
    """
    if rule.key in (SAME, AFTER_SAME):
        raise SpecError("rule.key", f"{rule.key!r} may give several keys", "name a role or a distance")
    batch = len(next(iter(roles.values())))
    queries = torch.arange(length).expand(batch, -1) if rule.query == EVERYWHERE else _role(rule.query, roles, "query")
    if isinstance(rule.key, int):
        if not 0 <= rule.key < length:
            problem = f"{rule.key} before is not within {length} positions"
            raise SpecError("rule.key", problem, f"give one of 0..{length - 1}")
        keys = (queries - rule.key).clamp(min=-1)
    else:
        keys = _role(rule.key, roles, "key")
        if keys.shape[1] not in (1, queries.shape[1]):
            problem = f"{rule.key!r} has {keys.shape[1]} instances, {rule.query!r} {queries.shape[1]}"
            raise SpecError("rule.key", problem, "choose roles with as many instances")
        keys = keys.expand_as(queries)
    there = (queries >= 0) & (keys >= 0) & ((keys <= queries) | (not causal))
    return queries.where(there, -1), keys.where(there, -1)


def rule_cells(
    rule: AttentionRule,
    roles: Roles,
    length: int,
    tokens: Int[Tensor, "batch position"] | None = None,
    causal: bool = False,
) -> Bool[Tensor, "batch query key"]:
    """Return a mask of the keys that a rule gives to each query; with `causal`, no key is ahead of its query.

    Only rules about the same token need `tokens`.
    """
    if rule.key in (SAME, AFTER_SAME):
        cells = _same_token(tokens, after=rule.key == AFTER_SAME)
        if rule.query == EVERYWHERE:
            return cells
        places = _role(rule.query, roles, "query").unsqueeze(-1)
        return cells & (places == torch.arange(length)).any(dim=1).unsqueeze(-1)
    queries, keys = rule_places(rule, roles, length, causal)
    row, instance = torch.nonzero(queries >= 0, as_tuple=True)
    cells = torch.zeros(len(queries), length, length, dtype=torch.bool)
    cells[row, queries[row, instance], keys[row, instance]] = True
    return cells


def attention_map(
    explanation: Explanation,
    roles: Roles,
    length: int,
    causal: bool = True,
    tokens: Int[Tensor, "batch position"] | None = None,
) -> Float[Tensor, "batch query key"]:
    """Return the attention map of an explanation: 1 at the key of a query with a rule, and `rest` for other queries.

    If a query has several rules or keys, they share its attention.

    Args:
        causal: whether uniform attention, and the rules, leave out keys ahead of the query.
        tokens: needed for rules about the same token.
    """
    batch = len(next(iter(roles.values())))
    cells = torch.zeros(batch, length, length)
    for rule in explanation.rules:
        # count the rules that give each key to each query; dividing by the total shares the attention among them
        cells += rule_cells(rule, roles, length, tokens, causal)
    total = cells.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, cells / total.clamp(min=1), rest_map(explanation.rest, length, causal))


def rest_map(rest: Rest, length: int, causal: bool = True) -> Float[Tensor, "query key"]:
    """Return the attention map of `rest`, the same for all sequences."""
    if rest == "uniform":
        return uniform_attention(length, causal)
    return torch.eye(length) if rest == "itself" else torch.zeros(length, length)


def _role(name: str, roles: Roles, field: str) -> Int[Tensor, "batch instance"]:
    check_known(f"rule.{field}", name, roles, "role")
    return roles[name]


def _same_token(tokens: Tensor | None, after: bool) -> Bool[Tensor, "batch query key"]:
    if tokens is None:
        raise SpecError("tokens", "are missing for a rule about the same token", "give [batch position]")
    same = (tokens.unsqueeze(2) == tokens.unsqueeze(1)).tril(-1)
    return same.roll(1, dims=2).tril() if after else same
