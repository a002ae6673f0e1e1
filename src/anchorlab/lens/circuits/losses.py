"""What a model loses when explanations stand in for its attention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.lens.circuits.circuit import Head
from anchorlab.lens.circuits.explanation import AttentionRule, Explanation, Roles, attention_map, rest_map, rule_cells
from anchorlab.lens.look.interventions import Intervention, Operand
from anchorlab.lens.look.look import look
from anchorlab.tasks.task import Batch, Task, loss_per_position
from anchorlab.training.ensemble import Ensemble

Assignment = Mapping[Head, Explanation | None]
"""What stands in for each head's attention; heads with None, and those left out, attend as they do."""


_HIDDEN = -1e9
"""What is added to the score of a key that must not be attended to; finite, lest a query without any key has none."""


def attention_site(layer: int | str, name: str = "hook_pattern") -> str:
    """A site of a layer's attention: of its patterns if nothing else is named."""
    return f"blocks.{layer}.attn.{name}"


@dataclass(frozen=True)
class AttentionLosses:
    """One member on one batch: its attention patterns, and its losses under replacements."""

    ensemble: Ensemble
    task: Task
    batch: Batch

    @cached_property
    def roles(self) -> Roles:
        """Positions by role, `[batch instance]`."""
        return self.task.roles(self.batch)

    @cached_property
    def tokens(self) -> Tensor | None:
        """The inputs where they are tokens."""
        return self.batch.inputs if self.batch.inputs.ndim == 2 else None

    @cached_property
    def _known(self) -> dict[tuple[frozenset[tuple[Head, Explanation | None]], bool], float]:
        """The losses so far: a search comes back to many assignments."""
        return {}

    @property
    def length(self) -> int:
        """Positions of a sequence."""
        return int(self.batch.inputs.shape[1])

    @cached_property
    def patterns(self) -> dict[Head, Float[Tensor, "batch query key"]]:
        """The model's own attention, by head."""
        seen = look(self.ensemble, self.batch.inputs, record=[attention_site("*")])
        return {
            (int(site.split(".")[1]), head): seen[site][0, :, head]
            for site in seen
            if site.endswith("hook_pattern")
            for head in range(seen[site].shape[2])
        }

    @cached_property
    def causal(self) -> bool:
        """Whether no head ever looks ahead."""
        return not any(bool(pattern.triu(1).any()) for pattern in self.patterns.values())

    def outputs(self, assignment: Assignment, live: bool = False) -> Float[Tensor, "batch scored output"]:
        """What the member answers with every explained head replaced.

        Where `live`, only the rest is: queries that some rule speaks of attend as the model makes them, but for what
        is cut, from a stream in which all else is replaced. So what later attention needs of earlier heads counts as
        well.
        """
        changes = []
        for head, one in assignment.items():
            if one is not None and live and one.rules:
                asked = self._asked(one.rules)
                rest = rest_map(one.rest, self.length, self.causal)
                changes += [_change(head, "scale", asked.expand(-1, -1, self.length))]
                changes += [_change(head, "add", (1 - asked) * rest)]
                if one.cut:
                    cut = self._cells(one.cut) & ~self._cells(one.rules)
                    changes += [_change(head, "add", _HIDDEN * cut, "hook_attn_scores")]
            elif one is not None:
                there = attention_map(one, self.roles, self.length, self.causal, self.tokens)
                changes += [_change(head, "replace", there)]
        return self._answers(changes)

    def loss(self, assignment: Assignment, live: bool = False) -> float:
        """The mean loss over scored positions of these outputs, computed once."""
        asked = frozenset(assignment.items()), live
        if asked not in self._known:
            self._known[asked] = self._loss(self.outputs(assignment, live))
        return self._known[asked]

    def worst_loss(self, assignment: Assignment, enough: float) -> float:
        """The larger of both losses; where the first is above `enough`, that one."""
        loss = self.loss(assignment)
        ruled = any(one is not None and one.rules for one in assignment.values())
        return max(loss, self.loss(assignment, live=True)) if ruled and loss <= enough else loss

    def loss_without(self, rules: Mapping[Head, Sequence[AttentionRule]]) -> float:
        """The mean loss of the model when the queries of some rules attend uniformly; all else attends as ever."""
        changes = []
        for head, chosen in rules.items():
            asked = self._asked(chosen)
            uniform = asked * rest_map("uniform", self.length, self.causal)
            changes += [_change(head, "scale", (1 - asked).expand_as(uniform)), _change(head, "add", uniform)]
        return self._loss(self._answers(changes))

    def _asked(self, rules: Sequence[AttentionRule]) -> Float[Tensor, "batch query one"]:
        """1 for each query that some rule sends anywhere it can look."""
        return self._cells(rules).any(dim=-1, keepdim=True).float()

    def _cells(self, rules: Sequence[AttentionRule]) -> Bool[Tensor, "batch query key"]:
        """What these rules send to what it can look at."""
        cells = [rule_cells(rule, self.roles, self.length, self.tokens, self.causal) for rule in rules]
        return torch.stack(cells).any(dim=0)

    def _answers(self, changes: Sequence[Intervention]) -> Float[Tensor, "batch scored output"]:
        seen = look(self.ensemble, self.batch.inputs, interventions=changes, positions=self.batch.positions)
        return seen["output"][0]

    def _loss(self, outputs: Float[Tensor, "batch scored output"]) -> float:
        losses = loss_per_position(self.task.loss, outputs, self.batch.targets)
        weights = torch.ones_like(losses) if self.batch.weights is None else self.batch.weights
        return float((losses * weights).sum() / weights.sum())


def _change(
    head: Head, rule: str, pattern: Float[Tensor, "batch query key"], name: str = "hook_pattern"
) -> Intervention:
    operand = Operand(values=pattern, axes=("batch", "query", "key"))
    return Intervention.parse(
        {
            "site": attention_site(head[0], name),
            "where": {"head": head[1]},
            "rule": rule,
            "operand": operand,
            "may_do_nothing": True,
        }
    )
