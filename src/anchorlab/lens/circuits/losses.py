"""The losses of a model whose attention is replaced by explanations; each pass resumes at the first changed block."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.lens.circuits.circuit import Head
from anchorlab.lens.circuits.explanation import AttentionRule, Explanation, Roles, attention_map, rest_map, rule_cells
from anchorlab.lens.heads.chance import check_shares
from anchorlab.lens.look import Intervention, InterventionRule, Operand, Subject, look, sequences_at_a_time
from anchorlab.lens.look.access import Access, evaluating
from anchorlab.lens.look.inputs import fitting
from anchorlab.lens.look.intervene import Moment, intervene
from anchorlab.lens.look.replay import replay
from anchorlab.models.transformer import Transformer
from anchorlab.tasks.batch import Batch
from anchorlab.tasks.task import Task
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.executions.member import member_module

Assignment = Mapping[Head, Explanation | None]
"""The explanation that replaces each head's attention; heads with None, and heads left out, keep their own."""

_HIDDEN = -1e9
"""Added to the score of a hidden key; finite, so that the softmax is defined even if all keys of a query are hidden."""

_KEPT = 64  # streams in memory; a pass reuses one and adds at most one per block


def attention_site(layer: int | str, name: str = "hook_pattern") -> str:
    """Return the name of a site in a layer's attention, by default of the attention pattern."""
    return f"blocks.{layer}.attn.{name}"


class ResumedPasses:
    """Passes of a transformer with one member over one batch, under changes of its blocks' attention.

    A search changes one head at a time, so successive passes often agree in their lower blocks. Therefore the streams
    that enter the blocks are kept. A pass resumes at the highest block below which an earlier pass made the same
    changes. The outputs equal a full pass's.
    """

    def __init__(self, ensemble: Ensemble, batch: Batch) -> None:
        self.access, weights = Access(member_module(ensemble, 0)), ensemble.member_weights(0)
        self.inputs = fitting(batch.inputs, weights)
        self.positions = batch.positions.to(self.inputs.device)
        self.moment = Moment(0, 1, range(len(batch)), len(batch))
        self._streams: dict[tuple[Hashable, ...], Tensor] = {}

    def __call__(
        self, names: Sequence[Hashable], changes: Callable[[int], Sequence[Intervention]]
    ) -> Float[Tensor, "batch scored output"]:
        """Return the outputs at the scored positions.

        `names` has a key for each block that identifies its changes; `changes` returns the changes of a block's
        attention, and is called only for blocks that run.
        """
        # streams are stored by the changes of all blocks below them; begin at the highest block with a stored stream
        known = [block for block in range(1, len(names)) if tuple(names[:block]) in self._streams]
        begin = max(known, default=0)
        entering = None
        if begin:
            # take the stream out and store it again: this makes it the most recently used
            entering = begin, self._streams.pop(tuple(names[:begin]))
            self._keep(tuple(names[:begin]), entering[1])
        new = range(begin, len(names))
        changed = defaultdict[str, list[Intervention]](list)
        for one in (each for block in new for each in changes(block)):
            changed[one.site].append(one)
        tried = {site: partial(self._changed, each) for site, each in changed.items()}
        given = self.access.module, self.inputs, self.positions, tried
        with evaluating(self.access.module):
            output, streams = replay(*given, entering=entering, keep=new[1:], narrow=False)
        for block, stream in streams.items():
            self._keep(tuple(names[:block]), stream)
        return output

    def _changed(self, changes: Sequence[Intervention], value: Tensor) -> Tensor:
        for one in changes:
            value = intervene(one, value, self.access.axes(one.site, value), self.moment)
        return value

    def _keep(self, prefix: tuple[Hashable, ...], stream: Tensor) -> None:
        """Store a stream as the most recent, and drop the least recently used stream if there are too many."""
        self._streams[prefix] = stream
        if len(self._streams) > _KEPT:
            del self._streams[next(iter(self._streams))]


@dataclass(frozen=True)
class AttentionLosses:
    """The attention patterns of one member on one batch, and its losses under replaced attention.

    `ensemble` has a single member. Losses are the task's own, averaged over scored positions. Each is computed only
    once.
    """

    ensemble: Ensemble
    task: Task
    batch: Batch
    _known: dict[tuple[frozenset[tuple[Head, Explanation | None]], bool], float] = field(
        default_factory=dict, init=False
    )

    @cached_property
    def roles(self) -> Roles:
        """Positions by role, `[batch instance]`."""
        return self.task.roles(self.batch)

    @cached_property
    def tokens(self) -> Int[Tensor, "batch position"] | None:
        """The inputs if they are tokens, otherwise None."""
        return self.batch.inputs if self.batch.inputs.ndim == 2 else None

    @cached_property
    def _resumed(self) -> ResumedPasses | None:
        """None for a model that cannot begin at a block, and for a batch too large for one pass."""
        if not isinstance(self.ensemble.template, Transformer):
            return None
        passes, kept = ResumedPasses(self.ensemble, self.batch), ["blocks.0.hook_resid_pre"]
        most = sequences_at_a_time(Subject(self.ensemble, passes.access, self.batch.inputs), kept=kept, copies=_KEPT)
        return passes if most >= len(self.batch) else None

    @property
    def length(self) -> int:
        """The number of positions of a sequence."""
        return int(self.batch.inputs.shape[1])

    @cached_property
    def patterns(self) -> dict[Head, Float[Tensor, "batch query key"]]:
        """The model's own attention, by head."""
        seen = look(self.ensemble, self.batch.inputs, record=[attention_site("*")])
        sites = [site for site in seen if site.endswith("hook_pattern")]
        for site in sites:
            check_shares(seen[site])
        return {
            (int(site.split(".")[1]), head): seen[site][0, :, head]
            for site in sites
            for head in range(seen[site].shape[2])
        }

    @cached_property
    def causal(self) -> bool:
        """Whether no query ever attends to a later position."""
        return not any(bool(pattern.triu(1).any()) for pattern in self.patterns.values())

    def outputs(self, assignment: Assignment, live: bool = False) -> Float[Tensor, "batch scored output"]:
        """Return the member's outputs with the attention of every explained head replaced by its map.

        With `live`, only the attention of queries without a rule is replaced. Queries with a rule keep the attention
        that the model computes from the resulting stream, except along cut rules. So the outputs also depend on heads
        that only determine where later heads attend.
        """
        explained = {head: one for head, one in assignment.items() if one is not None}
        if self._resumed is None:
            return self._answers([each for head, one in explained.items() for each in self._changes(head, one, live)])
        blocks: list[list[tuple[Head, Explanation]]] = [[] for _ in range(1 + max(self.patterns)[0])]
        for head, one in explained.items():
            blocks[head[0]].append((head, one))
        names = [frozenset((head, one, live and bool(one.rules)) for head, one in block) for block in blocks]
        return self._resumed(names, lambda at: [each for one in blocks[at] for each in self._changes(*one, live)])

    def _changes(self, head: Head, one: Explanation, live: bool) -> list[Intervention]:
        if not (live and one.rules):
            replacement = attention_map(one, self.roles, self.length, self.causal, self.tokens)
            return [_change(head, "replace", replacement)]
        # live: queries with a rule keep the pattern that the model computes (times 1, plus 0), and all other queries
        # get the rest (times 0, plus the rest)
        queries, rest = self._queries(one.rules), rest_map(one.rest, self.length, self.causal)
        changes = [_change(head, "scale", queries.expand(-1, -1, self.length))]
        changes += [_change(head, "add", (1 - queries) * rest)]
        if one.cut:
            # hide the keys of cut rules before the softmax, so that the query's other keys share the attention
            cut = self._cells(one.cut) & ~self._cells(one.rules)
            changes += [_change(head, "add", _HIDDEN * cut, "hook_attn_scores")]
        return changes

    def loss(self, assignment: Assignment, live: bool = False) -> float:
        """Return the mean loss of `outputs` over scored positions."""
        key = frozenset(assignment.items()), live
        if key not in self._known:
            self._known[key] = self._loss(self.outputs(assignment, live))
        return self._known[key]

    def worst_loss(self, assignment: Assignment, enough: float) -> float:
        """Return the larger of loss and live loss; if the loss is above `enough`, return it without the live loss."""
        loss = self.loss(assignment)
        ruled = any(one is not None and one.rules for one in assignment.values())
        return max(loss, self.loss(assignment, live=True)) if ruled and loss <= enough else loss

    def loss_without(self, rules: Mapping[Head, Sequence[AttentionRule]]) -> float:
        """Return the mean loss if the queries of the rules attend uniformly and all other attention is unchanged."""
        changes = []
        for head, chosen in rules.items():
            queries = self._queries(chosen)
            uniform = queries * rest_map("uniform", self.length, self.causal)
            changes += [_change(head, "scale", (1 - queries).expand_as(uniform)), _change(head, "add", uniform)]
        return self._loss(self._answers(changes))

    def _queries(self, rules: Sequence[AttentionRule]) -> Float[Tensor, "batch query one"]:
        """Return 1 for each query with a visible key under any of the rules, else 0."""
        return self._cells(rules).any(dim=-1, keepdim=True).float()

    def _cells(self, rules: Sequence[AttentionRule]) -> Bool[Tensor, "batch query key"]:
        """Return a mask of the visible keys that any of the rules gives to each query."""
        cells = [rule_cells(rule, self.roles, self.length, self.tokens, self.causal) for rule in rules]
        return torch.stack(cells).any(dim=0)

    def _answers(self, changes: Sequence[Intervention]) -> Float[Tensor, "batch scored output"]:
        seen = look(self.ensemble, self.batch.inputs, interventions=changes, positions=self.batch.positions)
        return seen["output"][0]

    def _loss(self, outputs: Float[Tensor, "batch scored output"]) -> float:
        losses = self.task.losses(outputs, self.batch.targets)
        weights = torch.ones_like(losses) if self.batch.weights is None else self.batch.weights
        return float((losses * weights).sum() / weights.sum())


def _change(
    head: Head, rule: InterventionRule, pattern: Float[Tensor, "batch query key"], name: str = "hook_pattern"
) -> Intervention:
    site, operand = attention_site(head[0], name), Operand(values=pattern, axes=("batch", "query", "key"))
    return Intervention(site=site, where={"head": head[1]}, rule=rule, operand=operand, may_do_nothing=True)
