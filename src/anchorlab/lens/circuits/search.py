"""Search for the circuit of a model: the procedure of stacked attention heads, appendix E, automated."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, isfinite

from anchorlab.errors import SiteError, SpecError
from anchorlab.lens.circuits.circuit import Circuit, CircuitPath, Head
from anchorlab.lens.circuits.explanation import EVERYWHERE, RESERVED, RESTS, AttentionRule, Explanation, Roles
from anchorlab.lens.circuits.hypotheses import FOLLOWED, hypotheses, resolved, rule_attention
from anchorlab.lens.circuits.losses import AttentionLosses, attention_site
from anchorlab.lens.look.inputs import AnyModel, as_ensemble
from anchorlab.lens.own_task import check_fits, own_task
from anchorlab.progress import Phased, phased
from anchorlab.rng import child_seed
from anchorlab.tasks.task import Task

_ALIKE = 0.02
"""Two rests count as equally good if their losses differ by at most this share of threshold minus model loss."""

Progress = Callable[[str, int, int], None]
"""Called with the current phase of the search, the number of its steps done, and their total."""

LEEWAY = 0.04
"""The default rise of the loss, as a share of attention's effect: the lowest loss with the same `rest` for all queries
of every head, minus the model's loss."""


def find_circuit(
    model: AnyModel,
    task: Task | str | None = None,
    *,
    member: int = 0,
    threshold: float | None = None,
    rise: float | None = None,
    split: str | None = None,
    sequences: int = 256,
    seed: int = 0,
    progress: Phased = None,
) -> Circuit:
    """Return the circuit of a member: attention paths that suffice for a task when all other attention is replaced.

    The search follows stacked attention heads, appendix E:

    1. Each head alone: try its `hypotheses`, the simplest first, until the attention map of one keeps the loss below
       the threshold.
    2. All heads together, in the order of their loss alone: give each head the simplest hypothesis that keeps the loss
       within an allowance. The allowance grows from head to head, up to half of the way from the model's loss to
       the threshold; heads that remain unexplained may use all of it.
    3. Rules by role: replace rules for every position by rules for roles if the loss stays below the threshold.
    4. Pruning: give every head the rest with the lowest loss. Then cut the cheapest path, one at a time, while the loss
       stays below the threshold. Repeat until no path can be cut.
    5. Measure the circuit on fresh sequences.

    If a map replaces a head's attention, the earlier heads that direct this attention have no effect. Therefore the
    search uses the larger of two losses: the loss with maps in place of all attention, and the live loss, for which
    queries with a rule keep the attention that the model computes. This goes beyond the paper, in which cutting the
    first heads costs almost nothing.

    The same model and seed give the same circuit.

    Args:
        task: gives the sequences, their roles and the loss; a task or its name. A run knows its own; to explain its
            model on another task, give `run.ensemble()`.
        threshold: the largest loss that the circuit may have. None: the model's loss plus `LEEWAY` (4 %) of attention's
            effect, and at least 1 % above the model's loss. In the retrieval problem this adds 0.04; the paper uses a
            threshold of 0.05 for models with a loss of 0.01.
        rise: how far the loss may rise above the model's; an alternative to `threshold`.
        split: the split to draw sequences from; None: the last.
        sequences: the number of sequences to draw for the search, and again for the measurement.
        seed: the seed of both sets of sequences.
        progress: called with the phase, the steps done and their total; None and False as in `effects`.
    """
    ensemble, task = as_ensemble(model), own_task(model, task)
    if not 0 <= member < ensemble.size:
        raise SpecError("member", f"there is no member {member}", f"choose from 0..{ensemble.size - 1}")
    if threshold is not None and rise is not None:
        raise SpecError("rise", "says again what the threshold says", "give one of them")
    if sequences < 1:
        raise SpecError("sequences", f"{sequences} are too few", "give at least 1")
    one = ensemble.select([member])
    check_fits(one, task)
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
    if threshold is None:
        threshold = own + (_allowance(search, own) if rise is None else rise)
    if not own <= threshold:  # also for a threshold that is no number
        problem = f"{threshold:.4g} is below the model's loss {own:.4g}"
        raise SpecError("threshold", problem, "raise it, or train longer")
    with phased(progress) as tell:
        found = _joined(search, _alone(search, threshold, tell), own, threshold, tell)
        found = _by_roles(search, found, threshold)
        found = _pruned(search, found, own, threshold, tell)
    return _measured(fresh, found, threshold)


def _allowance(search: AttentionLosses, own: float) -> float:
    """Return how far the loss may rise by default: at least 1 % of it, in case attention has no effect."""
    least = min(search.loss(dict.fromkeys(search.patterns, Explanation(rest))) for rest in RESTS)
    return max(LEEWAY * (least - own), 0.01 * own)


_Candidates = Mapping[Head, tuple[float, list[Explanation]]]
"""For each head, the loss if it alone is explained, and its hypotheses from the simplest sufficient one on."""

_Found = dict[Head, Explanation | None]


def _alone(search: AttentionLosses, allowed: float, progress: Progress) -> _Candidates:
    """Explain each head alone; return the heads in the order of the resulting loss."""
    found: dict[Head, tuple[float, list[Explanation]]] = {}
    for done, (head, pattern) in enumerate(search.patterns.items()):
        progress("each head alone", done, len(search.patterns))
        # drop hypotheses from the simplest on until one suffices alone; what fails alone is not tried with other heads
        possible, cost = hypotheses(pattern, search.roles, search.tokens), inf
        while possible and cost > allowed:
            if (cost := search.worst_loss({head: possible[0]}, allowed)) > allowed:
                possible.pop(0)
        found[head] = cost, possible
    return dict(sorted(found.items(), key=lambda one: one[1][0]))


def _joined(search: AttentionLosses, candidates: _Candidates, own: float, allowed: float, progress: Progress) -> _Found:
    """Explain all heads together within half the allowed rise of the loss, then those that remain within all of it."""
    found: _Found = dict.fromkeys(search.patterns)
    # the allowance grows linearly to half of the rise, so that early heads leave some of it to later heads; the second
    # round lets the heads that are still unexplained use the whole rise
    half = own + (allowed - own) / 2
    growing = [own + (half - own) * (done + 1) / len(candidates) for done in range(len(candidates))]
    for allowances in (growing, [allowed] * len(candidates)):
        for done, (allowance, (head, (_, possible))) in enumerate(zip(allowances, candidates.items(), strict=True)):
            if found[head] is None:
                progress("all heads together", done, len(candidates))
                fitting = (one for one in possible if search.worst_loss({**found, head: one}, allowance) <= allowance)
                found[head] = next(fitting, None)
    return found


def _by_roles(search: AttentionLosses, found: _Found, allowed: float) -> _Found:
    """Replace rules for every position by the rules for roles that the head follows, if these suffice."""
    for head, one in found.items():
        if one is not None and any(rule.query == EVERYWHERE for rule in one.rules):
            rules = tuple(
                part
                for rule in one.rules
                for part in resolved(rule, search.roles, search.length, search.tokens)
                if rule_attention(search.patterns[head], part, search.roles, search.tokens) >= FOLLOWED
            )
            best = min(
                ({**found, head: Explanation(rest, rules)} for rest in RESTS),
                key=lambda assignment: search.worst_loss(assignment, allowed),
            )
            found = best if search.worst_loss(best, allowed) <= allowed else found
    return found


def _pruned(search: AttentionLosses, found: _Found, own: float, allowed: float, progress: Progress) -> _Found:
    """Cut paths that are not needed, in rounds that begin with every head's best `rest`, until a round cuts none."""
    before = -1
    while before != len(paths := [(head, rule) for head, one in found.items() if one for rule in one.rules]):
        before, found = len(paths), _with_best_rests(search, found, (allowed - own) * _ALIKE)
        found = _without_cheapest(search, found, allowed, progress)
    return found


def _without_cheapest(search: AttentionLosses, found: _Found, allowed: float, progress: Progress) -> _Found:
    """Cut the cheapest path, one at a time, until the cheapest path costs too much.

    A cut raises the cost of other paths that did the same work. Therefore a cost computed before the cut is only a
    lower bound, and is computed again before a path with this cost is cut. A path is removed only if the loss stays
    allowed both with its keys hidden from live queries (`Explanation.cut`) and with these keys visible again.
    """
    paths = [(head, rule) for head, one in found.items() if one for rule in one.rules]
    costs = {path: search.worst_loss(_cut(found, *path), allowed) for path in paths}
    old = set[tuple[Head, AttentionRule]]()
    while costs:
        path = min(costs, key=costs.__getitem__)
        hidden = _cut(found, *path)
        if path in old:
            costs[path] = search.worst_loss(hidden, allowed)
            old.remove(path)
            continue
        progress("cutting paths", len(paths) - len(costs), len(paths))
        if costs.pop(path) > allowed:
            break
        visible = {head: one and replace(one, cut=()) for head, one in hidden.items()}
        if search.worst_loss(visible, allowed) <= allowed:
            found, old = visible, {*costs}
    return found


def _with_best_rests(search: AttentionLosses, found: _Found, alike: float) -> _Found:
    """Give every head the simplest `rest` whose loss is within `alike` of the lowest."""
    for head, one in found.items():
        if one is not None:
            possible = [{**found, head: replace(one, rest=rest)} for rest in RESTS]
            losses = [search.worst_loss(assignment, inf) for assignment in possible]
            close = (loss <= min(losses) + alike for loss in losses)
            found = next(assignment for assignment, good in zip(possible, close, strict=True) if good)
    return found


def _cut(found: _Found, head: Head, rule: AttentionRule) -> _Found:
    one = found[head]
    return {**found, head: one and one.without(rule)}


def _measured(fresh: AttentionLosses, found: _Found, allowed: float) -> Circuit:
    """Return the circuit with its losses on fresh sequences, which the search did not use."""
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
