"""What is measured of a circuit along training: when its paths emerge, and which symbols need them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite, nan

from jaxtyping import Float
from torch import Tensor

from anchorlab.lens import Circuit, CircuitPath, Emergence, PathAttention, emergence, first_crossing, path_attention
from anchorlab.lens.circuits import Assignment, AttentionLosses, rule_places
from anchorlab.studies.retrieval.chain_order import retrieved_at
from anchorlab.studies.retrieval.one_head import Solution, solutions
from anchorlab.studies.retrieval.settings import retrieval_of
from anchorlab.training import TrainedRun

EMERGED = 0.5
"""A path has emerged once the mean attention along it is above this (section 9.2)."""

NEEDED = 0.2
"""A path is needed for a symbol if the symbol's partial loss rises by this when the path is cut."""

SEQUENCES = 32
"""On how many sequences attention is measured at each checkpoint, as in the paper (section 9.1)."""


@dataclass(frozen=True)
class Growth:
    """One model: its circuit, what each path is needed for, and when each path and each symbol came.

    `needs` names for each path the symbols whose partial loss rises without it; `attention` is the mean attention along
    each path, `[checkpoint]`, at `steps`; `retrieved` is when each symbol's partial loss fell, infinite where never.
    """

    solution: Solution
    steps: tuple[int, ...]
    needs: Mapping[CircuitPath, frozenset[int]]
    attention: Mapping[CircuitPath, Float[Tensor, "checkpoint"]]
    retrieved: Mapping[int, float]

    def crossing(self, path: CircuitPath, level: float = EMERGED) -> float:
        """When the attention along a path first reached a level; NaN where never."""
        return float(first_crossing(self.steps, self.attention[path].unsqueeze(0), level)[0])

    def paths_of(self, symbol: int) -> list[CircuitPath]:
        """The paths that a symbol needs."""
        return [path for path, symbols in self.needs.items() if symbol in symbols]

    def arrival(self, symbol: int) -> float:
        """When the last of the paths that a symbol needs has emerged; infinite where one never did, NaN without any."""
        return max((or_never(self.crossing(path)) for path in self.paths_of(symbol)), default=nan)


def or_never(crossing: float) -> float:
    """A crossing that never was lies infinitely late."""
    return crossing if isfinite(crossing) else inf


def needs(circuit: Circuit, measured: AttentionLosses) -> dict[CircuitPath, frozenset[int]]:
    """For which symbols each path of a circuit is needed, the other paths attending as the model makes them."""

    def partials(assignment: Assignment) -> dict[int, float]:
        scores = measured.task.metrics(measured.outputs(assignment, live=True), measured.batch)
        return {int(name.rpartition("_")[2]): float(value.mean()) for name, value in scores.items()}

    whole = partials(circuit.explanations)
    cuts = {path: partials(circuit.without(path)) for path in circuit.paths}
    return {
        path: frozenset(symbol for symbol in whole if losses[symbol] - whole[symbol] >= NEEDED)
        for path, losses in cuts.items()
    }


def growths(run: TrainedRun) -> list[Growth]:
    """Every model's circuit along training."""
    task, ensemble, found = retrieval_of(run), run.ensemble(), solutions(run)
    fresh = task.sample("test", 256, seed=1)
    needed = [needs(one.circuit, AttentionLosses(ensemble.select([one.member]), task, fresh)) for one in found]
    attention = _along_paths(run, [one.circuit for one in found])
    retrieved = retrieved_at(run)
    return [
        Growth(
            one,
            attention.steps,
            needed[index],
            {path: attention.values[str(path)][one.member] for path in one.circuit.paths},
            dict(zip(task.asked, retrieved[one.member].tolist(), strict=True)),
        )
        for index, one in enumerate(found)
    ]


def _along_paths(run: TrainedRun, circuits: Sequence[Circuit]) -> Emergence:
    """The attention of every member along the paths of all, at each checkpoint."""
    task = retrieval_of(run)
    batch = task.sample("test", SEQUENCES, seed=2)
    roles = task.roles(batch)
    length = task.shape.length
    places = {
        str(path): PathAttention(path.layer, path.head, *rule_places(path.rule, roles, length, circuit.causal))
        for circuit in circuits
        for path in circuit.paths
    }
    return emergence(run, path_attention(batch.inputs, places))


def distance(one: Growth, end: float) -> float:
    """The largest distance between the last path of a symbol and its loss; `end` where the path never emerged.

    NaN where no retrieved symbol needs any path.
    """
    apart = [
        abs(arrival - fallen) if isfinite(arrival := one.arrival(symbol)) else end
        for symbol, fallen in one.retrieved.items()
        if isfinite(fallen) and one.paths_of(symbol)
    ]
    return max(apart, default=nan)


def slower(times: Float[Tensor, "symbol"]) -> float:
    """1 if the last two times lie further apart than the two before, NaN where one of these is missing."""
    if len(times) < 3 or not bool(times[-3:].isfinite().all()):
        return nan
    before, last = times[-3:].diff().tolist()
    return float(last > before)


def rise(one: Growth, symbol: int) -> float:
    """How long the last path that a symbol needs takes from a quarter to three quarters, over the time before."""
    paths = one.paths_of(symbol)
    if not paths:
        return nan
    last = max(paths, key=lambda path: (or_never(one.crossing(path)), path.layer))
    before, after = one.crossing(last, 0.25), one.crossing(last, 0.75)
    return ((after if isfinite(after) else one.steps[-1]) - before) / before if before > 0 else nan


def reuse(one: Growth, symbols: Sequence[int]) -> list[float]:
    """For each symbol but the last, what share of the paths that it needs the next one needs as well."""
    shares = []
    for symbol, following in pairwise(symbols):
        needed = [following in one.needs[path] for path in one.paths_of(symbol)]
        if needed:
            shares.append(sum(needed) / len(needed))
    return shares
