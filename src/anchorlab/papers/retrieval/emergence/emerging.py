"""When the attention paths of a circuit emerge in training, and which symbols of the chain need them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite, isnan, nan
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab import lens
from anchorlab.lens.circuits import Assignment, AttentionLosses, rule_places
from anchorlab.papers.retrieval.chain_order import retrieved_at
from anchorlab.papers.retrieval.one_head import SEQUENCES, Solution, as_json, solutions
from anchorlab.papers.retrieval.settings import retrieval_of
from anchorlab.studies.kit import along
from anchorlab.training import TrainedRun

EMERGED = 0.5
"""A path has emerged once the mean attention along it is above this (section 9.2)."""

NEEDED = 0.2
"""A symbol needs a path if its partial loss rises by at least this when the path is cut."""

EMPTY = 1.0
"""The loss of a model that answers nothing: each component of a symbol has variance 1 (section 6)."""


@dataclass(frozen=True)
class Growth:
    """The circuit of one model along training."""

    solution: Solution
    steps: tuple[int, ...]
    needs: Mapping[lens.CircuitPath, frozenset[int]]  # the symbols that need each path, counted from 1
    attention: Mapping[lens.CircuitPath, Float[Tensor, "checkpoint"]]  # the mean attention along each path
    retrieved: Mapping[int, float]  # the step at which each symbol is retrieved, infinite if never
    evaluated: tuple[int, ...]  # the steps at which the loss was measured
    loss: Float[Tensor, "evaluation"]  # the loss on fresh sequences, over all symbols
    replaced: float  # how much the loss rises when all attention is replaced, from `rise_replaced`

    def crossing(self, path: lens.CircuitPath, level: float = EMERGED) -> float:
        """Return the step at which the attention along a path first reaches a level; infinite if it never does."""
        found = float(lens.first_crossing(self.steps, self.attention[path].unsqueeze(0), level)[0])
        return found if isfinite(found) else inf

    def paths_of(self, symbol: int) -> list[lens.CircuitPath]:
        """Return the paths that a symbol needs."""
        return [path for path, symbols in self.needs.items() if symbol in symbols]

    def arrival(self, symbol: int) -> float:
        """Return the step at which a symbol's last path emerges: infinite if one never does, NaN if it needs none."""
        return max(map(self.crossing, self.paths_of(symbol)), default=nan)


def growths(run: TrainedRun, rise: float) -> list[Growth]:
    """Return the circuit of every model that did not diverge, along training; `rise` as in `solutions`."""
    found, retrieved = solutions(run, rise), retrieved_at(run)
    evaluated, losses = along(run, "test", "loss")
    kept = as_json(run, f"paths along training, rise {rise:g}", lambda run: _grown(run, found))
    return [
        Growth(
            one,
            tuple(grown["steps"]),
            {path: frozenset(needed) for path, needed in zip(one.circuit.paths, grown["needs"], strict=True)},
            dict(zip(one.circuit.paths, map(torch.tensor, grown["attention"]), strict=True)),
            dict(zip(retrieval_of(run).asked, retrieved[one.member].tolist(), strict=True)),
            tuple(evaluated),
            losses[one.member],
            grown["replaced"],
        )
        for one in found
        if (grown := kept[one.member])
    ]


def _grown(run: TrainedRun, found: Sequence[Solution]) -> list[dict[str, Any] | None]:
    """Return what `Growth` needs of every member's weights as values of JSON, None for a member that diverged."""
    task, ensemble = retrieval_of(run), run.ensemble()
    fresh, attention = task.sample("test", 256, seed=1), _attention(run, [one.circuit for one in found])
    grown: list[dict[str, Any] | None] = [None] * len(run.experiment.members)
    for one in found:
        measured = AttentionLosses(ensemble.select([one.member]), task, fresh)
        needed, along_paths = needs(one.circuit, measured), [attention.values[str(path)] for path in one.circuit.paths]
        grown[one.member] = {
            "steps": attention.steps,
            "needs": [sorted(needed[path]) for path in one.circuit.paths],
            "attention": [values[one.member].numpy().round(8).tolist() for values in along_paths],
            "replaced": rise_replaced(one.circuit, measured),
        }
    return grown


def rise_replaced(circuit: lens.Circuit, losses: AttentionLosses) -> float:
    """Return the rise of the loss if maps of a circuit replace all attention; heads without a rule attend uniformly."""
    maps = {head: one or lens.Explanation("uniform") for head, one in circuit.explanations.items()}
    return losses.loss(maps) - losses.loss({})


def needs(circuit: lens.Circuit, losses: AttentionLosses) -> dict[lens.CircuitPath, frozenset[int]]:
    """Return the symbols that need each path of a circuit, with the model's own attention along the other paths."""

    def partials(assignment: Assignment) -> dict[int, float]:
        scores = losses.task.metrics(losses.outputs(assignment, live=True), losses.batch)
        return {int(name.removeprefix("partial_")): float(value.mean()) for name, value in scores.items()}

    whole = partials(circuit.explanations)
    cuts = {path: partials(circuit.without(path)) for path in circuit.paths}
    return {
        path: frozenset(symbol for symbol in whole if without[symbol] - whole[symbol] >= NEEDED)
        for path, without in cuts.items()
    }


def _attention(run: TrainedRun, circuits: Sequence[lens.Circuit]) -> lens.Emergence:
    """Return every member's mean attention along the paths of all circuits, by path, at each checkpoint."""
    task = retrieval_of(run)
    batch = task.sample("test", SEQUENCES, seed=2)
    roles, length = task.roles(batch), task.shape.length
    places = {
        str(path): lens.PathAttention(path.layer, path.head, *rule_places(path.rule, roles, length, circuit.causal))
        for circuit in circuits
        for path in circuit.paths
    }
    return lens.emergence(run, lens.path_attention(batch.inputs, places))


def distance(one: Growth, end: float) -> float:
    """Return the longest time between the emergence of a retrieved symbol's last path and the fall of its partial loss.

    Returns `end`, the length of training, if a path never emerged, and NaN if no retrieved symbol needs a path.
    """
    apart = [
        min(abs(one.arrival(symbol) - fallen), end)
        for symbol, fallen in one.retrieved.items()
        if isfinite(fallen) and one.paths_of(symbol)
    ]
    return max(apart, default=nan)


def slower(times: Float[Tensor, "symbol"], end: float) -> float:
    """Return 1 if the gap between the last two times is longer than the gap before it, else 0; NaN if not known.

    An infinite last time is later than `end`, the length of training: 1 if even `end` would be far enough, else NaN.
    Also NaN for fewer than four symbols: the paper's head 24, which emerges late, serves the fourth.
    """
    if len(times) < 4 or not bool(times[-3:-1].isfinite().all()):
        return nan
    first, second, last = times[-3:].tolist()
    if last == inf:
        return 1.0 if end - second > second - first else nan
    return nan if isnan(last) else float(last - second > second - first)


def rise(one: Growth, symbol: int) -> float:
    """Return how long the attention along a symbol's last path takes from 0.25 to 0.75, as a share of the time before.

    The last checkpoint counts if it never reaches 0.75; NaN if the symbol needs no path, or there is no time before.
    """
    paths = one.paths_of(symbol)
    if not paths:
        return nan
    last = max(paths, key=lambda path: (one.crossing(path), path.layer))
    before, after = one.crossing(last, 0.25), one.crossing(last, 0.75)
    if not 0 < before < inf:
        return nan
    return (min(after, one.steps[-1]) - before) / before


def pace(one: Growth) -> float:
    """Return the loss's rate of fall until the first symbol is retrieved, divided by its rate from then to the last.

    The first period begins when the loss has fallen to `EMPTY`: the fall before comes from our larger initial scale,
    which makes untrained answers large. The second ends with the last evaluation if a symbol is never retrieved.
    Infinite if the loss does not fall in the second period; NaN if a period is empty: if all symbols are retrieved at
    once or none is, or the first is retrieved before the first period begins.
    """
    times = [min(time, one.evaluated[-1]) for time in one.retrieved.values()]
    first, last = min(one.retrieved.values()), max(times)
    start = float(lens.first_crossing(one.evaluated, one.loss.unsqueeze(0), EMPTY, falling=True)[0])
    if not start < first < last:
        return nan
    before, middle, after = np.interp((start, first, last), one.evaluated, one.loss.numpy()).tolist()
    slow, fast = (before - middle) / (first - start), (middle - after) / (last - first)
    return slow / fast if fast > 0 else inf


def behind(
    training: Float[Tensor, "model evaluation"], validation: Float[Tensor, "model evaluation"]
) -> Float[Tensor, "falling"]:
    """Return the largest excess of validation over training loss, as a share of the latter's fall, where it falls."""
    fall = training[:, 0] - training[:, -1]
    return ((validation - training).amax(dim=1) / fall)[fall > 0]


def reused(one: Growth) -> list[float]:
    """Return, for each retrieved symbol but the last, the share of its paths that the next one needs as well."""
    symbols = [symbol for symbol, time in one.retrieved.items() if isfinite(time)]
    shares = []
    for symbol, following in pairwise(symbols):
        needed = [following in one.needs[path] for path in one.paths_of(symbol)]
        if needed:
            shares.append(sum(needed) / len(needed))
    return shares
