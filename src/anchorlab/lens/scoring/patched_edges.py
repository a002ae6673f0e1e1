"""Path patching of every edge: the exact effect of one edge at a time, which edge attribution patching estimates."""

import torch
from jaxtyping import Int
from torch import Tensor

from anchorlab.lens.effects.effects import Metric
from anchorlab.lens.effects.pairs import Into, Pairs
from anchorlab.lens.look.inputs import AnyInputs, AnyModel, AnyPositions
from anchorlab.lens.scoring.comparison import Comparison
from anchorlab.lens.scoring.graph import edges_of, receivers_of, units_of
from anchorlab.lens.scoring.parts import Part
from anchorlab.lens.scoring.scores import Passes, Scores
from anchorlab.progress import Counted, counted


def patch_edges(
    model: AnyModel,
    clean: AnyInputs,
    corrupted: AnyInputs,
    answers: Int[Tensor, "batch scored"] | None = None,
    corrupted_answers: Int[Tensor, "batch scored"] | None = None,
    *,
    metric: Metric | None = None,
    into: Into = "clean",
    positions: AnyPositions | None = None,
    batch_size: int | None = None,
    progress: Counted = None,
) -> Scores:
    """Score every edge by path patching: how the metric changes if its receiver alone reads the other run's sender.

    Each edge has a pass of its own, in which all other edges are as in the plain run, and everything after the receiver
    reacts to it. `score_edges` estimates the same from gradients.

        patch_edges(run, clean, corrupted).circuit(0.1)  # edges that change the logit difference by at least 0.1

    Args:
        progress: called with the number of edges patched and their total; None shows it on a terminal and in a
            notebook, False nowhere.

    Other arguments: as in `score_units`.
    Source: Goldowsky-Dill et al., 2023, arXiv 2304.05969.
    """
    pairs = Pairs.of(model, clean, corrupted, answers, corrupted_answers, positions, into)
    compared = Comparison.of(pairs, metric, batch_size)
    edges = edges_of(compared.template)
    units, receivers = units_of(compared.template), receivers_of(compared.template)
    parts = [Part.of(compared, rows) for rows in compared.rows()]
    none = torch.zeros(compared.ensemble.size, len(units), len(receivers))

    def measured(removed: Tensor) -> Tensor:
        return torch.stack([part.metric(part.outputs(removed)) for part in parts]).sum(dim=0)

    plain, scores = measured(none), torch.zeros(len(none), len(edges), dtype=torch.float64)
    with counted("patching", progress) as tell:
        for at, edge in enumerate(edges):
            removed = none.clone()
            removed[:, units.index(edge.sender), receivers.index(edge.receiver)] = 1
            scores[:, at] = measured(removed) - plain
            tell(at + 1, len(edges))
    return Scores.of_edges("path patching", units, edges, scores, Passes(len(edges) + 2, 0))
