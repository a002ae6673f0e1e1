"""Finding the circuit that a model uses: the procedure of the paper's appendix E, without the looking by eye."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, isfinite

from torch import nn

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens.circuits.circuit import Circuit, CircuitPath, Head
from anchorlab.lens.circuits.explanation import EVERYWHERE, RESERVED, RESTS, AttentionRule, Explanation, Roles
from anchorlab.lens.circuits.hypotheses import FOLLOWED, hypotheses, resolved, rule_attention
from anchorlab.lens.circuits.losses import AttentionLosses, attention_site
from anchorlab.lens.look.look import as_ensemble
from anchorlab.rng import child_seed
from anchorlab.tasks.task import Task
from anchorlab.training.ensemble import Ensemble

_ALIKE = 0.02
"""Two rests cost alike if they differ by no more than this share of what may be lost."""

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many parts of it are done, and how many there are."""

LEEWAY = 0.04
"""How far above the model's own loss a circuit's may be where no threshold is given, as a share of what attention does
for the model: of the way from its loss to the lowest with a rest alone in every head."""


def find_circuit(
    model: Ensemble | nn.Module,
    task: Task,
    *,
    member: int = 0,
    threshold: float | None = None,
    split: str | None = None,
    sequences: int = 256,
    seed: int = 0,
    progress: Progress = lambda what, done, of: None,
) -> Circuit:
    """The attention paths that suffice for a task, all other attention replaced (stacked attention heads, appendix E).

    Every head of one member gets `hypotheses`, the simplest first. Each is tried alone, its map in place of the head's
    attention, until one keeps the loss below the threshold. Then all heads are taken together, those that cost least
    alone first; each takes the simplest hypothesis with which the loss of all that are explained so far stays within
    an allowance that grows from head to head to half of the way to the threshold, or to all of it where nothing else
    explains a head. Rules for every position are told by roles where that suffices, and paths are cut, the cheapest
    first, as long as the loss stays below the threshold; every head gets the rest that costs least. What is reported is
    measured on fresh sequences.

    Where attention is replaced, the earlier heads that make it look there have nothing left to do. So every loss is
    taken twice, and the larger counts: with the maps in place, and with the queries of rules attending as the model
    makes them, all else replaced. This goes beyond the paper, whose first heads hardly cost anything when cut.

    The loss is the task's own over the scored positions of `sequences` sequences of a split, by default the last. The
    threshold is above the model's loss by 4 % of what attention does where none is given, `LEEWAY`, and by 1 % of that
    loss at the least: by 0.04 in the retrieval problem, as the paper's 0.05 for models at 0.01. The same model and seed
    give the same circuit.

    Errors: `SpecError` for a member or a split that is not there and for a model above the threshold; `SiteError` for a
    model without attention.
    """
    ensemble = as_ensemble(model)
    members = ensemble.size if ensemble.weights else 1
    if not 0 <= member < members:
        raise SpecError("member", f"{member} is none of {members}", f"choose from 0..{members - 1}")
    if sequences < 1:
        raise SpecError("sequences", f"{sequences} are none", "ask for at least 1")
    one = ensemble.select([member]) if ensemble.weights else ensemble
    search, fresh = (
        AttentionLosses(one, task, task.sample(split or task.splits[-1], sequences, child_seed(seed, part)))
        for part in ("search", "fresh")
    )
    try:
        _ = search.patterns
    except SiteError:
        raise SiteError(f"the model has no attention to explain: no site {attention_site('*')}") from None
    if clash := sorted({*search.roles} & {*RESERVED}):
        raise SpecError("task.roles", f"{clash[0]!r} has a meaning of its own", "call the role something else")
    own = search.loss({})
    if not isfinite(own):
        raise SpecError("model", f"has a loss of {own}", "choose a member or a checkpoint that did not diverge")
    allowed = _allowance(search, own) if threshold is None else threshold
    if own > allowed:
        raise SpecError("threshold", f"{allowed:.4g} is below the model's loss {own:.4g}", "raise it, or train longer")
    found = _joined(search, _alone(search, allowed, progress), own, allowed, progress)
    found = _pruned(search, _told_by_roles(search, found, allowed), own, allowed, progress)
    return _validated(fresh, found, allowed)


def _allowance(search: AttentionLosses, own: float) -> float:
    """The threshold where none is given; where attention does next to nothing, a hundredth of the loss is left."""
    least = min(search.loss(dict.fromkeys(search.patterns, Explanation(rest))) for rest in RESTS)
    return own + max(LEEWAY * (least - own), 0.01 * own)


_Candidates = Mapping[Head, tuple[float, list[Explanation]]]
"""For each head what it costs alone, and its hypotheses from the simplest that suffices alone on."""

_Found = dict[Head, Explanation | None]


def _alone(search: AttentionLosses, allowed: float, progress: Progress) -> _Candidates:
    """Each head by itself, those that cost least first."""
    found: dict[Head, tuple[float, list[Explanation]]] = {}
    for done, (head, pattern) in enumerate(search.patterns.items()):
        progress("each head alone", done, len(search.patterns))
        possible, cost = hypotheses(pattern, search.roles, search.tokens), inf
        while possible and cost > allowed:
            if (cost := search.worst_loss({head: possible[0]}, allowed)) > allowed:
                possible.pop(0)
        found[head] = cost, possible
    return dict(sorted(found.items(), key=lambda one: one[1][0]))


def _joined(search: AttentionLosses, candidates: _Candidates, own: float, allowed: float, progress: Progress) -> _Found:
    """All heads together, for half of what they may cost; what that leaves unexplained may take the other half."""
    found: _Found = dict.fromkeys(search.patterns)
    half = own + (allowed - own) / 2
    growing = [own + (half - own) * (done + 1) / len(candidates) for done in range(len(candidates))]
    for allowances in (growing, [allowed] * len(candidates)):
        for done, (allowance, (head, (_, possible))) in enumerate(zip(allowances, candidates.items(), strict=True)):
            if found[head] is None:
                progress("all heads together", done, len(candidates))
                fitting = (one for one in possible if search.worst_loss({**found, head: one}, allowance) <= allowance)
                found[head] = next(fitting, None)
    return found


def _told_by_roles(search: AttentionLosses, found: _Found, allowed: float) -> _Found:
    """Rules for every position as rules of the roles alone that do follow them, where nothing else is needed."""
    for head, one in found.items():
        if one is not None and any(rule.query == EVERYWHERE for rule in one.rules):
            rules = tuple(
                part
                for rule in one.rules
                for part in resolved(rule, search.roles, search.length, search.tokens)
                if rule_attention(search.patterns[head], part, search.roles, search.tokens) >= FOLLOWED
            )
            told = min(
                ({**found, head: Explanation(rest, rules)} for rest in RESTS),
                key=lambda whole: search.worst_loss(whole, allowed),
            )
            found = told if search.worst_loss(told, allowed) <= allowed else found
    return found


def _pruned(search: AttentionLosses, found: _Found, own: float, allowed: float, progress: Progress) -> _Found:
    """Cuts the paths that are not needed, one sweep from the cheapest on after another, until all are needed.

    Before each sweep every head gets the rest that costs least with the paths that are left. What is not needed is no
    part of the circuit; it is hidden from no query that attends as the model makes it.
    """
    left = -1
    while left != len(paths := [(head, rule) for head, one in found.items() if one for rule in one.rules]):
        left, found = len(paths), _rested(search, found, (allowed - own) * _ALIKE)
        costs = {path: search.worst_loss(_cut(found, *path), allowed) for path in paths}
        for done, path in enumerate(sorted(paths, key=costs.__getitem__)):
            progress("cutting paths", done, len(paths))
            cut = _cut(found, *path)
            if search.worst_loss(cut, allowed) <= allowed:
                rid = {head: one and replace(one, cut=()) for head, one in cut.items()}
                found = rid if search.worst_loss(rid, allowed) <= allowed else found
    return found


def _rested(search: AttentionLosses, found: _Found, alike: float) -> _Found:
    """Every head with the rest that costs least, the simplest of those that cost alike."""
    for head, one in found.items():
        if one is not None:
            rested = [{**found, head: replace(one, rest=rest)} for rest in RESTS]
            losses = [search.worst_loss(whole, inf) for whole in rested]
            found = next(whole for whole, loss in zip(rested, losses, strict=True) if loss <= min(losses) + alike)
    return found


def _cut(found: _Found, head: Head, rule: AttentionRule) -> _Found:
    one = found[head]
    return {**found, head: one and one.without(rule)}


def _validated(fresh: AttentionLosses, found: _Found, allowed: float) -> Circuit:
    """The circuit with all its numbers, on sequences that the search has not seen."""
    rules = {head: one.rules for head, one in found.items() if one is not None and one.rules}
    paths = tuple(
        CircuitPath(
            *head,
            rule,
            attention=rule_attention(fresh.patterns[head], rule, fresh.roles, fresh.tokens),
            cut_loss=fresh.loss(_cut(found, head, rule), live=True),
            mapped_cut_loss=fresh.loss(_cut(found, head, rule)),
        )
        for head, several in rules.items()
        for rule in several
    )
    return Circuit(
        explanations=found,
        paths=paths,
        roles=_from_left_to_right(fresh.roles),
        threshold=allowed,
        model_loss=fresh.loss({}),
        loss=fresh.loss(found),
        live_loss=fresh.loss(found, live=True),
        empty_loss=fresh.loss(dict.fromkeys(found, Explanation("uniform"))),
        rest_loss=fresh.loss_without(rules),
        causal=fresh.causal,
    )


def _from_left_to_right(roles: Roles) -> tuple[str, ...]:
    def middle(name: str) -> float:
        there = roles[name][roles[name] >= 0]
        return float(there.double().mean()) if len(there) else inf

    return tuple(sorted(roles, key=middle))
